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
from batch_rl.report.comparison import Comparison
from batch_rl.report.run_results import RunResults

UPDATE_PERIOD = 4  # agent steps: configs/base.gin
REPETITIONS = 2000  # bootstrap samples
REFERENCES = 'DQN (Adam), online', 'DQN (Adam)'
# A run of an agent, an online one if its subset is ''. A run of the data.
RUN = ['agent', 'game', 'run', 'subset']
DATA_RUN = ['game', 'run']
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
}


def read_evaluations(work_dir: pathlib.Path) -> pd.DataFrame:
  """Returns a row for each evaluation of the runs in a work directory.

  The columns are `RUN`, `updates` (number of updates so far) and `mean_return`.
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
      {
        'game': manifest['environment']['game'],
        'run': int(logs.parent.name),
        'seed': manifest['seed'],
        'agent_steps': manifest['rows'],
        'episodes': episodes['count'],
        'mean_return': round(episodes['unclipped_return']['mean'], 4),
        'megabytes': round(size, 2),
        'fingerprint': fingerprints.make(copy)['sum'],
      }
    )
  return pd.DataFrame(rows)


def update(
  path: pathlib.Path, new: pd.DataFrame, key: Sequence[str]
) -> pd.DataFrame:
  """Replaces the rows of a CSV file that have the keys of new rows; adds the others."""
  if path.exists():
    old = pd.read_csv(path, keep_default_na=False)
    if not new.empty:
      replaced = old.set_index(key).index.isin(new.set_index(key).index)
      new = pd.concat([old[~replaced], new])
    else:
      new = old
  new = new.sort_values(list(key), kind='stable', ignore_index=True)
  new.round(4).to_csv(path, index=False, lineterminator='\n')
  return new


def as_runs(evaluations: pd.DataFrame) -> list[RunResults]:
  """Returns the runs of rows of `evaluations.csv`, to compare them as a report does."""
  runs = []
  for key, rows in evaluations.groupby(RUN, sort=False):
    agent, game, number, subset = key
    returns = rows.mean_return.to_numpy(float)
    runs.append(
      RunResults(
        '/'.join(map(str, key)),
        agent,
        game,
        returns,
        np.zeros(len(returns), int),
        seed=str(number),
        data=f'{game}/{number}' if subset else '',
        protocol={'subset': subset} if subset else {},
      )
    )
  return runs


def table(evaluations: pd.DataFrame, data: pd.DataFrame) -> str:
  """Returns a Markdown table: mean and range over runs of the last evaluation."""
  games = sorted(set(evaluations.game))
  lines = [
    'Return in the last evaluation: mean over runs (lowest, highest).\n',
    '| agent | data | ' + ' | '.join(games) + ' |',
    '| --- ' * (len(games) + 2) + '|',
  ]

  def add(agent, subset, by_game):
    cells = [_cell(by_game.get(game, ())) for game in games]
    lines.append(f'| {agent} | {subset} | ' + ' | '.join(cells) + ' |')

  add('random actions', '', {g: [normalisation.random_score(g)] for g in games})
  add('mean of the data', '', dict(list(data.groupby('game').mean_return)))
  last = evaluations.groupby(RUN, sort=False).mean_return.last().reset_index()
  methods = last.groupby(['subset', 'agent'])
  for (subset, agent), rows in sorted(
    methods, key=lambda item: _place(*item[0])
  ):
    add(agent, subset, dict(list(rows.groupby('game').mean_return)))
  return '\n'.join(lines) + '\n'


def aggregates_table(compared: Comparison, data: pd.DataFrame) -> str:
  """Returns a Markdown table that compares methods over games, as reports do.

  A probability of improvement needs two runs of both methods.

  Args:
    compared: Runs, on the whole of the data or on parts.
    data: Rows of `data.csv`.
  """
  summary = aggregates.summarise(compared, 'final', 'dqn_final', REPETITIONS)
  scores, games = summary.matrices.scores, summary.matrices.games
  others = [name for name in REFERENCES if len(scores.get(name, ())) > 1]
  headings = ['method', 'IQM', *(f'P(> {name})' for name in others)]
  lines = [
    f'Normalised scores in {", ".join(games)} (0: random actions, 1: mean of the online '
    'DQNs): interquartile mean, and probability that a run is better than one of '
    'another method [95 % intervals]; runs that are better than the mean return of '
    'their data.\n',
    f'| {" | ".join(headings)} | above the data |',
    '| --- ' * (len(headings) + 1) + '|',
  ]
  means = data.astype({'run': str}).set_index(DATA_RUN).mean_return
  for method, values in scores.items():
    cells = [_interval(summary.metrics[method])]
    for other in others:
      pair = {other: scores[other], method: values}
      estimates = aggregates.improvements(pair, REPETITIONS).values()
      cells.append(' '.join(map(_interval, estimates)))  # '' beside itself
    above = [
      run.returns[-1] > means[game, run.seed]
      for game in games
      for run in compared.select(method, game)
    ]
    cells.append(f'{sum(above)} of {len(above)}')
    lines.append(f'| {method} | ' + ' | '.join(cells) + ' |')
  notes = [f'{note}\n' for note in summary.matrices.notes]
  notes += [f'left out: {run}: {why}\n' for run, why in compared.excluded]
  return '\n'.join([*lines, '', *notes])


def _beside_whole(parts, whole):
  """Compares agents trained on parts of the data with the same ones on the whole."""
  trained = {(run.agent, run.game) for run in parts}
  runs = [*parts, *(run for run in whole if (run.agent, run.game) in trained)]
  return comparison.compare(runs, iterations=min(run.done for run in runs))


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


def _place(subset, agent):
  """Returns a sort key: the online agent, agents on the whole data, on parts."""
  names = list(_COLORS)
  place = names.index(agent) if agent in names else -1
  return subset not in ('', 'all'), subset, place, agent


def _cell(values):
  if len(values) < 2:
    return ''.join(f'{value:.2f}' for value in values)
  return f'{np.mean(values):.2f} ({min(values):.2f}, {max(values):.2f})'


def plot(
  evaluations: pd.DataFrame, data: pd.DataFrame, path: pathlib.Path
) -> None:
  """Plots returns over updates on all of the data; a line is a mean over runs.

  Games that no offline agent has played are left out, if there are others.
  """
  shown_rows = evaluations[evaluations.subset.isin(['', 'all'])]
  offline = shown_rows[shown_rows.subset == 'all']
  games = sorted(set((shown_rows if offline.empty else offline).game))
  columns = min(len(games), 3)
  rows = -(-len(games) // columns)
  fig = figure.Figure(
    figsize=(4.2 * columns + 1.6, 3.4 * rows), layout='constrained'
  )
  axes = fig.subplots(rows, columns, squeeze=False).ravel()
  shown = {}
  for ax, game in zip(axes, games, strict=False):
    lines = {
      'random actions': (normalisation.random_score(game), ':'),
      'mean of the data': (data[data.game == game].mean_return.mean(), '-.'),
    }
    for label, (value, style) in lines.items():
      shown[label] = ax.axhline(value, linestyle=style, color='#666666', lw=1)
    of_game = shown_rows[shown_rows.game == game].groupby(['subset', 'agent'])
    for (subset, agent), group in sorted(
      of_game, key=lambda item: _place(*item[0])
    ):
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
  """
  out.mkdir(parents=True, exist_ok=True)
  data = update(out / 'data.csv', read_data(work_dir), DATA_RUN)
  evaluations = update(out / 'evaluations.csv', read_evaluations(work_dir), RUN)
  if (work_dir / 'settings').exists():
    text = settings_table(work_dir)
    (out / 'settings.md').write_text(text, encoding='utf-8')
  is_whole = evaluations.subset.isin(['', 'all'])
  whole = as_runs(evaluations[is_whole])
  tables = [
    table(evaluations, data),
    aggregates_table(comparison.compare(whole), data),
  ]
  if parts := as_runs(evaluations[~is_whole]):
    tables.append(aggregates_table(_beside_whole(parts, whole), data))
  text = '\n'.join(tables)
  (out / 'summary.md').write_text(text, encoding='utf-8')
  plot(evaluations, data, out / 'minatar.png')
  print(text)
  print(out / 'minatar.png')
