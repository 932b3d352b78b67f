"""The cells of a sweep and their command lines, read from its file."""

import collections
import contextlib
import dataclasses
import itertools
import json
import os
import pathlib
import re
import shlex
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from batch_rl.baselines.agents import REGISTRY as ONLINE
from batch_rl.dataset import game_names, run_directories
from batch_rl.dataset.shards import shard_reader
from batch_rl.dataset.store import store_directory
from batch_rl.fixed_replay.agents import REGISTRY as OFFLINE
from batch_rl.minatar import games as minatar
from batch_rl.report import normalisation
from batch_rl.runs import games as games_lib
from batch_rl.runs import gin_files as gin_files_lib
from batch_rl.runs.bindings import syntax
from batch_rl.sweep import yaml_file
from batch_rl.utils import choices, files, json_schema, number_ranges, seeding
from batch_rl.utils.user_code import user_modules

_PROGRAMS = {
  'offline': 'batch_rl.fixed_replay.train',
  'online': 'batch_rl.baselines.train',
  'evaluate': 'batch_rl.fixed_replay.evaluate',
}
# Default and type of each setting; see `json_schema`.
SETTINGS: dict[str, tuple[Any, Any]] = {
  'job': ('offline', object),
  'base_dir': (None, str),
  'data_dir': (None, str),
  'games': (None, object),
  'runs': (1, object),
  'agents': (None, object),
  'seeds': (1, object),
  'gin_files': ([], object),
  'gin_bindings': ([], object),
  'grid': ({}, dict),
  'store_dir': ('stores', str),
  'evaluate': (
    {},
    {
      'checkpoints': object,
      'evaluation_steps': range(1, 10**12),
      'environments': range(1, 10_001),
      'seed': range(2**63),
    },
  ),
  'cpus': (1, float),
  'gpus': (0, float),
  'memory_gb': (None, float),
  'retries': (3, range(10**6)),
  'rates': ({}, {str: float}),
  'slurm': ({}, {str: object}),
}


