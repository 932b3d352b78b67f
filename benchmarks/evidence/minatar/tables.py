"""Tables of the MinAtar benchmark, in Markdown.

Pages of the docs include their sections, by the marks around them.
"""

import pathlib
import re
from collections.abc import Hashable, Iterable, Mapping
from typing import Any

import numpy as np
import pandas as pd

from batch_rl.report import normalisation
from batch_rl.utils import files
from benchmarks import measuring
from benchmarks.evidence.minatar import predictions, protocol, record, scores

ONLINE = 'online DQN'
DQN = 'DQN (Adam)'
BC = 'BC'
METHODS = {
  'fqe': 'fitted Q evaluation',
  'q_value': "the runs' own values",
  'td_error': "the runs' TD errors",
  predictions.RANDOM: 'any setting',
}
_BETTER = 'P(better than {})'


def interval(estimate: tuple[float, float, float]) -> str:
  """Formats a value and its interval; a single run has none."""
  # Adding 0 turns -0.0 into 0.0.
  value, low, high = (f'{round(number, 2) + 0:.2f}' for number in estimate)
  return value if np.isnan(estimate[1]) else f'{value} [{low}, {high}]'


def mean_and_range(values: Iterable[float]) -> str:
  """Formats the mean, the lowest and the highest value."""
  values = [*values]
  if len(values) < 2:
    return ''.join(f'{value:.2f}' for value in values)
  return f'{np.mean(values):.2f} ({min(values):.2f}, {max(values):.2f})'


def of_whole(runs: pd.DataFrame) -> str:
  """Returns the scores of all agents on all of the data."""
  last = {label: scores.matrix(group) for label, group in methods(runs).items()}
  by_label = methods(runs, with_fewer_runs=True)
  rows = []
  for label, group in by_label.items():
    row = [label, str(group.run.nunique())]
    for column in (scores.LAST, scores.BEST, scores.HALF, scores.QUARTER):
      row.append(interval(scores.iqm(scores.matrix(group, column))))
    row += [_improvement(last, label, other) for other in (ONLINE, DQN)]
    rows.append(row)
  header = [
    *('agent', 'runs', 'last', 'best', 'half', 'quarter'),
    *(_BETTER.format(other) for other in (ONLINE, DQN)),
  ]
  games = by_label[ONLINE].game.nunique()
  extent = (
    f'Scores are over {games} {"game" if games == 1 else "games"}. Last, half and quarter '
    'are means of the last three evaluations (or as many as there are) up to all, half '
    "and a quarter of the agent's own updates. Best is the highest evaluation.\n"
  )
  left_out = _left_out(runs[runs.stage == 'whole'].label, by_label)
  return f'{measuring.markdown(header, rows)}\n{extent}{left_out}'


def _improvement(
  found: Mapping[Any, np.ndarray], method: Hashable, other: Hashable
) -> str:
  """Formats the probability that a method beats another; '' without several runs."""
  if method == other or not {method, other} <= found.keys():
    return ''
  if len(found[method]) == len(found[other]) == 1:
    return ''
  return interval(scores.improvement(found[method], found[other]))


def _left_out(names: Iterable[str], shown: Iterable[str]) -> str:
  """Returns a line about the methods that lack runs; '' if there are none."""
  lacking = sorted({*names} - {*shown})
  return f'\nLeft out, as runs are missing: {", ".join(lacking)}.\n' * bool(
    lacking
  )


def methods(
  runs: pd.DataFrame, with_fewer_runs: bool = False
) -> dict[str, pd.DataFrame]:
  """Returns offline agents as `scores.complete`, after the online runs of their data."""
  chosen = runs[runs.stage == 'whole']
  whole = scores.complete(chosen, with_fewer_runs=with_fewer_runs)
  data = max(whole.values(), key=len)
  online = on_same_data(runs[runs.stage == 'online'], data)
  return {ONLINE: online, **whole}


def of_returns(runs: pd.DataFrame, data: pd.DataFrame) -> str:
  """Returns the returns of all agents by game: mean, lowest and highest run."""
  by_label = methods(runs, with_fewer_runs=True)
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
  return measuring.markdown(['return', *map(short, games)], rows)


