"""Damaged checkpoints of offline and online runs, resumed and evaluated."""

import batch_rl.agents  # noqa: F401  isort: skip  (before Dopamine)

import functools
import gzip
import io
import os
import shutil
import types
from typing import Any
from unittest import mock

import gin
import numpy as np
import tensorflow as tf

from batch_rl.baselines import run_experiment as online
from batch_rl.baselines import train as online_train
from batch_rl.dataset.shards import shard_files
from batch_rl.fixed_replay import evaluate, train, vector_evaluation
from batch_rl.fixed_replay import run_experiment as offline
from batch_rl.runs import checkpoints, evaluations
from batch_rl.tests import cartpole, gin_lines, programs
from benchmarks.fuzz import mutations, outcomes

_SEED = 1
_CARTPOLE = """
import dopamine.discrete_domains.gym_lib
import gin.tf.external_configurables
create_gym_environment.environment_name = 'CartPole'
create_gym_environment.version = 'v1'
{create}.agent_name = 'dqn'
{agent}.observation_shape = %gym_lib.CARTPOLE_OBSERVATION_SHAPE
{agent}.observation_dtype = %gym_lib.CARTPOLE_OBSERVATION_DTYPE
{agent}.stack_size = %gym_lib.CARTPOLE_STACK_SIZE
{agent}.network = @CartpoleDQNNetwork
{agent}.optimizer = @tf.train.AdamOptimizer()
{agent}.update_period = 2
{agent}.target_update_period = 6
tf.train.AdamOptimizer.learning_rate = 0.001
{buffer}.batch_size = 8
{runner}.create_environment_fn = @gym_lib.create_gym_environment
{runner}.num_iterations = 3
{runner}.training_steps = 40
{runner}.evaluation_steps = 20
{runner}.max_steps_per_episode = 50
"""
_BINDINGS = {
  'offline': _CARTPOLE.format(
    create='create_offline_agent',
    agent='FixedReplayDQNAgent',
    buffer='WrappedFixedReplayBuffer',
    runner='FixedReplayRunner',
  )
  + """
FixedReplayDQNAgent.updates_per_run = 5
Checkpoints.every_steps = 10
""",
  'online': _CARTPOLE.format(
    create='create_online_agent',
    agent='LoggedDQNAgent',
    buffer='WrappedLoggedReplayBuffer',
    runner='LoggedRunner',
  )
  + """
LoggedDQNAgent.min_replay_history = 20
WrappedLoggedReplayBuffer.shard_capacity = 40
WrappedLoggedReplayBuffer.replay_capacity = 70
""",
}
_MUTATIONS = mutations.ANY_SIZE
_JSON = {**mutations.ANY_SIZE, 'value changed': mutations.change_value}


def bindings(kind: str) -> list[str]:
  """Returns the gin bindings of the 'offline' or the 'online' run."""
  return [line for line in _BINDINGS[kind].split('\n') if line]


def make(directory: str) -> None:
  """Trains an offline and an online run with several checkpoints."""
  data = os.path.join(directory, 'data', 'CartPole', '1')
  cartpole.write_log(os.path.join(data, shard_files.REPLAY_LOGS))
  common = {'gin_files': [], 'seed': _SEED}
  programs.run_here(
    train,
    base_dir=os.path.join(directory, 'offline', 'run'),
    replay_dir=data,
    gin_bindings=bindings('offline'),
    **common,
  )
  programs.run_here(
    online_train,
    base_dir=os.path.join(directory, 'online', 'run'),
    replay_log_dir=os.path.join(directory, 'online'),
    gin_bindings=bindings('online'),
    **common,
  )


def resume(kind: str, directory: str, data: str) -> dict[str, Any]:
  """Resumes a run as the programs do; returns its state instead of going on.

  Args:
    kind: 'offline' or 'online'.
    directory: Directory of the run, above its `base_dir`.
    data: Run directory of the data of an offline run.
  """
  gin.clear_config()
  base_dir = os.path.join(directory, 'run')
  with tf.Graph().as_default():
    gin_lines.load([], [*bindings(kind), f'run_seed.seed = {_SEED}'])
    if kind == 'offline':
      data_dir = os.path.join(data, shard_files.REPLAY_LOGS)
      runner = offline.FixedReplayRunner(
        base_dir,
        functools.partial(
          offline.create_offline_agent, replay_data_dir=data_dir
        ),
      )
    else:
      runner = online.LoggedRunner(
        base_dir,
        functools.partial(online.create_online_agent, replay_log_dir=directory),
      )
    try:
      return _state(runner)
    finally:
      runner._sess.close()


