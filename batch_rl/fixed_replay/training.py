"""Offline training as a call, `batch_rl.train`, and the run that it returns."""

import contextlib
import dataclasses
import functools
import os
import types
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from batch_rl.agents import registry
from batch_rl.dataset.shards import shard_files
from batch_rl.dataset.store import store, store_directory
from batch_rl.fixed_replay.agents import REGISTRY
from batch_rl.runs import command_line, games, run_record
from batch_rl.runs import evaluations as evaluations_lib
from batch_rl.runs.bindings import gin_internals, settings
from batch_rl.utils import choices, seeding
from batch_rl.utils.user_code import gin_signatures, user_modules

_Path = str | os.PathLike[str]
# Arguments of the calls, by the flags of the programs.
_ARGUMENTS = {
  'agent_name': 'agent',
  'config': 'agent',
  'replay_dir': 'data',
  'evaluation_steps': 'steps',
}
# Settings that have the ranges of arguments.
_RANGES = {
  'iterations': 'num_iterations',
  'updates': 'num_iterations',
  'seed': 'seed',
}


def make_runner(
  given: Any,
  create_agent: Callable[..., Any] | None = None,
  updates: int | None = None,
) -> Any:
  """Returns the `FixedReplayRunner` of the program's flags.

  Args:
    given: The flags, or an object with attributes of their names.
    create_agent: Function that replaces `create_offline_agent`, if any.
    updates: Number of updates of an iteration; None for the configured
      `training_steps`.

  Raises:
    ValueError: If a file, a value or the data is wrong, or `base_dir` is in use or holds
      a run with other settings.
  """
  replay_data_dir = store.find_data(given.replay_dir)
  sources = command_line.read_gin(REGISTRY, given)
  # TensorFlow takes seconds to import, so flags are checked first.
  from batch_rl.fixed_replay import run_experiment
  from batch_rl.runs import initial_weights

  agent = command_line.configure(
    sources, 'create_offline_agent', REGISTRY, given
  )
  if updates is not None:
    period = gin_signatures.configured_value(
      REGISTRY.find(agent), 'update_period'
    )
    command_line.bind('FixedReplayRunner.training_steps', updates * period)
  weights = given.init_checkpoint_dir
  record = command_line.start_run(
    agent,
    given,
    replay_dir=store_directory.absolute(replay_data_dir),
    init_checkpoint_dir=weights and store_directory.absolute(weights),
  )
  games.check_game(replay_data_dir, games.configured_game())
  create = create_agent or functools.partial(
    run_experiment.create_offline_agent,
    init_checkpoint_dir=initial_weights.needed(weights, given.base_dir),
  )
  return run_experiment.FixedReplayRunner(
    given.base_dir,
    functools.partial(create, replay_data_dir=replay_data_dir),
    record=record,
    accept_changes=given.accept_changes,
  )