def of_agents(runs: pd.DataFrame) -> dict[str, str]:
  """Returns what the page of each agent says about its runs on all data, by folder."""
  by_label = methods(runs, with_fewer_runs=True)
  last = {label: scores.matrix(group) for label, group in methods(runs).items()}
  games = sorted({*by_label[ONLINE].game})
  found = {}
  for agent in protocol.AGENTS:
    labels = [n for n, g in by_label.items() if g.agent.iloc[0] == agent.folder]
    label = next((n for n in labels if n != ONLINE), None)
    if label is None:
      continue
    group = by_label[label]
    chance = _improvement(last, label, DQN)
    rate, period, own = f'{group.setting.iloc[0]}//'.split('/')[:3]
    settings = [f'learning rate {rate}']
    settings += [f'target period {int(period):,} updates'] if period else []
    settings += [f'`{agent.parameter} = {own}`'] if own else []
    count = group.run.nunique()
    rows = [
      [name, *(mean_and_range(g.return_last[g.game == game]) for game in games)]
      for name, g in by_label.items()
      if name in (label, BC, ONLINE)
    ]
    found[agent.folder] = (
      f'After {group.updates.max():,} updates, {label} scores '
      f'{interval(scores.iqm(scores.matrix(group)))}, the interquartile mean over '
      f'{count} {"run" if count == 1 else "runs"} in each of {len(games)} games. Random '
      'actions score 0, the online DQNs that made the data 1. '
      + f'P(better than {DQN}) is {chance}. ' * bool(chance)
      + f'The search chose its settings: {", ".join(settings)}.\n\n'
      + measuring.markdown(['return', *map(short, games)], rows)
      + '\nReturns are means of the last three evaluations; in brackets are the lowest '
      'and the highest run.\n'
    )
  return found


def short(game: str) -> str:
  """Returns the name of a game in tables and figures."""
  return game.removeprefix('MinAtar-')


def of_data(data: pd.DataFrame) -> str:
  """Returns the mean return of the data by tenth of a run, over the runs of a game."""
  rows = []
  for game, group in data.groupby('game'):
    tenths = (f'{value:.2f}' for value in group[record.TENTHS].mean())
    steps = f'{group.agent_steps.mean():,.0f}'
    rows.append([short(game), str(len(group)), steps, *tenths])
  return measuring.markdown(
    ['game', 'runs', 'steps', *map(str, range(1, 11))], rows
  )


def of_search(runs: pd.DataFrame) -> str:
  """Returns the scores of each configuration of each agent, the best one first."""
  rows = []
  own = {a.folder: a.parameter.rpartition('.')[2] for a in protocol.AGENTS}
  for label, (folder, found) in scores.searched(runs).items():
    mean = found.mean(axis=1).sort_values(ascending=False)
    for name, value in mean.items():
      by_game = (f'{score:.2f}' for score in found.loc[name])
      parameter = own.get(folder, '')
      rows.append([label, parameter, name, *by_game, f'{value:.2f}'])
  games = map(short, sorted({*runs[runs.stage == 'search'].game}))
  setting = 'learning rate/target period/own'
  return measuring.markdown(
    ['agent', 'own parameter', setting, *games, 'mean'], rows
  )


def on_same_data(runs: pd.DataFrame, others: pd.DataFrame) -> pd.DataFrame:
  """Returns those runs whose data other runs have, too."""
  return runs.merge(others[['game', 'run']].drop_duplicates())


def by_part(
  runs: pd.DataFrame,
) -> tuple[list[str], dict[str, dict[str, np.ndarray]]]:
  """Returns the agents that all parts of the data have, and scores by part and agent."""
  parts = scores.finished(runs[runs.stage == 'parts'])
  whole = on_same_data(runs[runs.stage == 'whole'], parts)
  found = {'all': scores.complete(whole)}
  for part, name in protocol.PARTS.items():
    found[name] = scores.complete(parts[parts.setting == part])
  # Scores of parts are compared in the games that all of them have.
  games = set.intersection(
    *({*g.game} for by_label in found.values() for g in by_label.values())
  )
  found = {
    part: {label: g[g.game.isin(games)] for label, g in by_label.items()}
    for part, by_label in found.items()
  }
  labels = [
    label for label in found['all'] if all(label in f for f in found.values())
  ]
  # Runs on parts have half of the updates.
  columns = {'all': scores.HALF}
  return labels, {
    part: {
      label: scores.matrix(groups[label], columns.get(part, scores.LAST))
      for label in labels
    }
    for part, groups in found.items()
  }


