"""What a run is and what it gave, read from its `base_dir`.

Ours tell all of it (`run.json`, `evaluations/`); of a run of Dopamine there are the
logs only, and somebody has to say which agent and game it was.
"""

import dataclasses
import functools
import hashlib
import math
import os
import re
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from batch_rl.atari import roms
from batch_rl.runs import evaluations as evaluations_lib
from batch_rl.runs import run_record
from batch_rl.utils import files, safe_pickle

_LOGS = 'logs'
# What of a configuration makes no other agent: where it runs, how long, how fast.
_IMMATERIAL = re.compile(
  r'(\.game_name|\.agent_name|\.environment_name|\.num_iterations|\.tf_device'
  r'|\.updates_per_run|\.evaluation_environments|\.prefetch\w*|\.cache_dir'
  r'|\.preload|\.deterministic|\.collectors|\.summary_writing_frequency'
  r'|\.max_tf_checkpoints_to_keep|\.jit_compile)$'
  r'|^(run_seed|Checkpoints|gym_lib|\w*[Rr]unner\.evaluation_steps)\b'
  # What is in the protocol.
  r'|\.(epsilon_eval|sticky_actions|max_steps_per_episode|rom_set|subset)$'
)
# An offline agent has these parameters, and they mean nothing.
_ONLINE_ONLY = re.compile(
  r'\.(epsilon_train|epsilon_decay_period|min_replay_history)$'
)
_ITERATIONS = 200  # of Dopamine's runner, unless it is told otherwise
_STRATEGIES = {
  'multi_head_dqn': {
    'IDENTITY': 'Ensemble-DQN',
    'AVERAGE': 'Averaged Ensemble-DQN',
    'STOCHASTIC': 'REM',
  },
  'multi_network_dqn': {
    'IDENTITY': 'Ensemble-DQN (networks)',
    'AVERAGE': 'Averaged Ensemble-DQN (networks)',
    'STOCHASTIC': 'REM (networks)',
  },
}
_DEFAULT_STRATEGIES = {
  'multi_head_dqn': 'IDENTITY',
  'multi_network_dqn': 'STOCHASTIC',
}
_NAMES = {'c51': 'C51', 'quantile': 'QR-DQN', 'random': 'Random'}
# In the paper's order; others follow.
AGENTS = (
  'DQN (Nature)',
  'DQN (Adam)',
  'C51',
  'QR-DQN',
  'Ensemble-DQN',
  'Averaged Ensemble-DQN',
  'REM',
)


@dataclasses.dataclass(frozen=True)
class Run:
  """A run and its evaluations.

  Attributes:
    directory: its `base_dir`.
    agent: what the field calls it, e.g. `REM`.
    game: in CamelCase, or the name of another environment.
    returns: float (iterations,): the mean return of each evaluation, unclipped.
    episodes: int (iterations,): of how many episodes; 0 where that is unknown.
    planned: iterations that it was told to do; None if unknown.
    seed: as text; '' if unknown.
    data: which log it was trained on, e.g. `Pong/1`; '' if it made its data.
    config: bindings that make the agent what it is, `{name: value}`.
    protocol: how it was evaluated and on what data, `{what: value}`: runs that
      differ in any of it are not averaged. '?' where it is unknown.
    about: what else is known, for the record.
  """

  directory: str
  agent: str
  game: str
  returns: np.ndarray
  episodes: np.ndarray
  planned: int | None = None
  seed: str = ''
  data: str = ''
  config: Mapping[str, str] = dataclasses.field(default_factory=dict)
  protocol: Mapping[str, str] = dataclasses.field(default_factory=dict)
  about: Mapping[str, Any] = dataclasses.field(default_factory=dict)

  @property
  def done(self) -> int:
    """Iterations that have been evaluated."""
    return len(self.returns)

  @property
  def is_finished(self) -> bool:
    """Whether it has done what it was told to do, as far as that is known."""
    return self.planned is None or self.done >= self.planned

  @functools.cached_property
  def config_hash(self) -> str:
    """Of what makes the agent what it is."""
    text = '\n'.join(f'{k} = {v}' for k, v in sorted(self.config.items()))
    return hashlib.sha256(text.encode()).hexdigest()[:8]


Excluded = tuple[str, str]  # a directory, and why it does not count


class NoResults(ValueError):
  """A directory from which there is nothing to report; the message says why."""


