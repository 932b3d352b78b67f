"""Settings and evaluations of a run, read from its run directory.

Our runs are self-describing (`run.json`, `evaluations/`). Dopamine's runs have logs
only, so the user has to name the agent and the game.
"""

import contextlib
import dataclasses
import functools
import math
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from batch_rl.dataset import game_names
from batch_rl.runs import agent_names, run_record
from batch_rl.runs import evaluations as evaluations_lib
from batch_rl.runs.bindings import settings as settings_lib
from batch_rl.utils import files, programs, safe_pickle
from batch_rl.utils.user_code import function_records

_LOGS = evaluations_lib.LOGS
# Entries of `environment` from this package; others are a user's.
_OF_GAMES = (
  'game num_actions engine engine_version rom_md5 rom_set rom_same_in_both_sets '
  'frame_skip max_num_frames_per_episode repeat_action_probability difficulty_ramping'
).split()


@dataclasses.dataclass(frozen=True)
class RunResults:
  """Settings and evaluations of a run.

  Attributes:
    directory: Run directory.
    agent: Name of the agent in the literature, e.g. `REM`.
    game: Name of the game in CamelCase, or of another environment.
    returns: Mean unclipped return of each evaluation, float (iterations,).
    episodes: Number of episodes of each evaluation, int (iterations,); 0 if unknown.
    planned: Configured number of iterations; None if unknown.
    seed: Seed as text; '' if unknown or the run is unseeded.
    data: Run of the dataset, e.g. `Pong/1`; '' for online training.
    config: Gin bindings that define the method, `{name: value}`.
    protocol: Conditions of data and evaluation, `{name: value}`, '?' if unknown. Runs
      with different protocols are not averaged.
    provenance: Further facts for the record, `{name: value}`.
    diagnostics: Diagnostics of each iteration (see `fixed_replay.agents.probe`),
      `{name: float (iterations,)}`; NaN where an iteration has none.
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
  provenance: Mapping[str, Any] = dataclasses.field(default_factory=dict)
  diagnostics: Mapping[str, np.ndarray] = dataclasses.field(
    default_factory=dict
  )

  def first(self, iterations: int | None) -> 'RunResults':
    """Returns the results of the first iterations; of all if None."""
    return dataclasses.replace(
      self,
      returns=self.returns[:iterations],
      episodes=self.episodes[:iterations],
      diagnostics={k: v[:iterations] for k, v in self.diagnostics.items()},
    )

  @property
  def done(self) -> int:
    """Number of evaluated iterations."""
    return len(self.returns)

  @property
  def final(self) -> float:
    """Return of the last evaluation."""
    return float(self.returns[-1])

  @property
  def best(self) -> float:
    """Highest return; the paper reports it. Noise biases it upwards."""
    return float(self.returns.max())

  @property
  def is_finished(self) -> bool:
    """Whether all planned iterations are done, as far as known."""
    return self.planned is None or self.done >= self.planned

  @functools.cached_property
  def data_root(self) -> str:
    """Directory of the dataset, above `<Game>/<run>`; '' if unknown."""
    path = str(self.provenance.get('replay_dir') or '')
    return os.path.dirname(
      path.removesuffix('/replay_logs').removesuffix(self.data)
    )


_Path = str | os.PathLike[str]
Excluded = tuple[str, str]  # Directory and reason.


class NoResultsError(ValueError):
  """A directory without usable results, for a `reason`."""

  def __init__(self, directory: str, reason: str):
    super().__init__(f'{directory}: {reason}')
    self.reason = reason


def find_runs(
  directories: _Path | Iterable[_Path],
) -> tuple[list[str], list[Excluded]]:
  """Returns all run directories in a directory or several, and unreadable directories.

  Raises:
    ValueError: If a directory is missing.
  """
  runs: dict[str, str] = {}
  unread: list[Excluded] = []

  def note(error):
    unread.append((str(error.filename), f'it cannot be read: {error.strerror}'))

  if isinstance(directories, str | os.PathLike):
    directories = [directories]
  seen = set()
  for directory in directories:
    for path, subdirectories, names in _walk(os.fspath(directory), note):
      remote = files.is_remote(path)
      real = path if remote else os.path.realpath(path)
      if real in seen:  # Links may form a cycle.
        subdirectories.clear()
        continue
      seen.add(real)
      subdirectories.sort()
      if run_record.FILE_NAME in names or _log_numbers(path):
        runs.setdefault(real, path if remote else os.path.normpath(path))
        inside = {'checkpoints', _LOGS, evaluations_lib.DIRECTORY}
        subdirectories[:] = [s for s in subdirectories if s not in inside]
  return list(runs.values()), unread


def _walk(directory: str, note: Callable) -> Iterator[tuple[str, list, list]]:
  """Walks a directory as `os.walk` does; a remote one has no links."""
  if files.is_remote(directory):
    with files.remote_errors(directory) as tf:
      if not tf.io.gfile.stat(directory).is_directory:
        raise ValueError(f'{directory} is not a directory.')
      for path, folders, names in tf.io.gfile.walk(directory.rstrip('/')):
        folders[:] = [folder.rstrip('/') for folder in folders]
        yield path, folders, names
  elif os.path.isdir(directory):
    yield from os.walk(directory, onerror=note, followlinks=True)
  else:
    raise ValueError(f'{directory} is not a directory on this machine.')


def read_run(directory: _Path, agent: str = '', game: str = '') -> RunResults:
  """Reads a run.

  Args:
    directory: Run directory.
    agent: Name of the agent, if the run does not record it.
    game: Name of the game, if the run does not record it.

  Raises:
    NoResultsError: If evaluations are missing or damaged, or the agent or the game is
      unknown.
  """
  directory = os.fspath(directory)
  try:
    return _read_run(directory, agent, game)
  except OSError as error:
    reason = f'it cannot be read: {files.reason(error)}'
    raise NoResultsError(directory, reason) from error
  except ValueError as error:
    raise NoResultsError(directory, str(error)) from error
  except (TypeError, AttributeError, LookupError, ArithmeticError) as error:
    # The files have an unexpected structure.
    reason = f'it is damaged ({type(error).__name__}: {error})'
    raise NoResultsError(directory, reason) from error


def _read_run(directory: str, agent: str, game: str) -> RunResults:
  if not files.names_in(directory):
    raise ValueError('there is no such directory, or nothing is in it')
  record = run_record.read(directory) or {}
  # A gin file may bind both runners.
  other = 'LoggedRunner' if 'replay_dir' in record else 'FixedReplayRunner'
  of_other = re.compile(rf'(.*[./])?{other}\.')
  bound = run_record.bindings(record.get('gin_config') or '')
  bindings = {k: v for k, v in bound.items() if not of_other.match(k)}
  record = _without_nulls(record)
  data, environment, versions, code = (
    _without_nulls(record.get(name))
    for name in ('data', 'environment', 'versions', 'code')
  )
  agent = agent_names.of_record(record) or agent
  game = environment.get('game') or game or _game_in_path(directory)
  for kind, name in (('agent', agent), ('game', game)):
    if not name:
      raise ValueError(
        f'its {kind} is unknown: give agent and game; a report takes '
        f"--name '{directory}=AGENT/GAME'"
      )
  returns, episodes, diagnostics = _curves(_evaluations(directory))
  planned = _runner_number(bindings, 'num_iterations') if record else None
  offline_dir = '' if 'replay_dir' in record else data.get('directory', '')
  return RunResults(
    directory,
    agent.lstrip('_'),  # matplotlib hides labels that begin with '_'.
    programs.printable(game_names.canonical(game)),
    returns,
    episodes,
    planned=planned,
    seed=str(record.get('seed', '')),
    data=_data(record),
    config=_config(record, bindings),
    protocol=_protocol(record, environment, data, bindings),
    provenance={
      'run_id': record.get('run_id', ''),
      'replay_dir': record.get('replay_dir') or '',
      'offline_dir': offline_dir,
      'subset_hash': data.get('subset_hash', ''),
      'shards': len(data.get('shards') or ()) or '',
      'init_checkpoint_dir': _initial_weights(record),
      'changes': len(record.get('changes') or ()),
      'iteration': _length(record, bindings),
      'code': ', '.join(map(' '.join, sorted(code.items()))),
      'versions': ', '.join(map(' '.join, versions.items())),
    },
    diagnostics=diagnostics,
  ).first(planned)


def _without_nulls(content: Mapping | None) -> dict[str, Any]:
  """Returns the entries of a JSON object but nulls, which count as missing."""
  return {k: v for k, v in (content or {}).items() if v is not None}


def _config(record: Mapping, bindings: Mapping[str, str]) -> dict[str, str]:
  """Returns the bindings that define the method."""
  kept = {
    name: value
    for name, value in bindings.items()
    if settings_lib.affects(name) is settings_lib.Affects.RESULTS
    and name not in record.get('unused_bindings', ())
    and not ('replay_dir' in record and settings_lib.is_online(name))
    and not name.endswith('.tensor_float_32')
    # The default, which earlier versions recorded.
    and (name, value) != ('LoggedRunner.clip_rewards', 'True')
  }
  if _initial_weights(record):
    kept['weights'] = "another run's"
  is_bound = run_record.runner_setting(bindings, 'tensor_float_32') == 'True'
  if record.get('tensor_float_32', is_bound):  # bound, or given in Python
    kept['tensor_float_32'] = 'True'
  if '.' in record.get('agent', ''):  # A class of the user, `module.Class`.
    kept['agent'] = record['agent']
  if created := _own_create_agent(record):
    kept['create_agent'] = os.path.basename(created['name'])
    given = function_records.arguments(created)
    kept |= {f'create_agent.{name}': text for name, text in given.items()}
  return kept


def _initial_weights(record: Mapping) -> str:
  """Returns the run directory of the initial weights; '' if these are random."""
  arguments = _own_create_agent(record).get('kwargs') or {}
  directory = record.get('init_checkpoint_dir')
  return str(directory or arguments.get('init_checkpoint_dir') or '')


def _own_create_agent(record: Mapping) -> Mapping:
  """Returns the user's function that created the agent; empty if it is ours."""
  created = record.get('create_agent') or {}
  return {} if created.get('name', '').startswith('batch_rl.') else created