def of_parts(runs: pd.DataFrame) -> str:
  """Returns the scores of agents by part of the data, and how often they beat DQN.

  Those on all of the data are after as many updates as on parts.
  """
  labels, found = by_part(runs)
  rows = [
    [part, *(interval(scores.iqm(values)) for values in by_label.values())]
    for part, by_label in found.items()
  ]
  text = measuring.markdown(['trained on', *labels], rows)
  chances = [
    [part, *(_improvement(by_label, label, DQN) for label in labels)]
    for part, by_label in found.items()
  ]
  if any(any(chance) for _, *chance in chances):
    text += f'\n{measuring.markdown([_BETTER.format(DQN), *labels], chances)}'
  return text + _left_out(runs[runs.stage == 'parts'].label, labels)


def of_more(runs: pd.DataFrame) -> str:
  """Returns the returns of agents outside the benchmark, beside the agents like them."""
  more = scores.finished(runs[runs.stage == 'more'])
  [(game, run)] = {*zip(more.game, more.run, strict=True)}  # more_agents.yaml
  of_run = (runs.game == game) & (runs.run == run)
  others = runs[of_run & (runs.stage == 'whole')]
  found = others.set_index('agent')
  rows = []
  has_like = more.agent.map(protocol.MORE_AGENTS).isin(found.index)
  for one in more[has_like].sort_values('label').itertuples():
    like = found.loc[[protocol.MORE_AGENTS[one.agent]]]
    beside = like.label.iloc[0], f'{like.return_last.iloc[0]:.2f}'
    rows.append([one.label, f'{one.return_last:.2f}', *beside])
  by_label = others.set_index('label').return_last
  header = ['agent', 'return', 'the agent with these settings', 'its return']
  return (
    f'{measuring.markdown(header, rows)}\n'
    f'Returns are means of the last three evaluations in {short(game)}, after '
    f'{more.updates.max():,} updates on run {run}: one run, so differences may be chance. '
    f'On the same data {BC} returns {by_label[BC]:.2f}, {DQN} {by_label[DQN]:.2f}.\n'
  )


def by_number(runs: pd.DataFrame) -> dict[tuple[str, str, int], np.ndarray]:
  """Returns the scores of ensembles by label, 'heads' or 'networks', and number."""
  return {key: scores.matrix(group) for key, group in heads_of(runs).items()}


def heads_of(runs: pd.DataFrame) -> dict[tuple[str, str, int], pd.DataFrame]:
  """Returns the complete runs of ensembles, like `by_number`."""
  chosen = runs[runs.stage.isin(['heads', 'networks'])]
  chosen = chosen.assign(number=chosen.setting.astype(int))
  return scores.complete(chosen, ['label', 'stage', 'number'])


def of_heads(runs: pd.DataFrame) -> str:
  """Returns the scores of ensembles by number of heads or networks."""
  found = by_number(runs)
  rows = []
  for key, values in found.items():
    label, stage, number = key
    # One head is the DQN of the ensemble; networks compare with as many heads of REM.
    other = (label, stage, 1) if stage == 'heads' else ('REM', 'heads', number)
    chance = _improvement(found, key, other)
    than = f'{other[0]}, {other[2]} {other[1]}' if chance else ''
    score = interval(scores.iqm(values))
    rows.append([label, str(number), stage, score, chance, than])
  chosen = runs[runs.stage.isin(['heads', 'networks'])]
  names = chosen.label + ' with ' + chosen.setting + ' ' + chosen.stage
  shown = (f'{label} with {number} {stage}' for label, stage, number in found)
  header = ['agent', 'number', 'of', 'last', 'P(better)', 'than']
  if not any(row[-1] for row in rows):  # of single runs
    header, rows = header[:-2], [row[:-2] for row in rows]
  return measuring.markdown(header, rows) + _left_out(names, shown)