def find(directories: Iterable[str]) -> tuple[list[str], list[Excluded]]:
  """All `base_dir`s in directories, each once, and what could not be looked into.

  Raises:
    ValueError: if a directory is not there.
  """
  found: dict[str, str] = {}
  unread: list[Excluded] = []

  def note(error):
    unread.append((str(error.filename), f'cannot be read: {error.strerror}'))

  for directory in directories:
    if not os.path.isdir(directory):
      raise ValueError(f'{directory} is not a directory on this machine.')
    seen = set()
    for path, subdirectories, names in os.walk(
      directory, onerror=note, followlinks=True
    ):
      real = os.path.realpath(path)
      if real in seen:  # links can go round in circles
        subdirectories.clear()
        continue
      seen.add(real)
      subdirectories.sort()
      if run_record.FILE_NAME in names or _has_logs(path):
        found.setdefault(real, os.path.normpath(path))
        inside = {'checkpoints', _LOGS, evaluations_lib.DIRECTORY}
        subdirectories[:] = [s for s in subdirectories if s not in inside]
  return list(found.values()), unread


def _has_logs(directory: str) -> bool:
  try:
    return bool(_log_numbers(directory))
  except OSError:
    return True  # whoever reads it says what the matter is


def read(directory: str, agent: str = '', game: str = '') -> Run:
  """Reads a run.

  Args:
    directory: its `base_dir`.
    agent: what to call it if it does not say.
    game: likewise.

  Returns:
    The run.

  Raises:
    NoResults: if there are no evaluations, or they are not whole; or if neither
      the run nor the caller says what it is.
  """
  try:
    return _read(directory, agent, game)
  except NoResults:
    raise
  except OSError as error:
    raise NoResults(f'it cannot be read: {files.reason(error)}') from error
  except ValueError as error:
    raise NoResults(str(error)) from error
  except (TypeError, AttributeError, LookupError) as error:
    # Whatever is not what a run writes.
    raise NoResults(
      f'it is damaged ({type(error).__name__}: {error})'
    ) from error


def _read(directory: str, agent: str, game: str) -> Run:
  record = files.read_json(os.path.join(directory, run_record.FILE_NAME))
  if not isinstance(record, dict | None):
    raise NoResults(f'its {run_record.FILE_NAME} is no record of a run')
  record = record or {}
  # A null is nothing.
  data, environment = record.get('data') or {}, record.get('environment') or {}
  versions = record.get('versions') or {}
  bindings = _bindings(record.get('gin_config') or '')
  named = {
    'agent': _agent(record, bindings) or agent,
    'game': _game(environment, bindings) or game or _game_in_path(directory),
  }
  for what, value in named.items():
    if not value:
      raise NoResults(
        f"it does not say its {what}: name both with --name '{directory}="
        "AGENT/GAME'"
      )
  returns, episodes = _curve(_evaluations(directory))
  planned = None
  if record:
    planned = _number(_value(bindings, 'num_iterations'), _ITERATIONS)
  return Run(
    directory,
    named['agent'].lstrip('_'),  # matplotlib hides names with an underscore
    _canonical(named['game']),
    returns[:planned],
    episodes[:planned],
    planned=planned,
    seed=str(record.get('seed', '')),
    data=_data(record),
    config=_config(record, bindings),
    protocol=_protocol(record, environment, data, bindings),
    about={
      'run_id': record.get('run_id', ''),
      'replay_dir': record.get('replay_dir') or '',
      'subset_hash': data.get('subset_hash', ''),
      'environments': record.get('evaluation_environments', ''),
      'changes': len(record.get('changes') or ()),
      **{
        name: versions.get(name, '')
        for name in ('batch_rl', 'tensorflow', 'ale-py')
      },
    },
  )


def _config(record: Mapping, bindings: Mapping[str, str]) -> dict[str, str]:
  """What makes an agent what it is."""
  kept = {
    name: value
    for name, value in bindings.items()
    if not _IMMATERIAL.search(name)
    and not ('replay_dir' in record and _ONLINE_ONLY.search(name))
  }
  if record.get('init_checkpoint_dir'):
    kept['weights'] = "another run's"
  return kept


def _curve(
  evaluations: dict[int, tuple[float, int]],
) -> tuple[np.ndarray, np.ndarray]:
  """Returns and numbers of episodes, of iterations 0 to the last."""
  if not evaluations:
    raise NoResults('it has no evaluations (yet)')
  if missing := set(range(max(evaluations) + 1)) - evaluations.keys():
    raise NoResults(f'it lacks the evaluation of iteration {min(missing)}')
  ordered = [evaluations[i] for i in sorted(evaluations)]
  returns = np.array([mean for mean, _ in ordered], float)
  if not np.isfinite(returns).all():
    first = int(np.flatnonzero(~np.isfinite(returns))[0])
    raise NoResults(f'the return of iteration {first} is {returns[first]}')
  return returns, np.array([count for _, count in ordered], int)


