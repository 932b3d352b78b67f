"""Evaluations, tables and a figure of the runs of `benchmarks.evidence.minatar`.

`evaluations.csv` and `data.csv` are the record: runs in a work directory replace their
rows or add new ones, and tables and figure show all rows. So parts of the runs may be
made on different machines, and checkpoints need not be kept.
"""

import pathlib
from collections.abc import Sequence

import numpy as np
import pandas as pd
from matplotlib import figure

from batch_rl.dataset.comparison import copies, fingerprints
from batch_rl.dataset.shards import manifests
from batch_rl.report import aggregates, comparison, normalisation, run_results
from batch_rl.utils import files

UPDATE_PERIOD = 4  # agent steps: configs/base.gin
ONLINE = 'DQN (Adam), online'
# Columns that identify a run of an agent, and a run of the data.
RUN = ['agent', 'game', 'run', 'subset']
DATA_RUN = ['game', 'run']
# `subset` of an online run, and of an offline run on all data.
WHOLE = ['', 'all']
_COLORS = {
  'DQN (Nature)': '#888888',
  'DQN (Adam)': '#000000',
  'C51': '#56B4E9',
  'QR-DQN': '#0072B2',
  'Ensemble-DQN': '#F0E442',
  'Averaged Ensemble-DQN': '#E69F00',
  'REM': '#D55E00',
  'BC': '#009E73',
  'CQL': '#CC79A7',
  'BCQ': '#882255',
}


def read_evaluations(work_dir: pathlib.Path) -> pd.DataFrame:
  """Returns a row for each evaluation of the runs in a work directory.

  The columns are `RUN`, `updates` (number of updates so far) and `mean_return`. An
  online run has no `subset`.
  """
  rows = []
  for run in _find(work_dir, 'online', 'offline', 'subsets'):
    [steps] = {
      int(value)
      for name, value in run.config.items()
      if name.endswith('.training_steps')
    }
    [number] = {
      int(part.removeprefix('run-'))
      for part in pathlib.Path(run.directory).parts
      if part.startswith('run-')
    }
    subset = run.protocol['subset'] if run.data else ''
    for iteration, value in enumerate(run.returns, start=1):
      updates = steps // UPDATE_PERIOD * iteration
      rows.append((run.agent, run.game, number, subset, updates, value))
  return pd.DataFrame(rows, columns=[*RUN, 'updates', 'mean_return'])


def _find(work_dir, *names):
  """Yields the results of each run that has evaluations."""
  folders = [
    str(work_dir / name) for name in names if (work_dir / name).exists()
  ]
  for directory in run_results.find_runs(folders)[0]:
    try:
      yield run_results.read_run(directory)
    except run_results.NoResultsError as error:
      print(f'left out: {directory}: {error}')


def read_data(work_dir: pathlib.Path) -> pd.DataFrame:
  """Returns a row for each run of the data in a work directory.

  The columns are `DATA_RUN`, the online agent's `seed`, `agent_steps`, `episodes`,
  `mean_return` (unclipped), `megabytes` (size of the shards) and `fingerprint`, the sum
  that `python -m batch_rl.dataset fingerprint` prints.
  """
  rows = []
  for logs in sorted((work_dir / 'data').glob('*/*/replay_logs')):
    manifest = manifests.read(str(logs))
    episodes = manifest['episodes']
    if not episodes['count']:  # The run has just begun.
      continue
    copy = copies.open_copy(str(logs.parent))
    copy.read(True, lambda count: None)
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
        fingerprints.make(copy)['sum'],
      )
    )
  columns = 'seed agent_steps episodes mean_return megabytes fingerprint'
  return pd.DataFrame(rows, columns=[*DATA_RUN, *columns.split()])


def add_evaluations(old: pd.DataFrame, new: pd.DataFrame) -> pd.DataFrame:
  """Adds runs to rows of `evaluations.csv`; the one with more updates replaces another.

  Raises:
    ValueError: If there are several new runs of an agent on the same data.
  """
  if (again := new.duplicated([*RUN, 'updates'])).any():
    twice = new[again].iloc[0]
    raise ValueError(
      f'The work directory has several runs of {twice.agent} on {twice.game} '
      f'{twice.run} {twice.subset}: move all but one of them elsewhere.'
    )
  return _add(old, new, RUN, 'updates')


