"""What a sweep consists of: from its file to the command of every cell."""

import ast
import dataclasses
import itertools
import math
import os
import re
import shlex
from collections.abc import Iterable, Mapping
from typing import Any

import yaml

from batch_rl.atari import roms
from batch_rl.baselines import parallel_runs
from batch_rl.dataset.store import store
from batch_rl.report import normalisation
from batch_rl.runs import command_line
from batch_rl.utils import files

_PROGRAMS = {
  'offline': 'batch_rl.fixed_replay.train',
  'online': 'batch_rl.baselines.train',
  'evaluate': 'batch_rl.fixed_replay.evaluate',
}
_CONFIGS = {
  'offline': 'batch_rl/fixed_replay/configs',
  'online': 'batch_rl/baselines/configs',
}
_DEFAULTS: dict[str, Any] = {
  'job': 'offline',
  'base_dir': None,
  'data_dir': None,
  'games': None,
  'runs': 1,
  'agents': None,
  'seeds': 1,
  'gin_files': [],
  'gin_bindings': [],
  'grid': {},
  'store_dir': 'stores',
  'evaluate': {},
  'cpus': 1,
  'gpus': 0,
  'memory_gb': None,
  'retries': 3,
  'rates': {},
  'slurm': {},
}
GAME = 'atari_lib.create_atari_environment.game_name'
_RATES = ('train', 'eval')
_EVALUATE = ('checkpoints', 'evaluation_steps', 'environments', 'seed')


@dataclasses.dataclass(frozen=True)
class Cell:
  """One run of the sweep.

  Attributes:
    name: what tells it from the others, e.g. 'rem Pong 1 seed 1'.
    job: 'offline', 'online' or 'evaluate'.
    directory: its base_dir.
    arguments: of Python, which run it.
    gin_files: that it reads, in this order.
    gin_bindings: that it is given, in this order.
    replay_dir: the run that it trains on, of an offline one.
  """

  name: str
  job: str
  directory: str
  arguments: tuple[str, ...]
  gin_files: tuple[str, ...] = ()
  gin_bindings: tuple[str, ...] = ()
  replay_dir: str | None = None


@dataclasses.dataclass(frozen=True)
class Sweep:
  """All of them, and what they need.

  Attributes:
    base_dir: above the directories of the cells.
    job: 'offline', 'online' or 'evaluate'.
    cells: in the order in which they are started.
    cpus: processors of a cell.
    gpus: GPUs of a cell; 0.25 is a quarter of one.
    memory_gb: gigabytes of a cell, or None if it does not matter.
    retries: how often a cell that was killed is started again.
    rates: of a cell, if they are known: updates a second in 'train', agent steps a
      second in 'eval'.
    slurm: more for SLURM, as `submitit` names it.
  """

  base_dir: str
  job: str
  cells: tuple[Cell, ...]
  cpus: float
  gpus: float
  memory_gb: float | None
  retries: int
  rates: Mapping[str, float]
  slurm: Mapping[str, Any]


@dataclasses.dataclass(frozen=True)
class _Method:
  """An agent with its settings."""

  agent: str
  variant: str
  gin_files: tuple[str, ...]
  gin_bindings: tuple[str, ...]

  @property
  def name(self) -> str:
    return f'{self.agent} {self.variant}'.strip()

  @property
  def folder(self) -> str:
    return '/'.join(filter(None, (self.agent, self.variant.replace(' ', ','))))


def read(path: str | None, given: Mapping[str, Any]) -> Sweep:
  """The sweep that a file describes.

  Args:
    path: a YAML file; None for none.
    given: what the command line says; it overrides the file. None is not given.

  Raises:
    ValueError: if anything in it is unknown, missing or of a wrong kind; says what,
      and what there is instead.
  """
  settings = _DEFAULTS | _read_yaml(path)
  settings |= {
    name: value for name, value in given.items() if value is not None
  }
  job = command_line.choose('job', settings['job'], _PROGRAMS)
  needed = ['base_dir', 'games', 'agents']
  needed += [] if job == 'evaluate' else ['data_dir']
  if missing := [name for name in needed if not settings[name]]:
    raise ValueError(
      f'The sweep does not say {", ".join(missing)}: add '
      + ' and '.join(f'`{name}:`' for name in missing)
      + ' to its file, or the flag of that name.'
    )
  for name in ('base_dir', 'data_dir', 'store_dir'):
    if not isinstance(settings[name], str | None):
      raise ValueError(
        f'{name}={settings[name]!r} is no text; put it in quotes.'
      )
  if files.is_remote(settings['base_dir']):
    raise ValueError(
      f'base_dir={settings["base_dir"]} is remote: the cells of a sweep are told '
      'apart by files, so it has to be a directory that all machines share.'
    )
  base_dir = os.path.abspath(os.path.expanduser(settings['base_dir']))
  cells = _list_cells(job, base_dir, settings)
  rates = _only(settings, 'rates', _RATES)
  return Sweep(
    base_dir=base_dir,
    job=job,
    cells=tuple(cells),
    cpus=_number(settings, 'cpus', 0.01),
    gpus=_number(settings, 'gpus', 0),
    memory_gb=settings['memory_gb'] and _number(settings, 'memory_gb', 0),
    retries=int(_number(settings, 'retries', 0)),
    rates={name: _number(rates, name, 1e-6, 'rates.') for name in rates},
    slurm=_mapping(settings, 'slurm'),
  )


