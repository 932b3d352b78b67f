"""The record of the MinAtar benchmark: every evaluation, and statistics of the data.

`evaluations.csv` and `data.csv` are the record. Runs in a work directory replace their
rows or add new ones, so parts of the benchmark may be run on different machines, and run
directories need not be kept.
"""

import pathlib
from collections.abc import Iterator

import numpy as np
import pandas as pd

from batch_rl import dataset
from batch_rl.dataset.comparison import copies, fingerprints
from batch_rl.dataset.shards import manifests
from batch_rl.report import run_results
from batch_rl.runs import run_record
from batch_rl.sweep import cells as cell_lib
from batch_rl.utils import files
from benchmarks.evidence.minatar import protocol

# Columns that identify a run, and a run of the data.
RUN = ['stage', 'agent', 'setting', 'game', 'run']
DATA_RUN = ['game', 'run']
_DIAGNOSTICS = ('overestimation', 'srank')
EVALUATIONS = [
  *(*RUN, 'label', 'started', 'updates', 'mean_return', 'episodes'),
  *_DIAGNOSTICS,
]
STAGES = ('online', 'search', 'whole', 'parts', 'heads', 'networks', 'more')
TENTHS = [f'tenth_{i}' for i in range(1, 11)]
DATA = [
  *(*DATA_RUN, 'seed', 'agent_steps', 'episodes', 'mean_return', 'megabytes'),
  *(*TENTHS, 'fingerprint'),
]
# In labels: an agent of the user, and one whose data differ from the recorded ones.
YOURS, OTHER_DATA = ' (yours)', ' (yours, other data)'
METHODS = ('fqe', 'q_value', 'td_error')
SELECTION = ['game', 'agent', 'setting', 'return_last', *METHODS]
_TYPES = {'run': int, 'fingerprint': str, 'setting': str}


def read_evaluations(
  work_dir: pathlib.Path, agents: dict[str, protocol.Agent]
) -> pd.DataFrame:
  """Returns a row for each evaluation of the runs in a work directory.

  Args:
    work_dir: Directory with a folder for each stage.
    agents: Agents by folder.

  Returns:
    Columns `EVALUATIONS`. `setting` is the configuration, in stage `parts` the subset,
    in `heads` and `networks` their number, and '' in `online` and `more`; `started` is
    the date of the run's start, to look up the version of the code; `updates` is the
    number so far.
  """
  rows = []
  package = {agent.folder for agent in protocol.AGENTS}
  for stage in STAGES:
    for run, folder, number in _runs(work_dir / stage):
      # The search decides its share, which is 10 % in its name.
      label = '%BC' if folder == 'percent_bc' else run.agent
      if stage in ('search', 'whole', 'parts') and folder not in package:
        if folder not in agents:
          print(f'left out: {run.directory}: name its agent in --agents')
          continue
        label += YOURS
      made = run_record.read(run.directory)
      bindings = run_record.bindings(made['gin_config'])
      [steps] = {
        int(value)
        for name, value in bindings.items()
        if name.endswith('Runner.training_steps')
      }
      if stage in ('online', 'more'):
        setting = ''
      elif stage == 'parts':
        setting = run.protocol['subset']
      elif stage in ('heads', 'networks'):
        [setting] = {
          value
          for name, value in bindings.items()
          if name.endswith(f'DQNAgent.num_{stage}')
        }
      else:
        setting = _configuration(agents[folder], run.directory)
      fixed = stage, folder, setting, run.game, number, label
      fixed += (made.get('started', '')[:10],)
      absent = np.full(run.done, np.nan)
      diagnostics = [run.diagnostics.get(n, absent) for n in _DIAGNOSTICS]
      for i in range(run.done):
        updates = steps // protocol.UPDATE_PERIOD * (i + 1)
        found = run.returns[i], run.episodes[i], *(d[i] for d in diagnostics)
        rows.append((*fixed, updates, *found))
  return pd.DataFrame(rows, columns=EVALUATIONS)


def cells(folder: pathlib.Path) -> pd.DataFrame:
  """Returns `directory`, `state` and `message` of the cells that have begun."""
  found = [
    {
      'directory': str(path.parent),
      'message': '',
      **(files.read_json(str(path)) or {}),
    }
    for path in folder.glob('**/run-*/seed-*/sweep-offline.json')
  ]
  return pd.DataFrame(found, columns=['directory', 'state', 'message'])


def diverged(folder: pathlib.Path, agent: protocol.Agent) -> set[str]:
  """Returns the configurations of an agent whose loss was not finite, by name."""
  begun = cells(folder)
  failed = begun.state.eq(cell_lib.FAILED) & begun.message.str.contains(
    'The loss is '
  )
  return {
    _configuration(agent, d)
    for d in begun.directory[failed]
    if agent.folder in pathlib.Path(d).relative_to(folder).parts
  }