# Mean return, number of episodes, and diagnostics.
_Evaluation = tuple[float, int, Mapping[str, float]]


def _curves(
  evaluations: dict[int, _Evaluation],
) -> tuple[np.ndarray, np.ndarray, dict[str, np.ndarray]]:
  """Returns mean returns, numbers of episodes, and diagnostics by name.

  Each array has the iterations from 0 to the last.
  """
  if not evaluations:
    raise ValueError('it has no evaluations yet')
  numbers = range(len(evaluations))
  if missing := sorted(set(numbers) - set(evaluations)):
    raise ValueError(f'it lacks the evaluation of iteration {missing[0]}')
  ordered = [evaluations[i] for i in numbers]
  means, counts, diagnostics = zip(*ordered, strict=True)
  returns = np.array(means, float)
  if wrong := np.flatnonzero(~np.isfinite(returns)).tolist():
    raise ValueError(f'the return of iteration {wrong[0]} is not finite')
  names = dict.fromkeys(name for found in diagnostics for name in found)
  curves = {n: np.array([d.get(n) for d in diagnostics], float) for n in names}
  return returns, np.array(counts, int), curves


def _evaluations(directory: str) -> dict[int, _Evaluation]:
  """Returns the evaluations by iteration.

  Raises:
    ValueError: If a file is damaged.
  """
  evaluations: dict[int, _Evaluation] = {}
  for iteration, content in evaluations_lib.read(directory).items():
    mean = content.get('mean_return')
    if mean is None:
      raise ValueError(f'the evaluation of iteration {iteration} is empty')
    count = len(content.get('episodes', ()))
    diagnostics = content.get('diagnostics') or {}
    evaluations[iteration] = float(mean), count, diagnostics
  if evaluations or not (numbers := _log_numbers(directory)):
    return evaluations
  path = os.path.join(directory, _LOGS, f'log_{max(numbers)}')
  logged = safe_pickle.loads(files.read_bytes(path))
  for name, statistics in logged.items():
    keys = 'eval_episode_returns', 'eval_average_return'
    returns, means = (statistics.get(key, ()) for key in keys)
    match = re.fullmatch(r'iteration_(\d+)', str(name))
    if match and bool(len(returns)) != bool(len(means)):
      raise ValueError(
        f'{name} of its log has only one of {" and ".join(keys)}'
      )
    if match and len(returns):
      evaluations[int(match[1])] = float(means[-1]), len(returns), {}
  return evaluations


