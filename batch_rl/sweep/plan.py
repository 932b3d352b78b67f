"""The cells of a sweep and their command lines, read from its file."""

import ast
import collections
import dataclasses
import itertools
import os
import pathlib
import re
import shlex
from collections.abc import Iterable, Mapping
from typing import Any

import batch_rl
from batch_rl.baselines import parallel_runs
from batch_rl.dataset.store import store
from batch_rl.sweep import checked_values, yaml_file
from batch_rl.sweep import games as games_lib
from batch_rl.utils import choices, files
from batch_rl.utils.user_code import user_modules

_PACKAGE_PARENT = str(pathlib.Path(batch_rl.__file__).parents[1])
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
_MAX_CELLS = 100_000
_RATES = ('train', 'eval')
# Least values of the settings of evaluations that are integers.
_EVALUATE = {'evaluation_steps': 1, 'environments': 1, 'seed': 0}


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
    agent: Class of the user's agent, `module.Class`; None for the gin files' agent.
    module: File or folder of the module with that class; None if it is installed.
  """

  name: str
  job: str
  directory: str
  arguments: tuple[str, ...]
  gin_files: tuple[str, ...] = ()
  gin_bindings: tuple[str, ...] = ()
  replay_dir: str | None = None
  agent: str | None = None
  module: str | None = None


@dataclasses.dataclass(frozen=True)
class Sweep:
  """All cells of a sweep and their resources.

  Attributes:
    base_dir: Directory above the directories of the cells.
    job: 'offline', 'online' or 'evaluate'.
    cells: Cells in the order in which they start.
    cpus: Processors per cell.
    gpus: GPUs per cell; 0.25 is a quarter of one.
    memory_gb: Memory per cell in gigabytes, or None if unlimited.
    retries: Number of times that a killed cell is started again.
    rates: Speed of a cell before one has run: updates per second in 'train', agent steps
      per second in 'eval'. May be empty.
    slurm: Further SLURM parameters, named as in `submitit`.
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
  """Agent with its settings."""

  agent: str
  variant: str
  gin_files: tuple[str, ...]
  shared_files: tuple[str, ...]  # those of the sweep
  gin_bindings: tuple[str, ...]
  class_name: str | None  # `module.Class` of the user

  @property
  def name(self) -> str:
    return f'{self.agent} {self.variant}'.strip()

  @property
  def folder(self) -> str:
    return '/'.join(filter(None, (self.agent, self.variant.replace(' ', ','))))


def read(path: str | None, given: Mapping[str, Any]) -> Sweep:
  """Returns the sweep that a file and the command line describe.

  Args:
    path: Path of a YAML file, or None.
    given: Settings from the command line, which override the file. None means that a
      setting was not given.

  Raises:
    ValueError: If a setting is unknown, missing or invalid.
  """
  settings = _DEFAULTS | _read_yaml(path)
  for folder in (os.path.dirname(path or ''), ''):
    user_modules.add_folder(folder)
  settings |= {
    name: value for name, value in given.items() if value is not None
  }
  job = choices.choose('job', settings['job'], _PROGRAMS)
  needed = ['base_dir', 'games', 'agents']
  needed += [] if job == 'evaluate' else ['data_dir']
  if missing := [name for name in needed if not settings[name]]:
    raise ValueError(
      f'The sweep lacks {", ".join(missing)}: add '
      + ' and '.join(f'`{name}:`' for name in missing)
      + ' to its file, or give the flags of that name.'
    )
  for name in ('base_dir', 'data_dir', 'store_dir'):
    if not isinstance(settings[name], str | None):
      raise ValueError(
        f'{name}={settings[name]!r} is not a string: put it in quotes.'
      )
  if files.is_remote(settings['base_dir']):
    raise ValueError(
      f'base_dir={settings["base_dir"]} is remote: choose a directory that all '
      'machines share, as the cells coordinate through lock files.'
    )
  files.check_local(settings['store_dir'] or '')
  base_dir = os.path.abspath(os.path.expanduser(settings['base_dir']))
  cells = _list_cells(job, base_dir, settings)
  rates = checked_values.known_mapping(settings, 'rates', _RATES)
  return Sweep(
    base_dir=base_dir,
    job=job,
    cells=tuple(cells),
    cpus=checked_values.number(settings, 'cpus', 0.01),
    gpus=checked_values.number(settings, 'gpus', 0),
    memory_gb=settings['memory_gb']
    and checked_values.number(settings, 'memory_gb', 0),
    retries=int(checked_values.number(settings, 'retries', 0)),
    rates={
      name: checked_values.number(rates, name, 1e-6, 'rates.') for name in rates
    },
    slurm=checked_values.mapping(settings, 'slurm'),
  )


def command(cell: Cell) -> str:
  """Returns a cell's command line for a shell."""
  return shlex.join(['python', *cell.arguments])