@dataclasses.dataclass(frozen=True)
class Cell:
  """One run of a sweep.

  Attributes:
    name: Unique name, e.g. 'rem Pong 1 seed 1'.
    job: 'offline', 'online' or 'evaluate'.
    directory: Run directory.
    arguments: Command line, without the Python interpreter.
    gin_files: Paths of gin files, in the order of reading.
    gin_bindings: Gin bindings, in the order of parsing.
    replay_dir: Directory of the dataset's run, for an offline job.
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
  """All cells of a sweep and their resources.

  Attributes:
    base_dir: Directory above the directories of the cells.
    cells: Cells in the order in which they start.
    job: 'offline', 'online' or 'evaluate'.
    cpus: Processors per cell.
    gpus: GPUs per cell; 0.25 is a quarter of one.
    memory_gb: Memory per cell in gigabytes, or None if unlimited.
    retries: Number of times that a killed cell is started again.
    rates: Speed of a cell before one has run: updates per second in 'train', agent steps
      per second in 'eval'. May be empty.
    slurm: Further SLURM parameters, named as in `submitit`.
  """

  base_dir: str
  cells: tuple[Cell, ...]
  job: str
  cpus: float
  gpus: float
  memory_gb: float | None
  retries: int
  rates: Mapping[str, float]
  slurm: Mapping[str, Any]


class _Method(NamedTuple):
  """Agent with its settings, which all games, runs and seeds share.

  Attributes:
    agent: Name of the agent.
    gin_files: Its gin files; the sweep's come later.
    gin_bindings: Its gin bindings.
    class_name: Class of the user's agent, `module.Class`.
    variant: Values of the grid, e.g. 'num_heads=50,gamma=0.9'.
  """

  agent: str
  gin_files: tuple[str, ...]
  gin_bindings: tuple[str, ...]
  class_name: str | None = None
  variant: str = ''

  @property
  def name(self) -> str:
    return f'{self.agent} {self.variant}'.strip()

  @property
  def folder(self) -> str:
    return os.path.join(self.agent, self.variant).rstrip('/')


def read(path: str | None, given: Mapping[str, Any]) -> Sweep:
  """Returns the sweep that a file and the command line describe.

  Args:
    path: Path of a YAML file, or None.
    given: Settings from the command line, which override the file. None means that a
      setting was not given. Agents of the file keep their own settings.

  Raises:
    ValueError: If a setting is unknown, missing or invalid.
  """
  settings = {name: default for name, (default, _) in SETTINGS.items()}
  in_file = _read_yaml(path)
  for source in (in_file, given):
    settings |= {name: v for name, v in source.items() if v is not None}
  own = in_file.get('agents')
  if not isinstance(own, dict):
    own = dict.fromkeys(_strings('agents', own))
  chosen = _strings('agents', given.get('agents')) or own
  settings['agents'] = {name: own.get(name) for name in chosen}
  _check(settings)
  for folder in (os.path.dirname(path or ''), ''):
    user_modules.add_folder(folder)
  base_dir = os.path.abspath(os.path.expanduser(settings['base_dir']))
  shared = 'job cpus gpus memory_gb retries rates slurm'.split()
  # Logs have the same directories, whichever of the agents are chosen.
  cells = tuple(_list_cells(base_dir, settings, len({*own, *chosen})))
  return Sweep(base_dir, cells, **{name: settings[name] for name in shared})


def _check(settings: Mapping[str, Any]) -> None:
  """Raises a ValueError for a setting that is missing, unknown or invalid."""
  choices.choose('job', settings['job'], _PROGRAMS)
  needed = ['base_dir', 'games', 'agents']
  needed += [] if settings['job'] == 'evaluate' else ['data_dir']
  if missing := [name for name in needed if not settings[name]]:
    raise ValueError(
      f'The sweep lacks {", ".join(missing)}: complete the file, or add flags.'
    )
  json_schema.check(settings, {n: kind for n, (_, kind) in SETTINGS.items()})
  for name in settings['evaluate']:
    choices.choose('setting of evaluate:', name, SETTINGS['evaluate'][1])
  checkpoints = _joined(settings['evaluate'].get('checkpoints') or 'last')
  if checkpoints not in ('last', 'best', 'all'):
    number_ranges.parse(checkpoints, 'evaluate.checkpoints')
  for name in settings['rates']:
    choices.choose('rate', name, ('train', 'eval'))
  rates = {f'rates.{name}': rate for name, rate in settings['rates'].items()}
  for name, value in {'cpus': settings['cpus'], **rates}.items():
    if not value or value <= 0:
      raise ValueError(f'{name}={value} is not above 0.')
  for name in ('gpus', 'memory_gb'):
    if (settings[name] or 0) < 0:
      raise ValueError(f'{name}={settings[name]} is below 0.')
  for name in ('base_dir', 'store_dir'):
    files.check_local(settings[name] or '')


def command(cell: Cell) -> str:
  """Returns a cell's command line for a shell."""
  return shlex.join(['python', *cell.arguments])


def _read_yaml(path):
  if path is None:
    return {}
  if path.startswith('batch_rl/'):
    path = gin_files_lib.find(path) or path
  content = yaml_file.read(path)
  if not isinstance(content, dict):
    raise ValueError(f'{path} is not a YAML mapping of `name: value`.')
  for name in content:
    choices.choose(f'setting in {path}:', name, SETTINGS)
  # An empty text stands for null, which otherwise means the default.
  return {**content, 'store_dir': content.get('store_dir', 'stores') or ''}


def dataset_games() -> list[str]:
  """Returns the 60 games of the dataset, which `games: all` stands for."""
  return [game for game in normalisation.load() if not minatar.is_minatar(game)]


def _game(name: str, base_dir: str, settings, methods) -> str:
  """Returns the name of a game, or of an environment of the user's."""
  try:
    return games_lib.canonical_name(name)
  except ValueError as error:
    folders = [os.path.join(base_dir, method.folder) for method in methods]
    if data_dir := settings['data_dir']:
      folders.append(_absolute(data_dir))
    if any(os.path.isdir(os.path.join(folder, name)) for folder in folders):
      return name
    remedy = f'there has to be a folder {os.path.join(folders[-1], name)}'
    if settings['job'] == 'online':
      if any(_has_own_environment(settings, method) for method in methods):
        return name
      remedy = 'bind LoggedRunner.create_environment_fn'
    raise ValueError(
      f'{error} For an environment of your own, {remedy}.'
    ) from error


def _has_own_environment(settings, method: _Method) -> bool:
  """Returns whether gin lines bind an environment that is not of the package."""
  shared = map(_absolute, _strings('gin_files', settings['gin_files']))
  sources = gin_files_lib.read(
    [*method.gin_files, *shared], method.gin_bindings
  )
  return any(
    statement.arg_name == 'create_environment_fn'
    and not re.search('MinAtarEnv|create_atari_env', str(statement.value))
    for statement in gin_files_lib.binding_statements(sources)
  )


