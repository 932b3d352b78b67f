"""Evaluations, a table and a figure of the runs of `benchmarks.evidence.minatar`."""

import collections
import csv
import dataclasses
import pathlib
from collections.abc import Sequence

import numpy as np
from matplotlib import figure

from batch_rl.dataset.comparison import copies, fingerprints
from batch_rl.dataset.shards import manifests
from batch_rl.report import aggregates, normalisation, run_results

UPDATE_PERIOD = 4  # agent steps: configs/base.gin
REPETITIONS = 2000  # bootstrap samples
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


@dataclasses.dataclass(frozen=True)
class Run:
  """A run.

  Attributes:
    agent: Name of the agent; of an online one, it ends in ', online'.
    game: Name of the game.
    number: Run of the dataset.
    subset: Part of the data; '' for an online run.
    updates: Numbers of updates at the evaluations, (evaluations,).
    returns: Mean returns of the evaluations, (evaluations,).
  """

  agent: str
  game: str
  number: int
  subset: str
  updates: np.ndarray
  returns: np.ndarray

  @property
  def is_online(self) -> bool:
    """Whether the run made data."""
    return self.agent.endswith(', online')

  @property
  def score(self) -> float:
    """Mean return of the last evaluation."""
    return float(self.returns[-1])


def read(work_dir: pathlib.Path) -> list[Run]:
  """Returns the runs in a work directory that have evaluations."""
  runs = []
  for directory, found in _find(work_dir, 'online', 'offline', 'subsets'):
    is_online = found.agent.endswith(', online')
    [steps] = {
      int(value)
      for name, value in found.config.items()
      if name.endswith('.training_steps')
    }
    [number] = {
      int(part.removeprefix('run-'))
      for part in pathlib.Path(directory).parts
      if part.startswith('run-')
    }
    updates = steps // UPDATE_PERIOD * np.arange(1, found.done + 1)
    subset = '' if is_online else found.protocol['subset']
    runs.append(
      Run(found.agent, found.game, number, subset, updates, found.returns)
    )
  return runs


def _find(work_dir, *names):
  """Yields the directory and the results of each run that has evaluations."""
  folders = [
    str(work_dir / name) for name in names if (work_dir / name).exists()
  ]
  for directory in run_results.find_runs(folders)[0]:
    try:
      yield directory, run_results.read_run(directory)
    except run_results.NoResultsError as error:
      print(f'left out: {directory}: {error}')


@dataclasses.dataclass(frozen=True)
class Data:
  """A run of the data: a row of `data.csv`.

  Attributes:
    game: Name of the game.
    run: Number of the run.
    seed: Seed of the online agent.
    agent_steps: Number of agent steps.
    episodes: Number of episodes.
    mean_return: Mean unclipped return of the episodes.
    megabytes: Size of the shards.
    fingerprint: Sum that `python -m batch_rl.dataset fingerprint` prints.
  """

  game: str
  run: int
  seed: int
  agent_steps: int
  episodes: int
  mean_return: float
  megabytes: float
  fingerprint: str


def read_data(work_dir: pathlib.Path) -> list[Data]:
  """Returns the runs of the data in a work directory."""
  data = []
  for logs in sorted((work_dir / 'data').glob('*/*/replay_logs')):
    manifest = manifests.read(str(logs))
    episodes = manifest['episodes']
    if not episodes['count']:  # the run has just begun
      continue
    copy = copies.open_copy(str(logs.parent))
    copy.read(True, lambda count: None)
    data.append(
      Data(
        manifest['environment']['game'],
        int(logs.parent.name),
        manifest['seed'],
        manifest['rows'],
        episodes['count'],
        round(episodes['unclipped_return']['mean'], 4),
        round(sum(path.stat().st_size for path in logs.iterdir()) / 1e6, 2),
        fingerprints.make(copy)['sum'],
      )
    )
  return data


def write_data(data: Sequence[Data], path: pathlib.Path) -> None:
  """Writes a row for each run of the data to a CSV file."""
  with open(path, 'w', newline='', encoding='utf-8') as file:
    writer = csv.writer(file, lineterminator='\n')
    writer.writerow(field.name for field in dataclasses.fields(Data))
    writer.writerows(map(dataclasses.astuple, data))