def _read_yaml(path):
  if path is None:
    return {}
  if path.startswith('batch_rl/') and not os.path.exists(path):
    path = os.path.join(_PACKAGE_PARENT, path)
  content = yaml_file.read(path)
  if not isinstance(content, dict):
    raise ValueError(f'{path} is not a YAML mapping of `name: value`.')
  for name in content:
    choices.choose(f'setting in {path}:', name, _DEFAULTS)
  return content


def _list_cells(job, base_dir, settings):
  methods = _methods(job, settings)
  games = [
    games_lib.find(name, settings['data_dir'])
    for name in games_lib.listed(settings['games'])
  ]
  runs = checked_values.numbers('runs', settings['runs'])
  seeds = checked_values.numbers('seeds', settings['seeds'])
  if job == 'online' and len(seeds) > 1:
    raise ValueError(
      f'seeds={settings["seeds"]}: an online sweep has one seed, from which the '
      'seed of each run is derived. Increase `runs:` instead.'
    )
  count = len(seeds) * len(runs) * len(methods) * len(games)
  if count > _MAX_CELLS:
    raise ValueError(
      f'The sweep has {count:,} cells, more than {_MAX_CELLS:,}: make several sweeps.'
    )
  grid = itertools.product(seeds, runs, methods, games)
  cells = [
    _cell(job, base_dir, settings, method, game, run, seed, len(methods) > 1)
    for seed, run, method, game in grid
  ]
  counts = collections.Counter(cell.directory for cell in cells)
  if len(counts) < len(cells):
    [(duplicate, _)] = counts.most_common(1)
    raise ValueError(
      f'The sweep has {os.path.relpath(duplicate, base_dir)} twice: remove one.'
    )
  return cells


def _cell(job, base_dir, settings, method, game, run, seed, has_others) -> Cell:
  """Returns one cell; `has_others` is True for a sweep of several methods."""
  data_dir = settings['data_dir'] and _absolute(settings['data_dir'])
  name = f'{method.name} {game} {run}'
  directory = os.path.join(base_dir, method.folder, game, f'run-{run}')
  if job != 'online':
    name += f' seed {seed}'
    directory = os.path.join(directory, f'seed-{seed}')
  flags: dict[str, Any] = {'base_dir': directory}
  of_game = games_lib.settings(job, game)
  gin_files = (*method.gin_files, *of_game.gin_files, *method.shared_files)
  bindings = [*method.gin_bindings, *of_game.gin_bindings]
  if job == 'offline':
    flags['replay_dir'] = os.path.join(data_dir, game, str(run))
    flags['seed'] = seed
    if settings['store_dir']:
      stores = os.path.join(base_dir, _expand_user(settings['store_dir']))
      bindings.append(f'FixedReplayBuffer.cache_dir = "{stores}"')
  elif job == 'online':
    logs = [
      os.path.join(data_dir, folder, game, str(run))
      for folder in ('', method.folder)
    ]
    flags['replay_log_dir'] = _earlier_log(directory, logs) or logs[has_others]
    flags['seed'] = parallel_runs.seed_of(seed, run)
  else:
    flags |= _evaluate_flags(settings)
  module = method.class_name and user_modules.find(method.class_name)
  if method.class_name and job != 'evaluate':
    flags['agent_name'] = method.class_name
    if module:
      flags['module_dirs'] = os.path.dirname(module)
  arguments = ['-um', _PROGRAMS[job]]
  arguments += [f'--{flag}={value}' for flag, value in flags.items()]
  if job != 'evaluate':
    arguments += [f'--gin_files={path}' for path in gin_files]
    arguments += [f'--gin_bindings={binding}' for binding in bindings]
  return Cell(
    name,
    job,
    directory,
    tuple(arguments),
    gin_files,
    tuple(bindings),
    flags.get('replay_dir'),
    method.class_name,
    module,
  )


def _evaluate_flags(settings) -> dict[str, Any]:
  chosen = checked_values.known_mapping(
    settings, 'evaluate', ('checkpoints', *_EVALUATE)
  )
  for name, least in _EVALUATE.items():
    if name in chosen:
      checked_values.number(chosen, name, least, 'evaluate.', int)
  if 'checkpoints' not in chosen:
    return chosen
  checkpoints = checked_values.listed(chosen['checkpoints'])
  if not re.fullmatch(r'last|best|all|\d+(,\d+)*', checkpoints):
    raise ValueError(
      f"evaluate.checkpoints={checkpoints} is neither 'last', 'best' or 'all' nor a "
      'list of iterations like 3,7.'
    )
  return {**chosen, 'checkpoints': checkpoints}


def record_path(directory: str, job: str) -> str:
  """Returns the path of a cell's record."""
  return os.path.join(directory, f'sweep-{job}.json')