def add_data(old: pd.DataFrame, new: pd.DataFrame) -> pd.DataFrame:
  """Adds runs to rows of `data.csv`; one with more agent steps replaces another.

  Raises:
    ValueError: If a recorded run has other data: another seed, or as many agent steps
      that differ.
  """
  for one in old.merge(new, on=DATA_RUN, suffixes=('', '_new')).itertuples():
    has_grown = (
      one.seed == one.seed_new and one.agent_steps != one.agent_steps_new
    )
    if one.fingerprint != one.fingerprint_new and not has_grown:
      raise ValueError(
        f'The data of {one.game} {one.run} are not those on which the recorded runs '
        'were trained: choose another directory for --out.'
      )
  return _add(old, new, DATA_RUN, 'agent_steps')


def _add(old, new, key, length):
  """Joins rows; of two runs with the same key, the longer one stays, or the new one."""
  if old.empty or new.empty:
    rows = old if new.empty else new
  else:
    recorded = old.groupby(key)[length].max()
    made = new.groupby(key)[length].max()
    both = recorded.index.intersection(made.index)
    kept = both[recorded[both] > made[both]]
    for run in kept:
      print(
        f'kept as recorded: {" ".join(map(str, run))}, {recorded[run]} {length}; the '
        f'work directory has {made[run]}'
      )
    new = new[~new.set_index(key).index.isin(kept)]
    is_replaced = old.set_index(key).index.isin(made.index.difference(kept))
    rows = pd.concat([old[~is_replaced], new])
  return rows.sort_values([*key, length], ignore_index=True).round(4)


def _read(path, columns):
  if not path.exists():
    return pd.DataFrame(columns=columns)
  types = {'run': int, 'fingerprint': str, 'subset': str}
  return pd.read_csv(path, keep_default_na=False, dtype=types)


def _save(rows, path):
  content = rows.to_csv(index=False, lineterminator='\n')
  files.write_bytes(str(path), content.encode())


def section(
  evaluations: pd.DataFrame, data: pd.DataFrame, references: Sequence[str] = ()
) -> str:
  """Returns Markdown tables that compare methods after equally many updates.

  Args:
    evaluations: Rows of `evaluations.csv`. Offline runs are compared after the number
      of updates that all have made, online runs as well.
    data: Rows of `data.csv`.
    references: Agents for probabilities of improvement; one without two runs is left
      out.
  """
  kinds = np.where(evaluations.subset == '', 'online', 'offline')
  rows = evaluations.assign(kind=kinds).reset_index(drop=True)
  made = rows.groupby(RUN).updates.transform('max')
  rows = rows[rows.updates <= made.groupby(rows.kind).transform('min')]
  counts = [
    f'{kind} agents after {updates:,} updates'
    for kind, updates in rows.groupby('kind').updates.max().items()
  ]
  return '\n'.join(
    (
      f'Scores are returns in the last evaluation, of {", ".join(counts)}.\n',
      _returns(rows, data),
      _aggregates(rows, data, references),
    )
  )


def _returns(rows, data):
  """Returns a Markdown table of returns: means and ranges over runs."""
  games = sorted(set(rows.game))
  lines = [
    'Mean over runs (lowest, highest):\n',
    '| agent | data | ' + ' | '.join(games) + ' |',
    '| --- ' * (len(games) + 2) + '|',
  ]

  def add(agent, subset, by_game):
    cells = [_cell(by_game.get(game, ())) for game in games]
    lines.append(f'| {agent} | {subset} | ' + ' | '.join(cells) + ' |')

  add(
    'random actions',
    '',
    {g: [normalisation.load()[g]['random']] for g in games},
  )
  add('mean of the data', '', dict(list(data.groupby('game').mean_return)))
  last = rows.groupby(RUN).mean_return.last().reset_index()
  for (subset, agent), group in _sorted(last):
    add(agent, subset, dict(list(group.groupby('game').mean_return)))
  return '\n'.join(lines) + '\n'