def train(
  agent: str | type,
  data: _Path,
  base_dir: _Path | None = None,
  *,
  iterations: int | None = None,
  updates: int | None = None,
  gin_files: _Path | Iterable[_Path] = (),
  gin_bindings: str | Iterable[str] | Mapping[str, Any] = (),
  seed: int | None = None,
  init_checkpoint_dir: _Path | None = None,
  accept_changes: bool = False,
) -> 'TrainedRun':
  """Trains an agent on logged data, as `python -m batch_rl.fixed_replay.train` does.

  The same call resumes a run that was stopped, and returns one that is done; so does the
  command with the same settings, to the bit. Ctrl-C, or a notebook's stop button, saves
  first. gin's configuration, TensorFlow's default graph and the states of `random` and
  `numpy.random` are afterwards as before. As with all of this package's agents,
  TensorFlow is in graph mode from then on.

  Args:
    agent: Name of one of the package's gin files, e.g. 'rem'; or a class of your own,
      or its name as 'my_module.MyAgent'. A class needs no `@gin.configurable`.
    data: Run directory to train on, the folder above `replay_logs`; or a store.
    base_dir: Directory of the run; None for `runs/<agent>/<game>/<run>` in the current
      directory, with the last two folders of `data`.
    iterations: Number of iterations; each ends with an evaluation and a checkpoint.
    updates: Number of updates of an iteration.
    gin_files: Path or paths of gin files, as of `--gin_files`.
    gin_bindings: Lines of gin, which override the files; or `{'Class.parameter':
      value}`, where a text that begins with @ or % is a reference.
    seed: Seed of everything random; None draws one, and records it.
    init_checkpoint_dir: Directory of another run, for the initial weights.
    accept_changes: Whether to continue a run whose settings or data have changed.

  Returns:
    The run with all its evaluations, also those of earlier calls.

  Raises:
    ValueError: If an argument, a file or the data is wrong, or `base_dir` is in use or
      holds a run with other settings. It has one line that says what to do.
    FloatingPointError: If the loss is not finite.
    OSError: If a file cannot be read or written.
    KeyboardInterrupt: After Ctrl-C; the run has saved.
  """
  given = types.SimpleNamespace(
    replay_dir=os.fspath(data),
    gin_files=_as_list(gin_files),
    gin_bindings=_as_lines(gin_bindings),
    module_dirs=[],
    seed=seed,
    init_checkpoint_dir=init_checkpoint_dir and os.fspath(init_checkpoint_dir),
    accept_changes=accept_changes,
  )
  if iterations is not None:
    given.gin_bindings.append(f'FixedReplayRunner.num_iterations={iterations}')
  with command_line.in_call(_ARGUMENTS), command_line.user_errors():
    for name, setting in _RANGES.items():
      value, allowed = locals()[name], settings.SETTINGS[setting]
      if value is not None and not allowed.accepts(value):
        raise ValueError(f'{name}={value!r} is not allowed: give {allowed}.')
    given.config, given.agent_name = _names(agent)
    given.base_dir = os.fspath(base_dir or _default_directory(agent, data))
    # They are checked before TensorFlow is imported, which takes seconds.
    store.find_data(given.replay_dir)
    command_line.read_gin(REGISTRY, given)
  with _separate_state():
    with command_line.user_errors():
      runner = make_runner(given, updates=updates)
    command_line.finish(runner)
    runner._sess.close()
  return TrainedRun(given.base_dir)


def _as_list(paths: _Path | Iterable[_Path]) -> list[str]:
  alone = isinstance(paths, str | os.PathLike)
  return [os.fspath(path) for path in ([paths] if alone else paths)]


def _as_lines(bindings: str | Iterable[str] | Mapping[str, Any]) -> list[str]:
  """Returns bindings as lines of gin."""
  if isinstance(bindings, Mapping):
    return [
      f'{name} = {value if _is_reference(value) else repr(value)}'
      for name, value in bindings.items()
    ]
  return [bindings] if isinstance(bindings, str) else list(bindings)


def _is_reference(value: Any) -> bool:
  return isinstance(value, str) and value.startswith(('@', '%'))


def _names(agent: str | type) -> tuple[str | None, str | None]:
  """Returns the values of `--config` and `--agent_name`."""
  if isinstance(agent, type):
    name = registry.name_of(agent)
    REGISTRY.check(name)
    if REGISTRY.find(name) is not agent:
      raise ValueError(
        f'There is another {name}: run the cell or module again.'
      )
    return None, name
  if user_modules.is_dotted(agent):
    return None, agent
  return choices.choose('agent', agent, REGISTRY.configs), None


def _default_directory(agent: str | type, data: _Path) -> str:
  name = agent.__name__ if isinstance(agent, type) else agent
  run = os.path.abspath(data).removesuffix(f'{os.sep}{shard_files.REPLAY_LOGS}')
  return os.path.join('runs', name.rpartition('.')[2], *run.split(os.sep)[-2:])