def _list_cells(base_dir, settings, agents: int) -> list[Cell]:
  methods = [*_methods(settings)]
  names = settings['games']
  if names in ('all', ['all']):
    names = dataset_games()
  games = [
    _game(str(name), base_dir, settings, methods) for name in _as_list(names)
  ]
  runs, seeds = (
    number_ranges.parse(_joined(settings[name]), name)
    for name in ('runs', 'seeds')
  )
  if settings['job'] == 'online' and len(seeds) > 1:
    raise ValueError(
      f'seeds={settings["seeds"]}: an online sweep has one seed, from which the '
      'seed of each run is derived. Increase `runs:` instead.'
    )
  has_others = max(agents, len(methods)) > 1
  # Cells of one run of the data start together, and share its store.
  each = itertools.product(seeds, runs, games, methods)
  cells = [
    _cell(base_dir, settings, method, game, run, seed, has_others)
    for seed, run, game, method in each
  ]
  counts = collections.Counter(cell.directory for cell in cells)
  if len(counts) < len(cells):
    [(duplicate, _)] = counts.most_common(1)
    raise ValueError(
      f'Two cells have the directory {os.path.relpath(duplicate, base_dir)}: remove '
      'the game, agent or value that is given twice, or rename it.'
    )
  return cells


def _cell(base_dir, settings, method, game, run, seed, has_others) -> Cell:
  """Returns one cell; `has_others` is True for a sweep of several methods."""
  job = settings['job']
  data_dir = settings['data_dir'] and _absolute(settings['data_dir'])
  name = f'{method.name} {game} {run}'
  directory = os.path.join(base_dir, method.folder, game, f'run-{run}')
  if job != 'online':
    name += f' seed {seed}'
    directory = os.path.join(directory, f'seed-{seed}')
  flags: dict[str, Any] = {'base_dir': directory}
  gin_files = [*method.gin_files]
  bindings = [*method.gin_bindings]
  if game_names.known(game):
    bindings.append(f'{games_lib.setting(game)} = "{game}"')
    if minatar.is_minatar(game):
      # After the agent's file, but before the user's own.
      shipped = (path.startswith('batch_rl/') for path in gin_files)
      places = [i for i, is_shipped in enumerate(shipped, 1) if is_shipped]
      place = max(places, default=len(gin_files))
      kind = 'online' if job == 'online' else 'offline'
      gin_files.insert(place, f'batch_rl/minatar/configs/{kind}.gin')
  gin_files += map(_absolute, _strings('gin_files', settings['gin_files']))
  if job == 'offline':
    flags['replay_dir'] = os.path.join(data_dir, game, str(run))
    flags['seed'] = seed
    is_store = store_directory.is_store(flags['replay_dir'])
    if settings['store_dir'] and not is_store:
      stores = os.path.join(base_dir, os.path.expanduser(settings['store_dir']))
      quoted = json.dumps(stores, ensure_ascii=False)
      # First, so that a binding of the user overrides it.
      bindings.insert(0, f'FixedReplayBuffer.cache_dir = {quoted}')
  elif job == 'online':
    folder = method.folder if has_others else ''
    flags['replay_log_dir'] = os.path.join(data_dir, folder, game, str(run))
    flags['seed'] = seeding.of_run(seed, run)
  else:
    given = settings['evaluate'].items()
    flags |= {n: _joined(value) for n, value in given if value is not None}
  if method.class_name and job != 'evaluate':
    flags['agent_name'] = method.class_name
    if module := user_modules.find(method.class_name):
      flags['module_dirs'] = os.path.dirname(module)
  arguments = ['-um', _PROGRAMS[job]]
  arguments += [f'--{flag}={value}' for flag, value in flags.items()]
  if job != 'evaluate':
    arguments += [f'--gin_files={path}' for path in gin_files]
    arguments += [f'--gin_bindings={binding}' for binding in bindings]
  texts = tuple(arguments), tuple(gin_files), tuple(bindings)
  return Cell(name, job, directory, *texts, flags.get('replay_dir'))