def _aggregates(rows, data, references):
  """Returns a Markdown table of aggregates over games, made as reports make them."""
  compared = comparison.compare(_as_runs(rows))
  summary = aggregates.summarise(compared, 'final', 'dqn_final')
  scores, games = summary.scores, summary.games
  notes = [f'{note}\n' for note in summary.notes]
  if not games:
    return '\n'.join(notes)
  means = data.set_index(DATA_RUN).mean_return
  references = [name for name in references if len(scores.get(name, ())) > 1]
  headings = ['method', 'IQM', *(f'P(> {name})' for name in references)]
  improvement = (
    'probability that a run is better than one of the named agent; '
    if references
    else ''
  )
  lines = [
    f'Normalised scores in {", ".join(games)} (0: random actions, 1: mean of the online '
    f'DQNs): interquartile mean; {improvement}number of runs that are better than the '
    'mean return of the whole run of the data. In brackets: 95 % intervals.\n',
    f'| {" | ".join(headings)} | above the data |',
    '| --- ' * (len(headings) + 1) + '|',
  ]
  for method, values in scores.items():
    cells = [_interval(summary.metrics[method])]
    for reference in references:
      if method == reference:
        cells.append('')
        continue
      pair = {reference: scores[reference], method: values}
      [estimate] = aggregates.improvements(pair).values()
      cells.append(_interval(estimate))
    runs = [r for game in games for r in compared.select(method, game)]
    above = [
      run.returns[-1] > means[run.game, run.provenance['run']] for run in runs
    ]
    cells.append(f'{sum(above)} of {len(above)}')
    lines.append(f'| {method} | ' + ' | '.join(cells) + ' |')
  return '\n'.join([*lines, '', *notes])


def _as_runs(rows):
  """Yields runs as a report reads them. On parts of the data, agents are named so."""
  has_parts = not set(rows.subset) <= set(WHOLE)
  for (agent, game, number, subset), group in rows.groupby(RUN):
    returns = group.mean_return.to_numpy(float)
    yield run_results.RunResults(
      f'{agent}/{game}/run-{number}/{subset}',
      f'{agent}, {subset}' if has_parts else agent,
      game,
      returns,
      np.zeros(len(returns), int),
      seed=str(number),
      provenance={'run': number},
    )


def _interval(estimate):
  """Formats the first value of an estimate, e.g. the first of `aggregates.METRICS`."""
  value, low, high = estimate.value[0], estimate.low[0], estimate.high[0]
  if np.isnan(low):  # a single run
    return f'{value:.2f}'
  return f'{value:.2f} [{low:.2f}, {high:.2f}]'


def settings_table(work_dir: pathlib.Path) -> str:
  """Returns a Markdown table: last evaluations of the runs that settings.yaml lists."""
  rows = []
  for run in _find(work_dir, 'settings'):
    [name] = [part for part in pathlib.Path(run.directory).parts if '=' in part]
    setting = name.replace(',', ', ').replace('=', ' ')
    rows.append((setting, run.agent, run.returns[-1]))
  frame = pd.DataFrame(rows, columns=['settings', 'agent', 'value'])
  frame = frame.pivot(index='settings', columns='agent', values='value')
  frame = frame[sorted(frame, key=lambda agent: _place('', agent))]
  frame['mean'] = frame.mean(axis=1, skipna=False)
  lines = [
    '| settings | ' + ' | '.join(frame) + ' |',
    '| --- ' * (len(frame.columns) + 1) + '|',
  ]
  for setting, values in frame.iterrows():
    cells = [f'{value:.2f}' for value in values]
    lines.append(f'| {setting} | ' + ' | '.join(cells) + ' |')
  return '\n'.join(lines) + '\n'


def _sorted(rows):
  """Returns `((subset, agent), rows)`: online, on the whole data, on parts of it."""
  return sorted(
    rows.groupby(['subset', 'agent']), key=lambda item: _place(*item[0])
  )


def _place(subset, agent):
  """Returns a sort key of methods."""
  names = list(_COLORS)
  place = names.index(agent) if agent in names else -1
  return subset not in WHOLE, subset, place, agent


def _cell(values):
  """Formats the mean of values and their range, or a single value."""
  if len(values) == 0:
    return ''
  if len(values) == 1:
    return f'{next(iter(values)):.2f}'
  return f'{np.mean(values):.2f} ({min(values):.2f}, {max(values):.2f})'