@contextlib.contextmanager
def _separate_state() -> Iterator[None]:
  """Context of a call, after which the process is as before."""
  import tensorflow as tf

  states = seeding.random_states()
  with (
    command_line.in_call(_ARGUMENTS),
    gin_internals.separate_config(),
    tf.Graph().as_default(),
    run_record.locks_released(),
  ):
    try:
      yield
    finally:
      seeding.restore_random_states(states)


@dataclasses.dataclass(frozen=True)
class TrainedRun(os.PathLike):
  """A run of offline training, made by `train` or by the command.

  Attributes:
    base_dir: Directory of the run. The object is a path, e.g. for `os.path.join`.
  """

  base_dir: str

  def __fspath__(self) -> str:
    return self.base_dir

  @property
  def evaluations(self) -> list[dict[str, Any]]:
    """A row for each evaluation, e.g. for `pandas.DataFrame`.

    A row has the iteration, the mean_return of the undiscounted episodes, the numbers
    of episodes and agent_steps, and the diagnostics.
    """
    return [
      {
        'iteration': iteration,
        'mean_return': content.get('mean_return'),
        'episodes': len(content['episodes']),
        'agent_steps': content.get('agent_steps'),
        **(content.get('diagnostics') or {}),
      }
      for iteration, content in evaluations_lib.read(self.base_dir).items()
    ]

  def evaluate(
    self,
    steps: int | None = None,
    video: _Path | None = None,
    *,
    checkpoints: str = 'last',
    seed: int = 0,
    gin_bindings: str | Iterable[str] | Mapping[str, Any] = (),
  ) -> list[evaluations_lib.Episode]:
    """Evaluates checkpoints, as `python -m batch_rl.fixed_replay.evaluate` does.

    Args:
      steps: Minimum number of agent steps for each checkpoint; None for the run's.
      video: File name, .mp4 or .gif, for the best episode of the last checkpoint.
      checkpoints: 'last', 'best' (by the run's own evaluations), 'all', or iterations,
        e.g. '3,7-9'.
      seed: Seed of the episodes.
      gin_bindings: As of `train`; they override the run's configuration.

    Returns:
      The episodes of the last checkpoint.

    Raises:
      ValueError: If there is no such checkpoint or run, or an argument is wrong.
    """
    from batch_rl.fixed_replay import evaluate

    given = types.SimpleNamespace(
      base_dir=self.base_dir,
      checkpoints=checkpoints,
      evaluation_steps=steps,
      environments=None,
      seed=seed,
      video=video and os.fspath(video),
      module_dirs=[],
      gin_bindings=_as_lines(gin_bindings),
    )
    with _separate_state():
      return evaluate.evaluate(given)

  def act(self, states: np.ndarray, seed: int | None = None) -> np.ndarray:
    """Returns actions of the policy at the end of the last iteration, int64 (n,).

    Args:
      states: States, (n, *observation_shape, stack_size).
      seed: Seed for a policy that samples; None draws one.

    Raises:
      ValueError: If the run has no checkpoint, or its agent does not choose actions by
        `choose_actions`.
    """
    return self._policy(states, seed)

  @functools.cached_property
  def _policy(self) -> Callable[[np.ndarray, int | None], np.ndarray]:
    import tensorflow as tf

    from batch_rl.fixed_replay import frozen_policy

    with _separate_state():
      frozen = frozen_policy.FrozenPolicy(self.base_dir)
      states = frozen.placeholder()
      seeds = tf.compat.v1.placeholder(tf.int64, (2,))
      outputs = frozen.outputs(states, seeds)
      session = tf.compat.v1.Session()

    def act(given, seed):
      random = np.random.default_rng(seed)
      feed = {states: given, seeds: random.integers(2**31, size=2)}
      probabilities = session.run(outputs.probabilities, feed)
      # Gumbel's trick; a probability of 0 has the logarithm -inf.
      with np.errstate(divide='ignore'):
        drawn = np.log(probabilities) + random.gumbel(size=probabilities.shape)
      return drawn.argmax(axis=1)

    return act