def _log_numbers(directory: str) -> list[int]:
  """Returns the numbers of Dopamine's logs; none if their folder is unreadable."""
  with contextlib.suppress(OSError):
    names = files.names_in(os.path.join(directory, _LOGS))
    return [int(m[1]) for n in names if (m := re.fullmatch(r'log_(\d+)', n))]
  return []


def _runner_number(bindings: Mapping[str, str], name: str) -> int:
  """Returns a setting of the runner; its default if it is no finite number."""
  try:
    return int(float(run_record.runner_setting(bindings, name)))
  except (ValueError, OverflowError):
    return settings_lib.DEFAULTS[name]


def _length(record: Mapping, bindings: Mapping[str, str]) -> str:
  """Returns the length of an iteration, e.g. `62,500 updates`; '' if unknown."""
  if not record:
    return ''
  steps = _runner_number(bindings, 'training_steps')
  if 'replay_dir' not in record:
    return f'{steps:,} agent steps'
  period = record.get('update_period', settings_lib.DEFAULTS['update_period'])
  return f'{-(-steps // period):,} updates'


def _game_in_path(directory: str) -> str:
  parts = reversed(os.path.abspath(directory).split(os.sep))
  return next(filter(None, map(game_names.known, parts)), '')


def _data(record: Mapping) -> str:
  """Returns `<Game>/<run>` from the path of the shards."""
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
  max_steps: float = _runner_number(bindings, 'max_steps_per_episode')
  if run_record.runner_setting(bindings, 'max_steps_per_episode') == 'None':
    max_steps = math.inf
  max_frames = environment.get('max_num_frames_per_episode') or math.inf
  rom = str(environment.get('rom_md5', 'none'))
  frame_skip = environment.get('frame_skip') or (1 if rom == 'none' else 4)
  protocol = {
    'subset': str(data.get('subset') or 'all'),
    'epsilon': str(record.get('epsilon_eval', '?')),
    'sticky': str(environment.get('repeat_action_probability', 'none')),
    'rom': rom,
    'environment': _own_environment(record, environment),
    'frame cap': str(min(max_frames, frame_skip * max_steps)),
    'steps': run_record.runner_setting(bindings, 'evaluation_steps')
    or str(settings_lib.DEFAULTS['evaluation_steps']),
  }
  return protocol if record else dict.fromkeys(protocol, '?')


def _own_environment(record: Mapping, environment: Mapping) -> str:
  """Returns arguments and description of a user's environment, else 'default'."""
  own = {k: v for k, v in environment.items() if k not in _OF_GAMES}
  made = function_records.arguments(record.get('create_environment') or {})
  made |= function_records.arguments({'kwargs': own})
  game = game_names.canonical(environment.get('game', ''))
  names = game, game.removeprefix('MinAtar-')
  entries = (
    f'{k}={v}' for k, v in made.items() if game_names.canonical(v) not in names
  )
  return ', '.join(entries) or 'default'