def plot(
  evaluations: pd.DataFrame, data: pd.DataFrame, path: pathlib.Path
) -> None:
  """Plots returns over updates on all of the data; a line is a mean over runs.

  Games that no offline agent has played are left out, if there are others.
  """
  whole = evaluations[evaluations.subset.isin(WHOLE)]
  offline = whole[whole.subset != '']
  games = sorted(set((whole if offline.empty else offline).game))
  columns = min(len(games), 3)
  rows = -(-len(games) // columns)
  fig = figure.Figure(
    figsize=(4.2 * columns + 1.6, 3.4 * rows), layout='constrained'
  )
  axes = fig.subplots(rows, columns, squeeze=False).ravel()
  shown = {}
  for ax, game in zip(axes, games, strict=False):
    lines = {
      'random actions': (normalisation.load()[game]['random'], ':'),
      'mean of the data': (data[data.game == game].mean_return.mean(), '-.'),
    }
    for label, (value, style) in lines.items():
      shown[label] = ax.axhline(value, linestyle=style, color='#666666', lw=1)
    for (subset, agent), group in _sorted(whole[whole.game == game]):
      curves = group.pivot(
        index='updates', columns='run', values='mean_return'
      ).dropna()
      color = _COLORS.get(agent, '#332288') if subset else '#666666'
      label = agent if subset else 'online DQN'
      [shown[label]] = ax.plot(
        curves.mean(axis=1), '-' if subset else '--', color=color, lw=2
      )
      if len(curves.columns) > 1:
        low, high = curves.min(axis=1), curves.max(axis=1)
        ax.fill_between(curves.index, low, high, color=color, alpha=0.12, lw=0)
    ax.set_title(game.replace('-', '/'))
    ax.set_xlabel('thousand updates')
    ax.set_ylabel('return')
    ax.xaxis.set_major_formatter(lambda value, _: f'{value / 1000:g}')
    ax.grid(color='#dddddd')
  for ax in axes[len(games) :]:
    ax.axis('off')
  fig.legend(
    shown.values(), shown.keys(), loc='outside right center', frameon=False
  )
  fig.savefig(path, pil_kwargs={'optimize': True})


def write(work_dir: pathlib.Path, out: pathlib.Path) -> None:
  """Updates `data.csv` and `evaluations.csv`; writes `minatar.png`, `summary.md`.

  `settings.md` is written if there are runs of settings.yaml.

  Raises:
    ValueError: If the runs contradict the record, or evaluations lack their data.
  """
  new_data, new = read_data(work_dir), read_evaluations(work_dir)
  data = add_data(_read(out / 'data.csv', new_data.columns), new_data)
  evaluations = add_evaluations(
    _read(out / 'evaluations.csv', new.columns), new
  )
  if evaluations.empty:
    raise ValueError(f'There are no evaluations in {work_dir} or {out}.')
  if new.empty:
    print(f'{work_dir} has no runs: the tables are those of {out}.')
  if missing := {*evaluations.set_index(DATA_RUN).index} - {
    *data.set_index(DATA_RUN).index
  }:
    game, run = min(missing)
    raise ValueError(
      f'There are runs on {game} {run}, whose data are neither in {work_dir}/data nor '
      f'in {out}/data.csv.'
    )
  out.mkdir(parents=True, exist_ok=True)
  _save(data, out / 'data.csv')
  _save(evaluations, out / 'evaluations.csv')
  if (work_dir / 'settings').exists():
    text = settings_table(work_dir)
    (out / 'settings.md').write_text(text, encoding='utf-8')
  is_whole = evaluations.subset.isin(WHOLE)
  whole, parts = evaluations[is_whole], evaluations[~is_whole]
  text = section(whole, data, references=(ONLINE, 'DQN (Adam)'))
  if len(parts):
    trained = parts.set_index(['agent', 'game']).index
    same = whole.set_index(['agent', 'game']).index.isin(trained)
    text += '\n## Parts of the data\n\n'
    text += section(pd.concat([whole[same], parts]), data)
  (out / 'summary.md').write_text(text, encoding='utf-8')
  plot(evaluations, data, out / 'minatar.png')
  print(text)
  print(out / 'minatar.png')