def _configuration(agent: protocol.Agent, directory: str) -> str:
  """Returns the name of the configuration of a run."""
  bindings = run_record.bindings(run_record.read(directory)['gin_config'])
  try:
    return agent.configuration(bindings).name
  except ValueError as error:
    raise ValueError(f'{directory}: {error}') from error


def _runs(
  folder: pathlib.Path,
) -> Iterator[tuple[run_results.RunResults, str, int]]:
  """Yields the runs of a stage that have evaluations, their agents' folders and numbers."""
  if not folder.exists():
    return
  for directory in run_results.find_runs([str(folder)])[0]:
    try:
      run = run_results.read_run(directory)
    except run_results.NoResultsError as error:
      print(f'left out: {error}')
      continue
    sweep = files.read_json(f'{directory}/sweep-offline.json') or {}
    if sweep.get('state') in (cell_lib.RUNNING, cell_lib.STOPPED):
      print(f'left out: {directory}: it is under way')
      continue
    above = pathlib.Path(directory).relative_to(folder).parts
    # Sweeps of the search have a number each; variants of a grid have `name=value`.
    agent = next(p for p in above if not p.isdigit())
    number = next(p for p in above if p.startswith('run-'))
    yield run, agent, int(number.removeprefix('run-'))


def read_data(work_dir: pathlib.Path) -> pd.DataFrame:
  """Returns a row for each complete run of the data in a work directory.

  Returns:
    Columns `DATA`: the online agent's `seed`, mean unclipped returns of all episodes
    and of those that end in each tenth of the run, `megabytes` of the shards, and
    the sum that `python -m batch_rl.dataset fingerprint` prints.
  """
  rows = []
  for logs in sorted((work_dir / 'data').glob('*/*/replay_logs')):
    try:
      manifest = manifests.read(str(logs))
    except ValueError as error:
      print(f'left out: {logs}: {error}')
      continue
    count = manifests.look_up(manifest, 'episodes', 'count', kind=int)
    if (logs / 'partial').exists() or not count:
      print(f'left out: {logs}: it is being written')
      continue
    copy = copies.open_copy(str(logs.parent))
    copy.read(True, lambda count: None)
    episodes = manifest['episodes']
    size = sum(path.stat().st_size for path in logs.iterdir()) / 1e6
    rows.append(
      (
        manifest['environment']['game'],
        int(logs.parent.name),
        manifest['seed'],
        manifest['rows'],
        episodes['count'],
        episodes['unclipped_return']['mean'],
        round(size, 2),
        *_tenths(str(logs.parent), manifest['rows']),
        fingerprints.make(copy)['sum'],
      )
    )
  return pd.DataFrame(rows, columns=DATA)