def command(cell: Cell) -> str:
  """A cell's command line, as it would be typed."""
  return shlex.join(['python', *cell.arguments])


def _read_yaml(path):
  if path is None:
    return {}
  if path.startswith('batch_rl/') and not os.path.exists(path):
    path = os.path.join(command_line.PACKAGE_PARENT, path)
  try:
    with open(path, encoding='utf-8') as file:
      content = yaml.safe_load(file)
  except OSError as error:
    raise ValueError(f'{path} cannot be read: {error.strerror}.') from error
  except (yaml.YAMLError, UnicodeDecodeError) as error:
    raise ValueError(f'{path} is not YAML: {error}') from error
  if not isinstance(content, dict):
    raise ValueError(f'{path} holds no settings, `name: value`.')
  for name in content:
    command_line.choose(f'setting in {path}:', name, _DEFAULTS)
  return content


def _list_cells(job, base_dir, settings):
  methods = _methods(job, settings)
  games = [_game(name, settings) for name in _games(settings['games'])]
  runs = _numbers('runs', settings['runs'])
  seeds = _numbers('seeds', settings['seeds'])
  if job == 'online' and len(seeds) > 1:
    raise ValueError(
      f'seeds={settings["seeds"]}: an online sweep has one seed, from which each '
      'of its runs gets its own; ask for more runs.'
    )
  data_dir = settings['data_dir'] and _absolute(settings['data_dir'])
  cells = []
  for seed, run, method, game in itertools.product(seeds, runs, methods, games):
    name = f'{method.name} {game} {run}'
    directory = os.path.join(base_dir, method.folder, game, f'run-{run}')
    if job != 'online':
      name += f' seed {seed}'
      directory = os.path.join(directory, f'seed-{seed}')
    bindings = list(method.gin_bindings)
    if job == 'evaluate':
      options = _only(settings, 'evaluate', _EVALUATE)
      flags = {'base_dir': directory, **options}
    else:
      if _is_atari(game):
        bindings.append(f'{GAME} = "{game}"')
      flags = {'base_dir': directory}
      if job == 'offline':
        flags['replay_dir'] = os.path.join(data_dir, game, str(run))
        flags['seed'] = seed
        if settings['store_dir']:
          stores = os.path.join(base_dir, _user(settings['store_dir']))
          bindings.append(f'FixedReplayBuffer.cache_dir = "{stores}"')
      else:
        parts = (method.folder,) if len(methods) > 1 else ()
        flags['replay_log_dir'] = os.path.join(data_dir, *parts, game, str(run))
        flags['seed'] = parallel_runs.seed_of(seed, run)
    arguments = ['-um', _PROGRAMS[job]]
    arguments += [f'--{flag}={value}' for flag, value in flags.items()]
    if job != 'evaluate':
      arguments += [f'--gin_files={path}' for path in method.gin_files]
      arguments += [f'--gin_bindings={binding}' for binding in bindings]
    cells.append(
      Cell(
        name,
        job,
        directory,
        tuple(arguments),
        method.gin_files,
        tuple(bindings),
        flags.get('replay_dir'),
      )
    )
  directories = [cell.directory for cell in cells]
  if len(set(directories)) < len(cells):
    twice = next(d for d in directories if directories.count(d) > 1)
    raise ValueError(f'The sweep has {os.path.relpath(twice, base_dir)} twice.')
  return cells


def _methods(job, settings) -> list[_Method]:
  """Every agent with every combination of the grid."""
  grid = _mapping(settings, 'grid')
  for parameter, values in grid.items():
    if not isinstance(parameter, str) or values in ([], None):
      raise ValueError(f'grid: {parameter!r} is no parameter with values.')
  choices = [
    [(parameter, value) for value in (v if isinstance(v, list) else [v])]
    for parameter, v in grid.items()
  ]
  labels = _short_names(grid)
  shared = tuple(_absolute(p) for p in _texts(settings, 'gin_files'))
  methods = []
  for agent, gin_files, bindings in _agents(job, settings['agents']):
    for combination in itertools.product(*choices):
      methods.append(
        _Method(
          agent,
          ' '.join(f'{labels[p]}={_for_path(v)}' for p, v in combination),
          (*gin_files, *shared),
          (
            *_texts(settings, 'gin_bindings'),
            *bindings,
            *(f'{p} = {as_gin(v)}' for p, v in combination),
          ),
        )
      )
  return methods


