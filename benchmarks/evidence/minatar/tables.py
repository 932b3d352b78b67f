"""Tables of the MinAtar benchmark, in Markdown."""

import itertools
import pathlib
from collections.abc import Iterable, Sequence

import numpy as np
import pandas as pd

from batch_rl.fixed_replay import scores as selection_scores
from batch_rl.report import normalisation
from batch_rl.utils import files
from benchmarks.evidence.minatar import protocol, record, scores

ONLINE = 'online DQN'
DQN = 'DQN (Adam)'
_METHODS = {
  'fqe': 'fitted Q evaluation',
  'q_value': "the runs' own values",
  'td_error': "the runs' TD errors",
}


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
  """Returns a table in Markdown."""
  lines = [header, ['---'] * len(header), *rows]
  return '\n'.join(f'| {" | ".join(line)} |' for line in lines) + '\n'


def interval(estimate: tuple[float, float, float]) -> str:
  """Formats a value and its interval; a single run has none."""
  value, low, high = estimate
  if np.isnan(low):
    return f'{value:.2f}'
  return f'{value:.2f} [{low:.2f}, {high:.2f}]'


def mean_and_range(values: Iterable[float]) -> str:
  """Formats the mean, the lowest and the highest value."""
  values = [*values]
  if len(values) < 2:
    return ''.join(f'{value:.2f}' for value in values)
  return f'{np.mean(values):.2f} ({min(values):.2f}, {max(values):.2f})'


def of_whole(runs: pd.DataFrame) -> str:
  """Returns the scores of all agents on all of the data."""
  by_label = methods(runs)
  last = {label: scores.matrix(group) for label, group in by_label.items()}
  rows = []
  for label, group in by_label.items():
    row = [label]
    for column in (scores.LAST, scores.BEST, scores.HALF, scores.QUARTER):
      row.append(interval(scores.iqm(scores.matrix(group, column))))
    for other in (ONLINE, DQN):
      is_compared = other in last and other != label
      chance = (
        scores.improvement(last[label], last[other]) if is_compared else None
      )
      row.append(interval(chance) if chance else '')
    rows.append(row)
  header = [
    *('agent', 'last', 'best', 'half', 'quarter'),
    *(f'P(better than {other})' for other in (ONLINE, DQN)),
  ]
  return table(header, rows)


def methods(runs: pd.DataFrame) -> dict[str, pd.DataFrame]:
  """Returns the online runs of the tables' data, and the complete offline agents."""
  whole = runs[runs.stage == 'whole']
  data = whole[['game', 'run']].drop_duplicates()
  online = runs[runs.stage == 'online'].merge(data, on=['game', 'run'])
  return {ONLINE: online, **scores.complete(whole)}


def of_returns(runs: pd.DataFrame, data: pd.DataFrame) -> str:
  """Returns the returns of all agents by game: mean, lowest and highest run."""
  by_label = methods(runs)
  games = sorted({*by_label[ONLINE].game})
  random = [f'{normalisation.load()[game]["random"]:.2f}' for game in games]
  chosen = data[data.run.isin(protocol.RUNS)].groupby('game').mean_return
  mean = {game: mean_and_range(values) for game, values in chosen}
  rows = [
    ['random actions', *random],
    ['mean of the data', *(mean.get(game, '') for game in games)],
  ]
  for label, group in by_label.items():
    found = dict(list(group.groupby('game').return_last))
    rows.append([label, *(mean_and_range(found[game]) for game in games)])
  return table(['return', *games], rows)


def of_data(data: pd.DataFrame) -> str:
  """Returns the mean return of the data by tenth of a run, over the runs of a game."""
  rows = []
  for game, group in data.groupby('game'):
    tenths = (f'{value:.2f}' for value in group[record.TENTHS].mean())
    steps = f'{group.agent_steps.mean():,.0f}'
    rows.append([game, str(len(group)), steps, *tenths])
  return table(['game', 'runs', 'steps', *map(str, range(1, 11))], rows)


def of_search(runs: pd.DataFrame) -> str:
  """Returns the score of each configuration of each agent; the best one is bold."""
  rows = []
  for agent in protocol.AGENTS:
    found = scores.of_configurations(runs, agent)
    if found.empty:
      continue
    cells = [
      f'{"**" * (name == found.idxmax())}{name}: {value:.2f}'
      f'{"**" * (name == found.idxmax())}'
      for name, value in found.sort_values(ascending=False).items()
    ]
    rows.append([f'`{agent.name}`', agent.parameter or '', ', '.join(cells)])
  header = ['agent', 'own parameter', 'learning rate/target period/own: score']
  return table(header, rows)