def write_evaluations(runs: Sequence[Run], path: pathlib.Path) -> None:
  """Writes a row for each evaluation to a CSV file."""
  with open(path, 'w', newline='', encoding='utf-8') as file:
    writer = csv.writer(file, lineterminator='\n')
    writer.writerow(
      ('agent', 'game', 'run', 'subset', 'updates', 'mean_return')
    )
    for run in runs:
      for updates, value in zip(run.updates, run.returns, strict=True):
        row = run.agent, run.game, run.number, run.subset, updates
        writer.writerow((*row, f'{value:.4f}'))


def table(runs: Sequence[Run], means: dict[str, list[float]]) -> str:
  """Returns a Markdown table: mean and range over runs of the last evaluation."""
  games = sorted({run.game for run in runs})
  lines = [
    'Return in the last evaluation: mean over runs (lowest, highest).\n',
    '| agent | data | ' + ' | '.join(games) + ' |',
    '| --- ' * (len(games) + 2) + '|',
  ]

  def add(name, data, by_game):
    cells = [_cell(by_game.get(game, [])) for game in games]
    lines.append(f'| {name} | {data} | ' + ' | '.join(cells) + ' |')

  random = {game: [normalisation.random_score(game)] for game in games}
  add('random actions', '', random)
  add('mean of the data', '', means)
  scores = collections.defaultdict(lambda: collections.defaultdict(list))
  for run in runs:
    scores[run.agent, run.subset][run.game].append(run.score)
  for (agent, subset), by_game in sorted(scores.items(), key=_order):
    add(agent, subset, by_game)
  return '\n'.join(lines) + '\n'


def aggregates_table(runs: Sequence[Run], data: Sequence[Data]) -> str:
  """Returns a Markdown table that compares agents on all of the data.

  It has the games that all agents have played, and 95 % stratified bootstrap
  intervals. Without such a game, or without an online run, it is ''. Probabilities need
  two runs of each agent.
  """
  by_agent: dict[str, dict[str, list[Run]]] = collections.defaultdict(
    lambda: collections.defaultdict(list)
  )
  for run in runs:
    if run.subset in ('', 'all'):
      by_agent[run.agent][run.game].append(run)
  games = sorted(set.intersection(*(set(g) for g in by_agent.values())))
  online = [run.agent for run in runs if run.is_online][:1]
  if not games or not online:
    return ''
  scores = {
    agent: _normalised([by_agent[agent][game] for game in games], games)
    for agent in sorted(by_agent, key=_place)
  }
  means = {(run.game, str(run.run)): run.mean_return for run in data}
  others = [*online, *({'DQN (Adam)'} & set(scores))]
  if min(map(len, scores.values())) < 2:  # Single runs have no probabilities.
    others = []
  headings = ['agent', 'IQM', *(f'P(> {name})' for name in others)]
  lines = [
    f'Normalised scores in {", ".join(games)} (0: random actions, 1: mean of the online '
    'DQNs): interquartile mean, and probability that a run is better than one of '
    'another agent [95 % intervals]; runs that are better than the mean return of '
    'their data.\n',
    f'| {" | ".join(headings)} | above the data |',
    '| --- ' * (len(headings) + 1) + '|',
  ]
  for agent, values in scores.items():
    cells = [_interval(aggregates.metrics_of(values, REPETITIONS))]
    for other in others:
      if other == agent:
        cells.append('')
        continue
      pair = {other: scores[other], agent: values}
      [probability] = aggregates.improvements(pair, REPETITIONS).values()
      cells.append(_interval(probability))
    of_agent = [run for game in games for run in by_agent[agent][game]]
    above = [run.score > means[run.game, str(run.number)] for run in of_agent]
    cells.append(f'{sum(above)} of {len(above)}')
    lines.append(f'| {agent} | ' + ' | '.join(cells) + ' |')
  return '\n'.join(lines) + '\n'


def _normalised(by_game, games):
  """Returns scores (runs, games); the first runs count if games have different ones."""
  count = min(map(len, by_game))
  return np.stack(
    [
      normalisation.normalise(
        [run.score for run in of_game[:count]], game, 'dqn_final'
      )
      for of_game, game in zip(by_game, games, strict=True)
    ],
    axis=1,
  )


