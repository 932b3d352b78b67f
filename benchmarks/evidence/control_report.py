"""The table and figure of `control.py`, made from its results."""

import csv
import pathlib
from collections.abc import Iterable

import numpy as np
from matplotlib import figure, ticker

from batch_rl.utils import files

KEPT = 'benchmarks/evidence/control'
ENVIRONMENTS = ('CartPole', 'Acrobot')
DATA = ('all', 'last tenth', 'random')
# In the order of the figure; a palette for colour-blind readers (Okabe and Ito).
COLORS = {
  'DQN': '#000000',
  'C51': '#56B4E9',
  'QR-DQN': '#0072B2',
  'Ensemble-DQN': '#F0E442',
  'Averaged Ensemble-DQN': '#E69F00',
  'REM': '#D55E00',
  'REM, separate networks': '#CC79A7',
  'DQN, learning rate 0': '#888888',
  'DQN, shuffled ends': '#888888',
}
FINAL = 2  # last evaluations of a run whose mean is its score
RESAMPLES = 10_000
_RESULTS = (
  'environment',
  'data',
  'agent',
  'seed',
  'iteration',
  'evaluation_return',
  'episodes',
)
_DATA = (
  'environment',
  'data',
  'seed',
  'agent_steps',
  'episodes',
  'average_return',
)


def write_results(
  out: pathlib.Path, results: Iterable[dict], described: Iterable[dict]
) -> None:
  """Writes `results.csv`, a row for each evaluation, and `data.csv`.

  Args:
    out: Directory of the files.
    results: Results of `control.run_cell`.
    described: Statistics of the data by `control.describe`.
  """
  out.mkdir(parents=True, exist_ok=True)
  rows = [
    {
      **{name: result[name] for name in _RESULTS[:4]},
      'iteration': one['iteration'],
      'evaluation_return': round(one['return'], 4),
      'episodes': one['episodes'],
    }
    for result in results
    for one in result['evaluations']
  ]
  for name, fields, content in (
    ('results.csv', _RESULTS, rows),
    ('data.csv', _DATA, described),
  ):
    with open(out / name, 'w', newline='', encoding='utf-8') as file:
      writer = csv.DictWriter(file, fields, lineterminator='\n')
      writer.writeheader()
      writer.writerows(content)


class Results:
  """The contents of the two files.

  Args:
    out: Directory with `results.csv` and `data.csv`.
  """

  def __init__(self, out: pathlib.Path):
    self._curves: dict[tuple, dict[int, list[float]]] = {}
    for row in files.read_csv(out / 'results.csv'):
      data, agent = row['data'], row['agent']
      if data == 'shuffled ends':
        data, agent = DATA[0], f'{agent}, {data}'
      key = row['environment'], data, agent
      seeds = self._curves.setdefault(key, {})
      seeds.setdefault(int(row['seed']), []).append(
        float(row['evaluation_return'])
      )
    self._data: dict[tuple, dict[int, dict]] = {}
    for row in files.read_csv(out / 'data.csv'):
      key = row['environment'], row['data']
      self._data.setdefault(key, {})[int(row['seed'])] = row

  def curves(self, environment: str, data: str, agent: str) -> np.ndarray:
    """Returns the returns of evaluations, (seeds, iterations), or empty."""
    seeds = self._curves.get((environment, data, agent), {})
    return np.array([seeds[seed] for seed in sorted(seeds)])

  def scores(self, environment: str, data: str, agent: str) -> np.ndarray:
    """Returns the mean returns of the final evaluations, (seeds,)."""
    curves = self.curves(environment, data, agent)
    return curves[:, -FINAL:].mean(axis=1) if len(curves) else curves

  def data_column(self, environment: str, data: str, name: str) -> np.ndarray:
    """Returns a column of `data.csv`, (seeds,)."""
    seeds = self._data[environment, data]
    return np.array([float(seeds[seed][name]) for seed in sorted(seeds)])


def interval(scores: np.ndarray) -> tuple[float, float]:
  """Returns a 95 % interval of the mean by percentile bootstrap over seeds.

  Args:
    scores: Score of each seed, (seeds,).
  """
  random = np.random.default_rng(0)
  samples = random.choice(scores, (RESAMPLES, len(scores)))
  low, high = np.quantile(samples.mean(axis=1), (0.025, 0.975))
  return float(low), float(high)


def cell(scores: np.ndarray) -> str:
  """Returns 'mean [low, high]', or '' without scores."""
  if not len(scores):
    return ''
  low, high = interval(scores)
  return f'{scores.mean():.0f} [{low:.0f}, {high:.0f}]'