def by_part(
  runs: pd.DataFrame,
) -> tuple[list[str], dict[str, dict[str, np.ndarray]]]:
  """Returns the agents that all parts of the data have, and scores by part and agent."""
  parts = runs[runs.stage == 'parts']
  whole = runs[(runs.stage == 'whole') & runs.game.isin({*parts.game})]
  found = {'all': scores.complete(whole)}
  for part in protocol.PARTS:
    found[part] = scores.complete(parts[parts.setting == part])
  labels = [
    label for label in found['all'] if all(label in f for f in found.values())
  ]
  return labels, {
    part: {label: scores.matrix(groups[label]) for label in labels}
    for part, groups in found.items()
  }


def of_parts(runs: pd.DataFrame) -> str:
  """Returns the scores of agents by part of the data."""
  labels, found = by_part(runs)
  rows = [
    [part, *(interval(scores.iqm(values)) for values in by_label.values())]
    for part, by_label in found.items()
  ]
  return table(['trained on', *labels], rows)


def of_heads(runs: pd.DataFrame) -> str:
  """Returns the scores of ensembles by number of heads or networks."""
  chosen = runs[runs.stage.isin(['heads', 'networks'])]
  rows = []
  for (label, stage, setting), group in sorted(
    chosen.groupby(['label', 'stage', 'setting']),
    key=lambda item: (*item[0][:2], int(item[0][2])),
  ):
    score = interval(scores.iqm(scores.matrix(group)))
    rows.append([label, setting, stage, score])
  return table(['agent', 'number', 'of', 'last'], rows)


def of_selection(runs: pd.DataFrame, selection: pd.DataFrame) -> str:
  """Returns how well each method ranks the policies of the search."""
  search = runs[runs.stage == 'search']
  joined = selection.merge(search, on=['game', 'agent', 'setting'])
  rows = []
  for game, group in joined.groupby('game'):
    returns = group.return_last.to_numpy(float)
    for method in record.METHODS:
      good = selection_scores.goodness(method, group[method].to_numpy(float))
      correlation = selection_scores.rank_correlation(good, returns)
      regret = selection_scores.regret(good, returns)
      numbers = str(len(group)), f'{correlation:.2f}', f'{regret:.2f}'
      rows.append([game, _METHODS[method], *numbers])
  header = ['game', 'method', 'policies', 'rank correlation', 'regret@1']
  return table(header, rows)


def of_overestimation(runs: pd.DataFrame) -> str:
  """Returns rank correlations of over-estimation with scores, by stage and game."""
  rows = []
  chosen = runs[runs.stage.isin(['search', 'whole', 'parts'])]
  chosen = chosen.dropna(subset=['overestimation', scores.LAST])
  for (stage, game), group in chosen.groupby(['stage', 'game']):
    good = -group.overestimation.to_numpy(float)
    values = group[scores.LAST].to_numpy(float)
    if len(group) > 2:
      cells = (_bootstrapped_correlation(good, values), str(len(group)))
      rows.append([stage, game, *cells])
  header = [
    'stage',
    'game',
    'rank correlation with low over-estimation',
    'runs',
  ]
  return table(header, rows)


def _bootstrapped_correlation(good: np.ndarray, values: np.ndarray) -> str:
  """Formats Spearman's correlation and its 95 % bootstrap interval over runs."""
  random = np.random.default_rng(0)
  drawn = random.integers(len(good), size=(1000, len(good)))
  found = [selection_scores.rank_correlation(good[i], values[i]) for i in drawn]
  low, high = np.nanpercentile(found, [2.5, 97.5])
  value = selection_scores.rank_correlation(good, values)
  return interval((value, low, high))


def write(
  runs: pd.DataFrame,
  data: pd.DataFrame,
  selection: pd.DataFrame,
  out: pathlib.Path,
) -> str:
  """Writes `tables.md` of what the record has so far; returns its text."""
  stages = {*runs.stage}
  sections = [('Data: mean return by tenth of a run', of_data(data))]
  if 'whole' in stages:
    sections += [
      (
        'All of the data: interquartile means of normalised scores',
        of_whole(runs),
      ),
      (
        'All of the data: returns in the last evaluations',
        of_returns(runs, data),
      ),
    ]
  if {'whole', 'parts'} <= stages:
    sections.append(('Parts of the data', of_parts(runs)))
  if stages & {'heads', 'networks'}:
    sections.append(('Numbers of heads', of_heads(runs)))
  if 'search' in stages:
    sections.append(('Search', of_search(runs)))
    sections.append(('Over-estimation and scores', of_overestimation(runs)))
  if not selection.empty:
    text = of_selection(runs, selection)
    sections.append(('Choosing without the emulator', text))
  text = '\n'.join(
    itertools.chain(*((f'## {title}\n', body) for title, body in sections))
  )
  files.write_bytes(str(out / 'tables.md'), text.encode())
  return text