def _tenths(run, rows):
  """Returns the mean return of the episodes that end in each tenth of a run."""
  returns: list[list[float]] = [[] for _ in TENTHS]
  steps = 0
  for episode in dataset.open(run).trajectories():
    steps += len(episode.action)
    if episode.unclipped_return is not None:
      tenth = min(10 * (steps - 1) // rows, 9)
      returns[tenth].append(episode.unclipped_return)
  return [np.mean(part) if part else np.nan for part in returns]


def add_evaluations(old: pd.DataFrame, new: pd.DataFrame) -> pd.DataFrame:
  """Adds runs to the record, in which one with more updates replaces another.

  A recorded run stays otherwise: on another kind of processor it may have other results,
  and settings were chosen by those of the record.

  Raises:
    ValueError: If there are several new runs of an agent on the same data.
  """
  if (again := new.duplicated([*RUN, 'updates'])).any():
    twice = new[again].iloc[0]
    raise ValueError(
      f'The work directory has several runs of {twice.agent} {twice.setting} on '
      f'{twice.game} {twice.run} in stage {twice.stage}: move all but one of them '
      'elsewhere.'
    )
  return _add(old, new, RUN, 'updates')


def add_data(
  old: pd.DataFrame, new: pd.DataFrame
) -> tuple[pd.DataFrame, set[tuple[str, int]]]:
  """Adds runs of the data to the record.

  Returns:
    The record, and the keys `DATA_RUN` of new runs that differ from recorded ones. These
    stay as recorded: the same seed may make other data on another kind of processor.
  """
  both = old.merge(new, on=DATA_RUN, suffixes=('', '_new'))
  differing = both[both.fingerprint != both.fingerprint_new]
  others = {*differing.set_index(DATA_RUN).index}
  same = new[~new.set_index(DATA_RUN).index.isin(others)]
  return _add(old, same, DATA_RUN, 'agent_steps'), others


def _add(old, new, key, length):
  """Joins rows; of two runs with the same key, the longer one stays, or the old one."""
  if old.empty or new.empty:
    rows = old if new.empty else new
  else:
    recorded = old.groupby(key)[length].max()
    made = new.groupby(key)[length].max()
    both = recorded.index.intersection(made.index)
    kept = both[recorded[both] >= made[both]]
    for run in both[recorded[both] > made[both]]:
      print(
        f'kept as recorded: {" ".join(map(str, run))}, {recorded[run]} {length}; the '
        f'work directory has {made[run]}'
      )
    new = new[~new.set_index(key).index.isin(kept)]
    is_replaced = old.set_index(key).index.isin(made.index.difference(kept))
    rows = pd.concat([old[~is_replaced], new])
  return rows.sort_values([*key, length], ignore_index=True).round(4)


def read(path: pathlib.Path, columns: list[str]) -> pd.DataFrame:
  """Returns a file of the record; no rows if it is missing."""
  if not path.exists():
    return pd.DataFrame(columns=columns)
  texts = [name for name, kind in _TYPES.items() if kind is str]
  rows = pd.read_csv(path, dtype=_TYPES, na_values=[''], keep_default_na=False)
  return rows.fillna({name: '' for name in texts if name in rows})


def save(rows: pd.DataFrame, path: pathlib.Path) -> None:
  """Writes a file of the record."""
  content = rows.to_csv(index=False, lineterminator='\n')
  files.write_bytes(str(path), content.encode())


def update(
  work_dir: pathlib.Path, out: pathlib.Path, agents: dict[str, protocol.Agent]
) -> tuple[pd.DataFrame, pd.DataFrame, pd.DataFrame]:
  """Adds the runs of a work directory to the record in `out`.

  Returns:
    Evaluations, data, and ranks of policies.

  Raises:
    ValueError: If the runs contradict the record, or lack their data.
  """
  data, others = add_data(read(out / 'data.csv', DATA), read_data(work_dir))
  new = _mark_other_data(read_evaluations(work_dir, agents), others)
  known = {*data.set_index(DATA_RUN).index}
  # An online run counts when its data are complete.
  has_data = np.array([*new.set_index(DATA_RUN).index.isin(known)], bool)
  new = new[has_data | (new.stage != 'online')]
  old = read(out / 'evaluations.csv', EVALUATIONS)
  evaluations = add_evaluations(old, new)
  if missing := {*evaluations.set_index(DATA_RUN).index} - known:
    game, run = min(missing)
    raise ValueError(
      f'There are runs on {game} {run}, whose data are neither complete in {work_dir}/'
      f'data nor in {out}/data.csv.'
    )
  out.mkdir(parents=True, exist_ok=True)
  save(data, out / 'data.csv')
  save(evaluations, out / 'evaluations.csv')
  return evaluations, data, _update_selection(work_dir, out, agents)


def _mark_other_data(
  new: pd.DataFrame, others: set[tuple[str, int]]
) -> pd.DataFrame:
  """Marks agents of the user that have learned from other data than the recorded ones.

  Raises:
    ValueError: If an agent of the package has.
  """
  keys = zip(new.game, new.run, strict=True)
  differs = pd.Series([key in others for key in keys], new.index, dtype=bool)
  # Online runs of those data do not count: all are normalised by the recorded ones.
  new = new[~(differs & new.stage.eq('online'))]
  learned = new[differs.reindex(new.index)]
  if not (is_users := learned.label.str.endswith(YOURS)).all():
    one = learned[~is_users].iloc[0]
    raise ValueError(
      f'The data of {one.game} {one.run}, from which {one.label} has learned, are not the '
      'recorded ones: choose another directory for --out.'
    )
  labels = new.label.str.removesuffix(YOURS) + OTHER_DATA
  return new.assign(
    label=new.label.mask(new.agent.isin({*learned.agent}), labels)
  )


def _update_selection(
  work_dir: pathlib.Path, out: pathlib.Path, agents: dict[str, protocol.Agent]
) -> pd.DataFrame:
  """Adds the ranks of `batch_rl.fixed_replay.select` to `selection.csv` in `out`.

  Returns:
    Columns `SELECTION`; a row for each policy. `return_last` is the mean of its run's
    last evaluations, which may differ from the record's on another kind of processor.
  """
  rows = []
  for path in sorted((work_dir / 'selection').glob('*/scores.csv')):
    for policy in pd.read_csv(path).to_dict('records'):
      if run_record.read(policy['run']) is None:
        continue  # The run is gone; its row may be in the record.
      # <agent>/<game>/run-<number>/seed-<number>
      folder = pathlib.Path(policy['run']).absolute().parts[-4]
      setting = _configuration(agents[folder], policy['run'])
      returns = run_results.read_run(policy['run']).returns
      last = returns[-protocol.EVALUATIONS_IN_SCORE :].mean()
      found = (policy[method] for method in METHODS)
      rows.append((path.parent.name, folder, setting, last, *found))
  new = pd.DataFrame(rows, columns=SELECTION).round(4)
  old = read(out / 'selection.csv', SELECTION)
  rows = (new if old.empty else pd.concat([old, new])) if rows else old
  rows = rows.drop_duplicates(SELECTION[:3], keep='last')
  rows = rows.sort_values(SELECTION[:3], ignore_index=True)
  if not rows.empty:
    save(rows, out / 'selection.csv')
  return rows