def _agents(
  job, agents
) -> Iterable[tuple[str, tuple[str, ...], tuple[str, ...]]]:
  """Name, gin files and gin bindings of each."""
  if isinstance(agents, (str, list)):
    agents = agents if isinstance(agents, list) else [agents]
    if wrong := [name for name in agents if not isinstance(name, str)]:
      raise ValueError(f'agents: {wrong[0]!r} is no text; put it in quotes.')
    agents = dict.fromkeys(agents)
  if not isinstance(agents, dict):
    raise ValueError(f'agents={agents} is neither a list nor a mapping.')
  for name, about in agents.items():
    if not isinstance(name, str):
      raise ValueError(f'agents: {name!r} is no text; put it in quotes.')
    about = {'gin_files': about} if isinstance(about, (str, list)) else about
    about = about or {}
    if not isinstance(about, dict):
      raise ValueError(
        f'The agent {name} is described by {about!r}: give '
        '`gin_files:` and `gin_bindings:`.'
      )
    for key in about:
      command_line.choose(
        f'setting of agent {name}:', key, ('gin_files', 'gin_bindings')
      )
    paths = _texts(about, 'gin_files')
    if not paths:
      paths = [name if name.endswith('.gin') else _packaged(job, name)]
    name = os.path.basename(name).removesuffix('.gin')
    yield (
      name,
      tuple(map(_absolute, paths)),
      tuple(_texts(about, 'gin_bindings')),
    )


def _packaged(job, name):
  """The package's own gin file of an agent."""
  folder = _CONFIGS.get(job, _CONFIGS['offline'])
  there = os.path.join(command_line.PACKAGE_PARENT, folder)
  configs = [
    n.removesuffix('.gin') for n in os.listdir(there) if n.endswith('.gin')
  ]
  return f'{folder}/{command_line.choose("agent", name, configs)}.gin'


def _games(games):
  if games == 'all':
    return list(normalisation.load())
  games = games if isinstance(games, list) else [games]
  return [str(game) for game in games]


def _is_atari(game):
  try:
    return roms.canonical_name(game) == game
  except ValueError:
    return False


def _game(name, settings):
  """Its name in CamelCase; any other is a folder of the user's data."""
  try:
    return roms.canonical_name(name)
  except ValueError:
    data_dir = settings['data_dir']
    if data_dir and os.path.isdir(os.path.join(_user(data_dir), name)):
      return name
    raise


def check_data(sweep: Sweep) -> None:
  """Looks for the runs that the cells of a sweep train on.

  Raises:
    ValueError: if some cannot be read; names them.
  """
  wrong = []
  runs = sorted({cell.replay_dir for cell in sweep.cells if cell.replay_dir})
  for run in runs:
    try:
      store.find_data(run)
    except ValueError as error:
      wrong.append((run, error))
  if not wrong:
    return
  if len(wrong) == 1:
    raise wrong[0][1]
  named = ', '.join('/'.join(run.split('/')[-2:]) for run, _ in wrong[:6])
  named += ', ...' if len(wrong) > 6 else ''
  raise ValueError(
    f'{len(wrong)} of {len(runs)} runs cannot be read ({named}), the first for '
    f'this reason: {wrong[0][1]}'
  )


def _numbers(name, value) -> list[int]:
  """`3`, `[1, 2]`, `'1-5'` or `'1,3'`."""
  text = ','.join(map(str, value)) if isinstance(value, list) else str(value)
  try:
    return parallel_runs.parse(text)
  except ValueError as error:
    raise ValueError(str(error).replace('--runs', name)) from error


def _number(settings, name, least, prefix='') -> float:
  value = settings[name]
  right = isinstance(value, (int, float)) and not isinstance(value, bool)
  if not right or not least <= value < math.inf:
    raise ValueError(
      f'{prefix}{name}={value!r} is not a number from {least} on.'
    )
  return value


def _mapping(settings, name) -> dict[str, Any]:
  if not isinstance(settings[name] or {}, dict):
    raise ValueError(f'{name}={settings[name]!r} is no mapping, `name: value`.')
  return settings[name] or {}


def _only(settings, name, keys):
  found = _mapping(settings, name)
  for key in found:
    command_line.choose(f'setting of {name}:', key, keys)
  return found


def _texts(settings, name) -> list[str]:
  value = settings.get(name) or []
  value = value if isinstance(value, list) else [value]
  if wrong := [v for v in value if not isinstance(v, str)]:
    raise ValueError(f'{name}: {wrong[0]!r} is no text; put it in quotes.')
  return value


def _short_names(grid) -> dict[str, str]:
  """Of gin parameters, the last part, where that tells them apart."""
  last = [parameter.split('.')[-1] for parameter in grid]
  return {
    parameter: parameter if last.count(short) > 1 else short
    for parameter, short in zip(grid, last, strict=True)
  }


def as_gin(value) -> str:
  """A value of YAML as gin writes it; text may be gin already."""
  if isinstance(value, str):
    if value[:1] in ('@', '%'):
      return value
    try:
      ast.literal_eval(value)
      return value
    except (ValueError, SyntaxError):
      return repr(value)
  return repr(value)


def _for_path(value) -> str:
  return re.sub(r'[^\w.+-]+', '_', str(value)).strip('_')


def _user(path) -> str:
  return os.path.expanduser(str(path))


def _absolute(path) -> str:
  """Absolute, but for what is remote or in the package."""
  path = _user(path)
  if files.is_remote(path) or path.startswith('batch_rl/'):
    return path
  return os.path.abspath(path)