def of_selection(selection: pd.DataFrame) -> str:
  """Returns how well each method ranks the policies of the search."""
  found = predictions.of_settings(selection)
  of_policies = predictions.of_policies(selection)
  games = sorted({game for _, game in of_policies})
  rows = []
  for method, name in METHODS.items():
    chosen = found[found.method == method]
    means = [predictions.mean(chosen[c]) for c in ('correlation', 'regret')]
    together = (of_policies.get((method, game)) for game in games)
    cells = (interval(x) if x else '' for x in together)
    rows.append([name, *map(interval, means), *cells])
  header = ['method', 'rank correlation', 'regret@1']
  header += [f'rank correlation over all policies, {short(g)}' for g in games]
  count = len(found[['agent', 'game']].drop_duplicates())
  return (
    f'{measuring.markdown(header, rows)}\n'
    'First two columns: over the settings of an agent in a game, means over '
    f'{count} pairs of agent and game. Regret is 0 for the best setting and 1 for the '
    'worst.\n'
  )


def of_overestimation(runs: pd.DataFrame) -> str:
  """Returns how well over-estimation predicts scores, by stage and game."""
  rows = [
    [
      *(row.stage, protocol.PARTS.get(row.part, row.part), short(row.game)),
      *(interval(row.correlation), interval(row.correlation_of_returns)),
      *(str(row.runs), str(row.failed)),
      '' if np.isnan(row.chance[0]) else interval(row.chance),
    ]
    for row in predictions.of_overestimation(runs).itertuples()
  ]
  header = [
    *('stage', 'data', 'game', 'rank correlation with the score'),
    'without CQL and M-DQN',
    *('runs', 'failed', 'P(failed run over-estimates more)'),
  ]
  return (
    f'{measuring.markdown(header, rows)}\n'
    'A run has failed if its score is lower than the mean of behavioural cloning on the '
    'same data; in the search that is the mean over its configurations. Runs whose loss '
    'was not finite are not counted. Intervals are over agents. CQL raises the values of '
    'logged actions by its loss, and M-DQN learns soft values.\n'
  )


def write(
  runs: pd.DataFrame,
  data: pd.DataFrame,
  selection: pd.DataFrame,
  out: pathlib.Path,
) -> str:
  """Writes `tables.md` and `agents.md` of what the record has so far.

  Returns:
    The text of `tables.md`.
  """
  stages = {*runs.stage}
  sections = [('data', 'Data: mean return by tenth of a run', of_data(data))]
  if 'whole' in stages:
    title = 'All of the data: interquartile means of normalised scores'
    sections.append(('scores', title, of_whole(runs)))
    title = 'All of the data: returns in the last evaluations'
    sections.append(('returns', title, of_returns(runs, data)))
    pages = [_marked(*page) for page in of_agents(runs).items()]
    files.write_bytes(str(out / 'agents.md'), '\n'.join(pages).encode())
  if {'whole', 'parts'} <= stages:
    sections.append(('parts', 'Parts of the data', of_parts(runs)))
  if stages & {'heads', 'networks'}:
    sections.append(('heads', 'Numbers of heads', of_heads(runs)))
  if {'whole', 'more'} <= stages:
    sections.append(('more', 'Agents outside the benchmark', of_more(runs)))
  if 'search' in stages:
    sections.append(('search', 'Search', of_search(runs)))
  if stages & {'search', 'whole'}:
    title = 'Over-estimation and scores'
    sections.append(('overestimation', title, of_overestimation(runs)))
  if not selection.empty:
    title = 'Choosing without the emulator'
    sections.append(('selection', title, of_selection(selection)))
  text = '\n'.join(
    f'## {title}\n\n{_marked(name, body)}' for name, title, body in sections
  )
  files.write_bytes(str(out / 'tables.md'), text.encode())
  return text


def _marked(name: str, body: str) -> str:
  """Returns a section that pages of the docs include by its name."""
  start, end = (f'<!-- --8<-- [{mark}:{name}] -->' for mark in ('start', 'end'))
  return f'{start}\n\n{body}\n{end}\n'


def without_marks(text: str) -> str:
  """Returns the tables without the marks of sections, for a terminal."""
  return re.sub(r'<!-- .*? -->\n\n?', '', text).strip()