def _methods(settings) -> Iterable[_Method]:
  """Yields every agent with every combination of the grid and its own one."""
  shared = _strings('gin_bindings', settings['gin_bindings'])
  for agent, own_grid in _agents(settings):
    both = {**settings['grid'], **own_grid}
    grid = {name: _as_list(value) for name, value in both.items()}
    for parameter, values in grid.items():
      if not isinstance(parameter, str) or values in ([], [None]):
        raise ValueError(
          f'grid: {parameter!r} is not a parameter with a list of values.'
        )
    labels = {parameter: choices.short(parameter, grid) for parameter in grid}
    for combination in itertools.product(*grid.values()):
      chosen = dict(zip(grid, combination, strict=True))
      own = (f'{p} = {as_gin(value)}' for p, value in chosen.items())
      # With characters that a path may have.
      names = {p: re.sub(r'[^\w.+-]+', '_', str(v)) for p, v in chosen.items()}
      variant = (f'{labels[p]}={v.strip("_")}' for p, v in names.items())
      bindings = (*shared, *agent.gin_bindings, *own)
      yield agent._replace(gin_bindings=bindings, variant=','.join(variant))


def _agents(settings) -> Iterable[tuple[_Method, dict[str, Any]]]:
  """Yields each agent with its own gin files and bindings, and its own grid."""
  shipped = ONLINE if settings['job'] == 'online' else OFFLINE
  _strings('agents', [*settings['agents']])
  for name, own in settings['agents'].items():
    own = {'gin_files': own} if isinstance(own, str | list) else own or {}
    allowed = {'gin_files': object, 'gin_bindings': object, 'grid': dict}
    json_schema.check(own, allowed, f'agents.{name}')
    for key in own:
      choices.choose(f'setting of agent {name}:', key, allowed)
    class_name, short = None, os.path.basename(name).removesuffix('.gin')
    if name.endswith('.gin'):
      default = name
    elif user_modules.is_dotted(name):
      class_name, short = name, name.rpartition('.')[2]
      default = f'{shipped.config_folder}/base.gin'
    elif own.get('gin_files'):
      default = None
    else:
      known = shipped.configs
      default = known[choices.choose('agent', name, known)]
    paths = _strings('gin_files', own.get('gin_files') or default)
    bindings = _strings('gin_bindings', own.get('gin_bindings'))
    gin_files = tuple(map(_absolute, paths))
    method = _Method(short, gin_files, tuple(bindings), class_name)
    yield method, own.get('grid') or {}


def check_data(cells: Iterable[Cell]) -> None:
  """Checks that the runs to train cells on can be read.

  Raises:
    ValueError: If runs cannot be read. The message has some names and the first error.
  """
  wrong: dict[str, Exception] = {}
  runs = sorted({cell.replay_dir for cell in cells if cell.replay_dir})
  for run in runs:
    try:
      run_directories.find_data(run)
    except (ValueError, shard_reader.ReadError) as error:
      wrong['/'.join(pathlib.Path(run).parts[-2:])] = error
  if wrong:
    raise ValueError(
      f'{len(wrong)} of {len(runs)} runs cannot be read ({files.format_names(wrong)}): '
      f'leave them out, or complete them; the first: {[*wrong.values()][0]}'
    )


def _strings(name: str, value: Any) -> list[str]:
  """Returns a string or a list of strings as a list; None is an empty one."""
  values = _as_list(value)
  if wrong := [v for v in values if isinstance(v, dict)]:
    remedy = {
      'agents': 'give a mapping, without the dash',
      'gin_bindings': "give lines, e.g. ['Class.parameter = 3']",
    }
    raise ValueError(
      f'{name}: {wrong[0]!r} is a mapping: {remedy.get(name, "give texts")}.'
    )
  if wrong := [v for v in values if not isinstance(v, str)]:
    raise ValueError(f'{name}: {wrong[0]!r} is not a string: put it in quotes.')
  if name == 'agents' and (twice := [v for v in values if values.count(v) > 1]):
    raise ValueError(f'agents: {twice[0]} is given twice.')
  return values


def _as_list(value: Any) -> list[Any]:
  """Returns a list as it is, None as an empty one, and another value in one."""
  if isinstance(value, list):
    return value
  return [] if value is None else [value]


def _joined(value: Any) -> str:
  """Returns a value as text, and the values of a list separated by commas."""
  return ','.join(map(str, _as_list(value)))


def as_gin(value) -> str:
  """Returns a YAML value in gin syntax; strings in gin syntax are unchanged."""
  if isinstance(value, str):
    with contextlib.suppress(ValueError):
      syntax.parse(f'value = {value}')
      return value
  return syntax.format_value(value)


def _absolute(path: str) -> str:
  """Returns an absolute path, unless it is remote or in the package."""
  path = os.path.expanduser(path)
  if files.is_remote(path) or path.startswith('batch_rl/'):
    return path
  return os.path.abspath(path)