def summary(results: Results) -> str:
  """Returns a Markdown table for each environment."""
  blocks = []
  for environment in ENVIRONMENTS:
    lines = []
    counts = set()
    for agent in COLORS:
      scores = [results.scores(environment, data, agent) for data in DATA]
      if any(map(len, scores)):
        lines.append([agent, *map(cell, scores)])
        counts |= set(map(len, scores)) - {0}
    seeds = ' to '.join(map(str, sorted({min(counts), max(counts)})))
    columns = [f'{environment}, {seeds} seeds; trained on', *DATA]
    lines[:0] = [columns, ['---'] * len(columns)]
    # Rows about the data, for comparison.
    lines.append(
      [
        '*average return of the data*',
        *(
          cell(results.data_column(environment, data, 'average_return'))
          for data in DATA
        ),
      ]
    )
    steps = [
      results.data_column(environment, data, 'agent_steps').mean()
      for data in DATA
    ]
    lines.append(['*agent steps*', *(f'{count:,.0f}' for count in steps)])
    online = results.scores(environment, '', 'online')
    random = results.data_column(environment, 'random', 'average_return')
    table = '\n'.join(f'| {" | ".join(line)} |' for line in lines)
    blocks.append(
      f'{table}\n\nThe online DQN that made the data ended at {cell(online)}; '
      f'a random policy returns {cell(random)}.'
    )
  return (
    f'Return: mean of the last {FINAL} evaluations of a run, mean over seeds, and '
    'bootstrapped\n95 % interval of that mean.\n\n' + '\n\n'.join(blocks) + '\n'
  )


def plot(results: Results, path: pathlib.Path) -> None:
  """Plots the learning curves of the online DQN and the offline scores."""
  fig = figure.Figure(figsize=(12, 6.4), layout='constrained')
  axes = fig.subplots(2, 4, width_ratios=(1.1, 1, 1, 1))
  for row, environment in zip(axes, ENVIRONMENTS, strict=True):
    _plot_online(row[0], results, environment)
    for ax, data in zip(row[1:], DATA, strict=True):
      _plot_scores(ax, results, environment, data)
    for ax in row[2:]:
      ax.set_yticklabels([])
  handles, labels = axes[0, 1].get_legend_handles_labels()
  fig.legend(
    handles, labels, loc='outside lower center', ncols=4, frameon=False
  )
  fig.savefig(path, pil_kwargs={'optimize': True})


def _plot_online(ax, results, environment):
  curves = results.curves(environment, '', 'online')
  iterations = np.arange(1, curves.shape[1] + 1)
  ax.plot(iterations, curves.T, color='#999999', linewidth=0.8)
  ax.plot(iterations, curves.mean(axis=0), color='#000000', linewidth=2)
  random = results.data_column(environment, 'random', 'average_return').mean()
  ax.axhline(random, color='#666666', linestyle=':')
  ax.set_title(f'{environment}: online DQN')
  ax.set_xlabel('iteration, 10,000 agent steps each')
  ax.set_ylabel('return')
  ax.xaxis.set_major_locator(ticker.MaxNLocator(5, integer=True))


def _plot_scores(ax, results, environment, data):
  agents = [
    agent
    for agent in COLORS
    if len(results.scores(environment, DATA[0], agent))
  ]
  marks = (
    ('random policy', results.data_column, ('random', 'average_return'), ':'),
    ('average of the data', results.data_column, (data, 'average_return'), '-'),
    ('online DQN in the end', results.scores, ('', 'online'), '--'),
  )
  colors = ('#666666', '#009E73', '#000000')
  for (label, get, key, style), color in zip(marks, colors, strict=True):
    mean = get(environment, *key).mean()
    ax.axvline(mean, color=color, linestyle=style, linewidth=1.2, label=label)
  for y, agent in enumerate(agents):
    scores = results.scores(environment, data, agent)
    if not len(scores):
      continue
    low, high = interval(scores)
    ax.plot([low, high], [y, y], color=COLORS[agent], linewidth=5, alpha=0.8)
    ax.plot(
      scores, [y] * len(scores), '|', color='#555555', markersize=9, zorder=3
    )
    ax.plot(
      scores.mean(),
      y,
      'o',
      color=COLORS[agent],
      markeredgecolor='#000000',
      markersize=7,
      zorder=4,
    )
  ax.set_yticks(range(len(agents)), agents)
  ax.set_ylim(len(agents) - 0.4, -0.6)
  ax.set_xlim((-15, 515) if environment == 'CartPole' else (-515, -50))
  ax.set_title(f'trained on: {data}')
  ax.set_xlabel('return')
  ax.grid(axis='x', color='#dddddd')


def report(out: pathlib.Path) -> None:
  """Writes `summary.md` and `control.png` from the results in a directory."""
  results = Results(out)
  text = summary(results)
  (out / 'summary.md').write_text(text, encoding='utf-8')
  plot(results, out / 'control.png')
  print(text)
