"""Offline training as a call, `batch_rl.train`, and the run that it returns."""

import contextlib
import functools
import os
import re
import types
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from batch_rl.agents import registry
from batch_rl.dataset import run_directories
from batch_rl.dataset.sampling import row_sampler
from batch_rl.dataset.shards import shard_files, shard_reader
from batch_rl.dataset.store import store_directory
from batch_rl.fixed_replay import evaluate, recorded_run
from batch_rl.fixed_replay.agents import REGISTRY
from batch_rl.runs import command_line, games, interruption, run_record
from batch_rl.runs import evaluations as evaluations_lib
from batch_rl.runs.bindings import gin_internals, settings, syntax
from batch_rl.utils import choices, programs, seeding
from batch_rl.utils.user_code import gin_signatures, user_modules

_Path = str | os.PathLike[str]


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
  replay_data_dir = run_directories.find_data(given.replay_dir)
  sources = command_line.read_gin(REGISTRY, given)
  # TensorFlow takes seconds to import, so flags are checked first.
  from batch_rl.fixed_replay import run_experiment
  from batch_rl.runs import initial_weights

  agent = command_line.configure(
    sources, 'create_offline_agent', REGISTRY, given
  )
  if updates is not None:
    agent_class = REGISTRY.find(agent)
    period = gin_signatures.configured_value(agent_class, 'update_period')
    command_line.bind('FixedReplayRunner.training_steps', int(updates) * period)
  record = command_line.start_run(
    agent, given, replay_dir=store_directory.absolute(replay_data_dir)
  )
  games.check_game(replay_data_dir, games.configured_game())
  needed = initial_weights.needed(given, record, REGISTRY)
  create = create_agent or functools.partial(
    run_experiment.create_offline_agent, init_checkpoint_dir=needed
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
  gin_files: _Path | Iterable[_Path] | None = (),
  gin_bindings: str | Iterable[str] | Mapping[str, Any] | None = (),
  seed: int | None = None,
  init_checkpoint_dir: _Path | None = None,
  accept_changes: bool = False,
) -> 'TrainedRun':
  """Trains an agent on logged data, as `python -m batch_rl.fixed_replay.train` does.

  The same call resumes a stopped run bit-exactly, and returns a finished one; so does the
  command with the same settings. Ctrl-C, or a notebook's stop button, saves
  first. gin's configuration, TensorFlow's default graph and the states of `random` and
  `numpy.random` are afterwards as before. As with all of this package's agents,
  TensorFlow is in graph mode from then on.

  Args:
    agent: Name of one of the package's gin files, e.g. 'rem'; or a class of your own,
      or its name as 'my_module.MyAgent'. A class needs no `@gin.configurable`; one that
      a notebook defines works in that notebook only.
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
      holds a run with different settings. It has one line that says what to do.
    FloatingPointError: If the loss is not finite.
    MemoryError: If the machine or the device runs out of memory.
    OSError: If a file cannot be read or written.
    KeyboardInterrupt: After Ctrl-C or SIGTERM. The run has saved if it was training,
      unless Ctrl-C was pressed twice.
  """
  for name, count in (('iterations', iterations), ('updates', updates)):
    if count is not None:
      row_sampler.check_counts(**{name: count})
  if seed is not None and not settings.is_integer(seed):
    raise ValueError(f'seed={seed!r} is not an integer.')
  lines = _as_list(gin_bindings)
  if wrong := [line for line in lines if not isinstance(line, str)]:
    raise ValueError(
      f'gin_bindings: {wrong[0]!r} is not a line such as "A.b = 3".'
    )
  given = types.SimpleNamespace(
    replay_dir=os.path.expanduser(data),
    gin_files=[*map(os.fspath, _as_list(gin_files))],
    gin_bindings=lines,
    module_dirs=[],
    seed=None if seed is None else int(seed),
    init_checkpoint_dir=init_checkpoint_dir and os.fspath(init_checkpoint_dir),
    accept_changes=accept_changes,
  )
  if iterations is not None:
    given.gin_bindings.append(f'FixedReplayRunner.num_iterations={iterations}')
  with _call() as call:
    given.config, given.agent_name = _names(agent)
    base_dir = base_dir or _default_directory(agent, given.replay_dir)
    given.base_dir = os.path.expanduser(base_dir)
    # They are checked before TensorFlow is imported, which takes seconds.
    run_directories.find_data(given.replay_dir)
    command_line.read_gin(REGISTRY, given)
    import tensorflow as tf

    with tf.Graph().as_default():
      with contextlib.closing(make_runner(given, updates=updates)) as runner:
        command_line.warn_of_unused_bindings()
        call.mistakes = command_line.FAILURES
        runner.run_experiment()
  return TrainedRun(given.base_dir)