def _evaluations(directory: str) -> dict[int, tuple[float, int]]:
  """Mean returns and numbers of episodes, `{iteration: (mean, count)}`.

  Raises:
    ValueError: if a file is damaged.
  """
  written = evaluations_lib.read(directory)
  if written:
    found = {}
    for iteration, content in written.items():
      mean = content.get('mean_return')
      if mean is None:
        raise ValueError(f'the evaluation of iteration {iteration} is empty')
      found[iteration] = float(mean), len(content.get('episodes', ()))
    return found
  numbers = _log_numbers(directory)
  if not numbers:
    return {}
  path = os.path.join(directory, _LOGS, f'log_{max(numbers)}')
  with open(path, 'rb') as file:
    logged = safe_pickle.loads(file.read())
  found = {}
  for name, statistics in logged.items():
    match = re.fullmatch(r'iteration_(\d+)', str(name))
    if match and 'eval_average_return' in statistics:
      mean = statistics['eval_average_return'][-1]
      count = len(statistics.get('eval_episode_returns', ()))
      found[int(match[1])] = float(mean), count
  return found


def _log_numbers(directory: str) -> list[int]:
  path = os.path.join(directory, _LOGS)
  names = os.listdir(path) if os.path.isdir(path) else []
  return [
    int(m[1]) for name in names if (m := re.fullmatch(r'log_(\d+)', name))
  ]


def _bindings(text: str) -> dict[str, str]:
  """Lines `name = value` of a configuration, macros replaced by their values."""
  lines = text.replace('\\\n', ' ').split(
    '\n'
  )  # a value may be on the next line
  pairs = (line.split(' = ', 1) for line in lines if ' = ' in line)
  found = {
    name.strip(): value.strip()
    for name, value in pairs
    if not name.startswith('#')
  }
  return {
    name: found.get(value.removeprefix('%'), value)
    if value.startswith('%')
    else value
    for name, value in found.items()
  }


def _value(bindings: Mapping[str, str], name: str) -> str:
  """What a parameter of any configurable is bound to; '' if it is not."""
  for key, value in bindings.items():
    if '.' in key and key.rsplit('.', 1)[-1] == name:
      return value.strip('\'"')
  return ''


def _number(text: str, default: int) -> int:
  try:
    return int(float(text))
  except ValueError:
    return default


def _agent(record: Mapping, bindings: Mapping[str, str]) -> str:
  name = record.get('agent', '')
  if name == 'dqn':
    optimizer = re.search(
      r'(\w+?)(Optimizer)?\(', _value(bindings, 'optimizer')
    )
    kind = optimizer[1] if optimizer else 'RMSProp'  # as Dopamine's
    name = f'DQN ({"Nature" if kind == "RMSProp" else kind})'
  elif name in _STRATEGIES:
    strategy = _value(bindings, 'transform_strategy')
    names = _STRATEGIES[name]
    name = names.get(strategy or _DEFAULT_STRATEGIES[name], strategy)
  else:
    name = _NAMES.get(name, name)
  is_online = name and name != 'Random' and 'replay_dir' not in record
  return f'{name}, online' if is_online else name


def _game(environment: Mapping, bindings: Mapping[str, str]) -> str:
  return (
    environment.get('game')
    or _value(bindings, 'game_name')
    or _value(bindings, 'environment_name')
  )


def _game_in_path(directory: str) -> str:
  for part in reversed(os.path.abspath(directory).split(os.sep)):
    if (game := _canonical(part)) in roms.games():
      return game
  return ''


def _canonical(game: str) -> str:
  """In CamelCase if it is a game of Atari's, as it is otherwise."""
  try:
    return roms.canonical_name(game)
  except ValueError:
    return game


def _data(record: Mapping) -> str:
  """The last two parts of the path of a run's shards, `<Game>/<run>`."""
  parts = os.path.normpath(record.get('replay_dir') or '').split(os.sep)
  if parts[-1] == 'replay_logs':
    parts = parts[:-1]
  return '/'.join(part for part in parts[-2:] if part not in ('.', '..'))


def _protocol(
  record: Mapping,
  environment: Mapping,
  data: Mapping,
  bindings: Mapping[str, str],
) -> dict[str, str]:
  if not record:
    names = ('subset', 'epsilon', 'sticky', 'rom', 'frame cap', 'steps')
    return dict.fromkeys(names, '?')
  most_steps = _number(_value(bindings, 'max_steps_per_episode'), 27_000)
  most_frames = environment.get('max_num_frames_per_episode') or math.inf
  return {
    'subset': str(data.get('subset') or 'all'),
    'epsilon': _value(bindings, 'epsilon_eval') or '0.001',
    'sticky': str(environment.get('repeat_action_probability', '?')),
    'rom': str(environment.get('rom_md5', '?')),
    'frame cap': str(min(most_frames, 4 * most_steps)),
    'steps': _value(bindings, 'evaluation_steps') or '125000',
  }