def _state(runner) -> dict[str, Any]:
  """Returns everything that a checkpoint restores."""
  agent = runner._agent
  found: dict[str, Any] = {
    'iteration': runner._start_iteration,
    'agent steps': agent.training_steps,
    **_flatten('statistics', runner._logger.data),
    **_flatten('iteration state', runner._partial),
    **_flatten('variable', cartpole.values(agent)),
  }
  if isinstance(runner, online.LoggedRunner):
    memory = agent._replay.memory
    found |= _flatten('memory', memory._store)
    found['memory add_count'] = int(memory.add_count)
    found['rows of the log'] = memory.log.rows
    found |= _flatten('observation', vars(agent).get('_observation'))
  return found


def _flatten(name: str, value: Any) -> dict[str, Any]:
  """Returns nested dictionaries and sequences as one dictionary."""
  if isinstance(value, dict):
    items = value.items()
  elif isinstance(value, list | tuple):
    items = enumerate(value)
  else:
    return {name: value}
  found = {name: len(value)}
  for key, inner in items:
    found |= _flatten(f'{name} {key}', inner)
  return found


def evaluated(base_dir: str, chosen: str) -> dict[str, Any]:
  """Runs `evaluate` without playing; returns the weights of each iteration."""
  found: dict[str, Any] = {}
  weights: dict[str, Any] = {}

  def play(environments, act, *arguments):
    del environments, arguments
    weights.update(cartpole.values(act.__self__))
    return [evaluations.Episode(0, 1, 0.0, 0.0)]

  def write(base_dir, iteration, *arguments, **about):
    del base_dir, arguments, about
    found.update(_flatten(f'{iteration}', dict(weights)))
    return ''

  class Options(types.SimpleNamespace):
    """Flags; all others have their default, None."""

    def __getattr__(self, name):
      return None

  options = Options(
    base_dir=base_dir,
    checkpoints=chosen,
    seed=0,
    gin_bindings=[],
    module_dirs=[],
  )
  gin.clear_config()
  tf.compat.v1.reset_default_graph()
  with (
    mock.patch.object(vector_evaluation, 'play_episodes', play),
    mock.patch.object(evaluations, 'write', write),
  ):
    evaluate.main(options)
  return found