def _as_list(given: Any) -> list[Any]:
  """Returns paths or bindings as a list."""
  if isinstance(given, Mapping):
    return [f'{n} = {syntax.format_value(v)}' for n, v in given.items()]
  return [given] if isinstance(given, str | os.PathLike) else [*(given or ())]


def _names(agent: str | type) -> tuple[str | None, str | None]:
  """Returns the values of `--config` and `--agent_name`."""
  if isinstance(agent, type):
    name = registry.name_of(agent)
    if REGISTRY.find(name) is not agent:
      raise ValueError(f'{name} is another class now: give that one.')
    return None, name
  if not isinstance(agent, str) or agent.endswith('.gin'):
    raise ValueError(
      f'agent={agent!r} is neither a name nor a class: give e.g. "rem", and a file '
      'as gin_files.'
    )
  if user_modules.is_dotted(agent):
    return None, agent
  return choices.choose('agent', agent, REGISTRY.configs), None


def _default_directory(agent: str | type, data: _Path) -> str:
  name = agent.__name__ if isinstance(agent, type) else agent
  run = os.path.abspath(data).removesuffix(f'{os.sep}{shard_files.REPLAY_LOGS}')
  return os.path.join('runs', name.rpartition('.')[2], *run.split(os.sep)[-2:])


@contextlib.contextmanager
def _call() -> Iterator[types.SimpleNamespace]:
  """Context with a gin configuration of its own, after which the process is as before.

  Errors in `mistakes` of the result are raised as one line that names the arguments.
  """
  call = types.SimpleNamespace(mistakes=command_line.MISTAKES)
  states = seeding.random_states()
  try:
    with run_record.released_locks(), gin_internals.separate_config():
      yield call
  except interruption.Interrupted as stopped:
    message = str(stopped).replace('the same command', 'the same call')
    raise KeyboardInterrupt(message) from None
  except Exception as error:
    kept = shard_reader.DataError, OSError, MemoryError, FloatingPointError
    is_kept = isinstance(error, kept) or not isinstance(error, call.mistakes)
    if is_kept or user_modules.is_raised_by_user(error):
      raise
    line = re.sub('--(config|agent_name)', 'agent', programs.one_line(error))
    line = line.replace('--replay_dir', 'data')
    line = line.replace('--evaluation_steps', 'steps')
    line = re.sub(r'(?<!\S)--(?=[a-z])', '', line)
    raise programs.MistakeError(line) from None
  finally:
    seeding.restore_random_states(states)


class TrainedRun(NamedTuple):
  """A run of offline training, made by `train` or by the command.

  Attributes:
    base_dir: Directory of the run.
  """

  base_dir: str

  @property
  def evaluations(self) -> list[dict[str, Any]]:
    """The run's evaluations in order of iteration, as in its `evaluations/*.json`.

    Each has the iteration, the mean_return, the episodes, and diagnostics.

    Raises:
      ValueError: If the folder has no run of offline training, or a file is damaged.
    """
    recorded_run.read_record(self.base_dir)
    return list(evaluations_lib.read(self.base_dir).values())

  def evaluate(
    self,
    steps: int | None = None,
    video: _Path | None = None,
    checkpoints: str = 'last',
  ) -> list[evaluations_lib.Episode]:
    """Evaluates checkpoints, as `python -m batch_rl.fixed_replay.evaluate` does.

    Args:
      steps: Minimum number of agent steps for each checkpoint; None for the run's.
      video: File name, .mp4 or .gif, for the best episode of the last checkpoint.
      checkpoints: 'last', 'best' (by the run's own evaluations), 'all', or iterations,
        e.g. '3,7-9'.

    Returns:
      The episodes of the last checkpoint.

    Raises:
      ValueError: If there is no such checkpoint or run, or an argument is wrong.
    """
    given = types.SimpleNamespace(
      base_dir=self.base_dir,
      checkpoints=str(checkpoints),
      evaluation_steps=steps,
      environments=None,
      seed=0,
      video=video and os.fspath(video),
      module_dirs=[],
      gin_bindings=[],
    )
    if steps is not None:
      row_sampler.check_counts(steps=steps)
    import tensorflow as tf

    with _call(), tf.Graph().as_default():
      return evaluate.prepare(given)()

  def acting_agent(self) -> contextlib.AbstractContextManager[Any]:
    """Returns a context with the agent of the last checkpoint, which only acts.

    `agent.begin_episode(observation)` and `agent.step(reward, observation)` return an
    action, and stack frames. gin has the run's configuration within.
    """
    [last] = recorded_run.intact_checkpoints(self.base_dir, 'last').values()
    return recorded_run.acting_agent(self.base_dir, last)