def _earlier_log(directory, logs) -> str | None:
  """Returns which of `logs` an online cell has begun; None for a new cell."""
  try:
    record = files.read_json(
      record_path(directory, 'online'), {'arguments': [str]}
    )
  except ValueError:  # Damaged by a crash.
    return None
  begun = (record or {}).get('arguments') or ()
  return next((log for log in logs if f'--replay_log_dir={log}' in begun), None)


def _methods(job, settings) -> list[_Method]:
  """Returns every agent with every combination of the grid."""
  grid = checked_values.mapping(settings, 'grid')
  for parameter, values in grid.items():
    if not isinstance(parameter, str) or values in ([], None):
      raise ValueError(
        f'grid: {parameter!r} is not a parameter with a list of values.'
      )
  grid_values = [
    [(parameter, value) for value in (v if isinstance(v, list) else [v])]
    for parameter, v in grid.items()
  ]
  labels = _short_names(grid)
  shared = tuple(
    _absolute(p) for p in checked_values.strings(settings, 'gin_files')
  )
  methods = []
  for agent, class_name, gin_files, bindings in _agents(
    job, settings['agents']
  ):
    for combination in itertools.product(*grid_values):
      methods.append(
        _Method(
          agent,
          ' '.join(f'{labels[p]}={_for_path(v)}' for p, v in combination),
          gin_files,
          shared,
          (
            *checked_values.strings(settings, 'gin_bindings'),
            *bindings,
            *(f'{p} = {as_gin(v)}' for p, v in combination),
          ),
          class_name,
        )
      )
  return methods


def _agents(
  job, agents
) -> Iterable[tuple[str, str | None, tuple[str, ...], tuple[str, ...]]]:
  """Yields name, the user's class, gin files and gin bindings of each agent."""
  if isinstance(agents, str):
    agents = [agents]
  if isinstance(agents, list):
    agents = dict.fromkeys(checked_values.strings({'agents': agents}, 'agents'))
  if not isinstance(agents, dict):
    raise ValueError(f'agents={agents} is neither a list nor a mapping.')
  for name, settings in agents.items():
    if not isinstance(name, str):
      raise ValueError(f'agents: {name!r} is not a string: put it in quotes.')
    if isinstance(settings, (str, list)):
      settings = {'gin_files': settings}
    settings = settings or {}
    if not isinstance(settings, dict):
      raise ValueError(
        f'agents: {name}: {settings!r} is not a mapping: give `gin_files:` and '
        '`gin_bindings:`.'
      )
    for key in settings:
      choices.choose(
        f'setting of agent {name}:', key, ('gin_files', 'gin_bindings')
      )
    paths = checked_values.strings(settings, 'gin_files')
    class_name = None
    if name.endswith('.gin'):
      paths = paths or [name]
    elif user_modules.is_dotted(name):
      class_name = name
      paths = paths or [f'{_config_folder(job)}/base.gin']
    else:
      paths = paths or [_packaged_config(job, name)]
    name = os.path.basename(name).removesuffix('.gin')
    yield (
      class_name.rpartition('.')[2] if class_name else name,
      class_name,
      tuple(map(_absolute, paths)),
      tuple(checked_values.strings(settings, 'gin_bindings')),
    )


def _config_folder(job):
  return _CONFIGS.get(job, _CONFIGS['offline'])


def _packaged_config(job, name):
  """Returns the path of the package's own gin file for an agent."""
  folder = _config_folder(job)
  names = os.listdir(os.path.join(_PACKAGE_PARENT, folder))
  configs = [
    name.removesuffix('.gin')
    for name in names
    if name.endswith('.gin') and name != 'base.gin'
  ]
  return f'{folder}/{choices.choose("agent", name, configs)}.gin'


def check_data(sweep: Sweep) -> None:
  """Checks that the runs to train on can be read.

  Raises:
    ValueError: If a run cannot be read. The message names it.
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
    f'{len(wrong)} of {len(runs)} runs cannot be read ({named}). Error of the '
    f'first: {wrong[0][1]}'
  )


def _short_names(grid) -> dict[str, str]:
  """Returns the last part of each gin parameter, or all of it if ambiguous."""
  last = [parameter.split('.')[-1] for parameter in grid]
  return {
    parameter: parameter if last.count(short) > 1 else short
    for parameter, short in zip(grid, last, strict=True)
  }


def as_gin(value) -> str:
  """Returns a YAML value in gin syntax; strings in gin syntax are unchanged."""
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


def _expand_user(path) -> str:
  return os.path.expanduser(str(path))


def _absolute(path) -> str:
  """Returns an absolute path, unless it is remote or in the package."""
  path = _expand_user(path)
  if files.is_remote(path) or path.startswith('batch_rl/'):
    return path
  return os.path.abspath(path)