def _interval(estimate):
  """Formats the first value of an estimate, e.g. the first of `aggregates.METRICS`."""
  value, low, high = estimate.value[0], estimate.low[0], estimate.high[0]
  if np.isnan(low):  # a single run
    return f'{value:.2f}'
  return f'{value:.2f} [{low:.2f}, {high:.2f}]'


def settings_table(work_dir: pathlib.Path) -> str:
  """Returns a Markdown table: last evaluations of the runs that settings.yaml lists."""
  returns: dict[str, dict[str, float]] = collections.defaultdict(dict)
  for directory, found in _find(work_dir, 'settings'):
    [name] = [part for part in pathlib.Path(directory).parts if '=' in part]
    setting = name.replace(',', ', ').replace('=', ' ')
    returns[setting][found.agent] = float(found.returns[-1])
  agents = sorted(
    {agent for row in returns.values() for agent in row}, key=_place
  )
  lines = [
    '| settings | ' + ' | '.join(agents) + ' | mean |',
    '| --- ' * (len(agents) + 2) + '|',
  ]
  for setting, row in sorted(returns.items()):
    values = [row.get(agent, np.nan) for agent in agents]
    cells = [f'{value:.2f}' for value in (*values, np.mean(values))]
    lines.append(f'| {setting} | ' + ' | '.join(cells) + ' |')
  return '\n'.join(lines) + '\n'


def _order(item):
  (agent, subset), _ = item
  names = list(_COLORS)
  place = names.index(agent) if agent in names else -1
  return subset != '', subset, place, agent


def _cell(values):
  if not values:
    return ''
  if len(values) == 1:
    return f'{values[0]:.2f}'
  return f'{np.mean(values):.2f} ({min(values):.2f}, {max(values):.2f})'


def plot(
  runs: Sequence[Run], means: dict[str, list[float]], path: pathlib.Path
) -> None:
  """Plots returns over updates on all of the data; a line is a mean over runs.

  Games that no offline agent has played are left out, if there are others.
  """
  runs = [run for run in runs if run.subset in ('', 'all')]
  trained_on = {run.game for run in runs if not run.is_online}
  games = sorted(trained_on or {run.game for run in runs})
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
      'mean of the data': (np.mean(means.get(game, [np.nan])), '-.'),
    }
    for label, (value, style) in lines.items():
      shown[label] = ax.axhline(value, linestyle=style, color='#666666', lw=1)
    agents = sorted({run.agent for run in runs if run.game == game}, key=_place)
    for agent in agents:
      of_agent = [r for r in runs if (r.agent, r.game) == (agent, game)]
      count = min(len(run.returns) for run in of_agent)
      curves = np.array([run.returns[:count] for run in of_agent])
      x = of_agent[0].updates[:count]
      is_online = of_agent[0].is_online
      color = '#666666' if is_online else _COLORS.get(agent, '#332288')
      label = 'online DQN' if is_online else agent
      [shown[label]] = ax.plot(
        x, curves.mean(axis=0), '--' if is_online else '-', color=color, lw=2
      )
      if len(curves) > 1:
        low, high = curves.min(axis=0), curves.max(axis=0)
        ax.fill_between(x, low, high, color=color, alpha=0.12, lw=0)
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


def _place(agent):
  return _order(((agent, ''), None))


def write(work_dir: pathlib.Path, out: pathlib.Path) -> None:
  """Writes `data.csv`, `evaluations.csv`, `minatar.png`, `summary.md`, `settings.md`.

  The last one is left as it is if there are no runs of settings.yaml.
  """
  runs, data = read(work_dir), read_data(work_dir)
  means = collections.defaultdict(list)
  for run in data:
    means[run.game].append(run.mean_return)
  out.mkdir(parents=True, exist_ok=True)
  write_data(data, out / 'data.csv')
  write_evaluations(runs, out / 'evaluations.csv')
  if (work_dir / 'settings').exists():
    text = settings_table(work_dir)
    (out / 'settings.md').write_text(text, encoding='utf-8')
  text = '\n'.join((table(runs, means), aggregates_table(runs, data)))
  (out / 'summary.md').write_text(text, encoding='utf-8')
  plot(runs, means, out / 'minatar.png')
  print(text)
  print(out / 'minatar.png')