class Cases:
  """Cases with damaged checkpoints.

  Args:
    original: Directory that `make` filled.
    scratch: Directory for damaged copies.
  """

  def __init__(self, original: str, scratch: str):
    self._original, self._scratch = original, scratch
    self._data = os.path.join(original, 'data', 'CartPole', '1')

  def draw(self, random: np.random.Generator) -> outcomes.Case:
    """Returns a random case."""
    kind = mutations.choose(random, ['offline', 'offline', 'online'])
    if kind == 'offline' and random.random() < 0.15:
      return self._draw_data(random)
    root = os.path.join(self._original, kind)
    folders = [
      os.path.relpath(found.directory, root)
      for found in checkpoints.find(os.path.join(root, 'run'))
    ]
    # Sometimes an earlier checkpoint, within an iteration, is the newest.
    removed = folders[len(folders) - int(random.random() < 0.4) :]
    folders = folders[: len(folders) - len(removed)]
    # Description, path and new content of each file; None for no file.
    damages: list[tuple[str, str, bytes | None]] = []
    for folder in reversed(folders):
      if random.random() < 0.12:
        damages += self._draw_exchange(random, kind, folder, folders)
      else:
        damages.append(self._draw_damage(random, kind, folder, folders))
      if random.random() < 0.7:
        break
    if kind == 'online' and random.random() < 0.2:
      damages = [self._draw_log_damage(random)]
    how = f'--checkpoints={mutations.choose(random, ["last", "all"])}'
    how = how if kind == 'offline' and random.random() < 0.35 else 'resume'
    described = [text for text, _, _ in damages if text]
    return outcomes.Case(
      f'{kind}, {how}: {"; ".join(described)}',
      functools.partial(self._check, kind, how, removed, damages),
    )

  def _draw_damage(self, random, kind, folder, folders):
    root = os.path.join(self._original, kind)
    names = sorted(os.listdir(os.path.join(root, folder)))
    name = mutations.choose(random, names)
    path = os.path.join(folder, name)
    content = _read(os.path.join(root, path))
    others = [
      os.path.join(other, same)
      for other in folders
      if other != folder
      for same in os.listdir(os.path.join(root, other))
      if _without_numbers(same) == _without_numbers(name)
      and _read(os.path.join(root, other, same)) != content
    ]
    if others and random.random() < 0.25:
      other = mutations.choose(random, sorted(others))
      changed = _read(os.path.join(root, other))
      return f'{path} exchanged for {other}', path, changed
    if name != 'checkpoint.json' and random.random() < 0.1:
      return f'{path} removed', path, None
    table = _JSON if name.endswith('.json') else _MUTATIONS
    mutation, changed = mutations.mutate(content, random, table)
    return f'{path} {mutation}', path, changed

  def _draw_exchange(self, random, kind, folder, folders):
    """Returns all files of a checkpoint, or all its weights, from another one."""
    root = os.path.join(self._original, kind)
    same = {
      _without_numbers(name): name
      for name in os.listdir(os.path.join(root, folder))
    }
    other = mutations.choose(random, [f for f in folders if f != folder])
    prefix = mutations.choose(random, ['', 'tf_'])
    names = [
      name
      for name in sorted(os.listdir(os.path.join(root, other)))
      if name.startswith(prefix) and _without_numbers(name) in same
    ]
    text = f'{folder}/{prefix}* exchanged for {other}/{prefix}*'
    return [
      (
        '' if i else text,
        os.path.join(folder, same[_without_numbers(name)]),
        _read(os.path.join(root, other, name)),
      )
      for i, name in enumerate(names)
    ]

  def _draw_log_damage(self, random):
    root = os.path.join(self._original, 'online')
    paths = sorted(
      os.path.relpath(os.path.join(folder, name), root)
      for folder, _, names in os.walk(
        os.path.join(root, shard_files.REPLAY_LOGS)
      )
      for name in names
    )
    path = mutations.choose(random, paths)
    content = _read(os.path.join(root, path))
    mutation, changed = mutations.mutate(content, random, _MUTATIONS)
    return f'{path} {mutation}', path, changed

  def _draw_data(self, random):
    """Returns a case in which the data of a run differs, in a valid file."""
    folder = os.path.join(self._data, shard_files.REPLAY_LOGS)
    suffixes = shard_files.list_suffixes(folder)
    suffix = mutations.choose(random, suffixes)
    name = mutations.choose(random, ('observation', *shard_files.COLUMNS))
    file = shard_files.file_name(name, suffix)
    if random.random() < 0.5:
      other = mutations.choose(random, [s for s in suffixes if s != suffix])
      changed = _read(os.path.join(folder, shard_files.file_name(name, other)))
      description = f'exchanged for that of shard {other}'
    else:
      array = np.load(
        io.BytesIO(gzip.decompress(_read(os.path.join(folder, file))))
      )
      row = int(random.integers(20))
      array[row] = 1 - array[row]
      stream = io.BytesIO()
      np.save(stream, array)
      changed = gzip.compress(stream.getvalue())
      description = f'row {row} changed'
    return outcomes.Case(
      f'offline, resume: data {file} {description}',
      functools.partial(self._check_data, file, changed),
    )

  def _check(self, kind, how, removed, damages) -> outcomes.Outcome:
    # Both are found with intact copies, so before the damaged one is made.
    states = self._expected_states(kind) if how == 'resume' else []
    weights = self._expected_weights() if how != 'resume' else {}
    directory = self._copy(kind, removed)
    for _, path, content in damages:
      _write(os.path.join(directory, path), content)
    if how != 'resume':
      return self._check_evaluate(how, directory, weights)
    with outcomes.warnings() as logged:
      try:
        found = resume(kind, directory, self._data)
      except (ValueError, OSError) as error:
        return outcomes.Outcome(outcomes.DETECTED, str(error)[:300])
      except Exception as error:
        return outcomes.crash(how, error)
    newest = len(states) - 1 - len(removed)
    expected = states[newest]
    if not outcomes.differences(found, expected):
      return outcomes.Outcome(outcomes.HARMLESS)
    said = [line for line in logged if 'cannot be used' in line]
    for older in states[:newest]:
      if said and not outcomes.differences(found, older):
        return outcomes.Outcome(outcomes.DETECTED, said[0])
    wrong = outcomes.differences(found, expected)
    return outcomes.Outcome(
      outcomes.SILENT, f'resumed with other {", ".join(wrong[:4])}'
    )

  def _check_evaluate(self, how, directory, expected) -> outcomes.Outcome:
    base_dir = os.path.join(directory, 'run')
    found: dict[str, Any] = {}
    outcome, _, err = outcomes.run_program(
      'evaluate',
      lambda: found.update(evaluated(base_dir, how.partition('=')[2])),
    )
    if outcome.verdict != outcomes.HARMLESS:
      return outcome
    wrong = [
      name for name in outcomes.differences(found, expected) if name in found
    ]
    if wrong:
      return outcomes.Outcome(
        outcomes.SILENT, f'evaluated with other {", ".join(wrong[:4])}'
      )
    intact = self._expected_names(how, directory)
    if intact - found.keys() and 'cannot be used' not in err:
      return outcomes.Outcome(
        outcomes.SILENT, 'left out a checkpoint, and did not say so'
      )
    return outcome

  def _expected_names(self, how: str, directory: str) -> set[str]:
    """Returns the iterations to evaluate, as keys of `evaluated`."""
    numbers = [
      found.position.number
      for found in checkpoints.find(os.path.join(directory, 'run'))
      if not found.position.steps
    ]
    return set(map(str, numbers if how.endswith('all') else numbers[-1:]))

  def _check_data(self, file, content) -> outcomes.Outcome:
    directory = self._copy('offline', [])
    data = os.path.join(self._scratch, 'data')
    shutil.copytree(self._data, data)
    _write(os.path.join(data, shard_files.REPLAY_LOGS, file), content)
    with outcomes.warnings() as logged:
      try:
        resume('offline', directory, data)
      except (ValueError, OSError) as error:
        return outcomes.Outcome(outcomes.DETECTED, str(error)[:300])
      except Exception as error:
        return outcomes.crash('resume', error)
    return outcomes.Outcome(
      outcomes.SILENT, f'resumed on other data; warnings: {logged[:2]}'
    )

  def _copy(self, kind: str, removed: list[str]) -> str:
    """Returns a new copy of a run without some checkpoints."""
    shutil.rmtree(self._scratch, ignore_errors=True)
    directory = os.path.join(self._scratch, kind)
    shutil.copytree(os.path.join(self._original, kind), directory)
    for folder in removed:
      shutil.rmtree(os.path.join(directory, folder))
    return directory

  @functools.cache  # noqa: B019
  def _expected_states(self, kind: str) -> list[dict[str, Any]]:
    """Returns the state at each checkpoint, oldest first."""
    root = os.path.join(self._original, kind)
    folders = [
      os.path.relpath(found.directory, root)
      for found in checkpoints.find(os.path.join(root, 'run'))
    ]
    states = []
    for count in range(len(folders)):
      directory = self._copy(kind, [])
      for folder in folders[count + 1 :]:
        shutil.rmtree(os.path.join(directory, folder))
      states.append(resume(kind, directory, self._data))
    return states

  @functools.cache  # noqa: B019
  def _expected_weights(self) -> dict[str, Any]:
    """Returns the weights of all checkpoints, as `evaluated` does."""
    directory = self._copy('offline', [])
    return evaluated(os.path.join(directory, 'run'), 'all')


def _without_numbers(name: str) -> str:
  return ''.join(letter for letter in name if not letter.isdigit())


def _read(path: str) -> bytes:
  with open(path, 'rb') as stream:
    return stream.read()


def _write(path: str, content: bytes | None) -> None:
  os.remove(path)
  if content is not None:
    with open(path, 'wb') as stream:
      stream.write(content)
