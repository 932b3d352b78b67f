"""Scores of the runs in the record of the MinAtar benchmark, and their intervals.

A return is normalised so that random actions have 0 and the online DQNs 1: the mean over
runs of their last evaluations. Each is the mean of three consecutive evaluations;
the best one is a single evaluation.
"""

import math
from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np
import pandas as pd

from batch_rl.report import aggregates, normalisation
from benchmarks.evidence.minatar import protocol, record

# Columns of `of_runs`: the last evaluations, the best one, and those on the way.
LAST, BEST, HALF, QUARTER = 'last', 'best', 'half', 'quarter'
_SHARES = {QUARTER: 0.25, HALF: 0.5, LAST: 1.0}


def of_runs(evaluations: pd.DataFrame) -> pd.DataFrame:
  """Returns a row for each run: its returns, normalised ones and diagnostics.

  Args:
    evaluations: Rows of the record.

  Returns:
    Columns `record.RUN`, `label`, `updates`, `overestimation`, `srank`, the normalised
    `last`, `best`, `half` and `quarter`, the returns `return_last` etc., and the
    returns `zero` and `one` of random actions and of the online DQNs in the game;
    NaN without online runs.
  """
  if evaluations.empty:
    further = 'updates overestimation srank zero one'.split()
    further += [BEST, *_SHARES]
    return pd.DataFrame(columns=[*record.RUN, 'label', *further])
  rows = []
  for key, run in evaluations.groupby(record.RUN):
    returns = run.mean_return.to_numpy(float)
    row = dict(zip(record.RUN, key, strict=True))
    for name, share in _SHARES.items():
      stop = math.ceil(share * len(returns))
      first = max(0, stop - protocol.EVALUATIONS_IN_SCORE)
      row[f'return_{name}'] = returns[first:stop].mean()
    last = run.iloc[-1]
    row |= {
      'label': last.label,
      'updates': last.updates,
      'overestimation': last.overestimation,
      'srank': last.srank,
      'return_best': returns.max(),
    }
    rows.append(row)
  runs = pd.DataFrame(rows)
  # The search has data of its own: no result of the tables decides settings.
  is_of_search = runs.run == protocol.SEARCH_RUN
  online = runs[runs.stage == 'online'].groupby(['game', is_of_search])
  reference = online.return_last.mean().to_dict()
  runs['one'] = [
    reference.get(key, np.nan)
    for key in zip(runs.game, is_of_search, strict=True)
  ]
  random = {game: normalisation.load()[game]['random'] for game in {*runs.game}}
  runs['zero'] = runs.game.map(random)
  for name in (*_SHARES, BEST):
    runs[name] = normalised(runs[f'return_{name}'], runs)
  return runs


def normalised(returns: pd.Series, runs: pd.DataFrame) -> pd.Series:
  """Returns normalised returns, by the columns `zero` and `one` of the runs."""
  return (returns - runs.zero) / (runs.one - runs.zero)


def matrix(runs: pd.DataFrame, column: str = LAST) -> np.ndarray:
  """Returns scores of a method, float (runs, games); its runs and games are complete.

  Raises:
    ValueError: If a game lacks a run.
  """
  table = runs.pivot(index='run', columns='game', values=column)
  if table.isna().any(axis=None):
    raise ValueError(f'{runs.agent.iloc[0]} lacks runs of some games.')
  return table.to_numpy(float)


def finished(runs: pd.DataFrame) -> pd.DataFrame:
  """Returns the runs that have as many updates as the longest one."""
  return runs[runs.updates == runs.updates.max()]


def complete(
  runs: pd.DataFrame,
  by: str | list[str] = 'label',
  with_fewer_runs: bool = False,
) -> dict[Any, pd.DataFrame]:
  """Returns the finished runs of the methods that have them all, on the same data.

  All are the most games of which a method has the same two or more runs, and these runs.

  Args:
    runs: Runs of one stage.
    by: Columns that name a method.
    with_fewer_runs: Whether to add methods that lack some of them, with those that
      all games have. A method with an unfinished run, e.g. a diverged one, has none.

  Returns:
    Runs by method, in the order of `protocol.AGENTS`; others come last.

  Raises:
    ValueError: If a method has several settings.
  """
  order = [agent.folder for agent in protocol.AGENTS]

  def place(item: tuple[Hashable, pd.DataFrame]) -> int:
    folder = item[1].agent.iloc[0]
    return order.index(folder) if folder in order else len(order)

  groups = dict(sorted(finished(runs).groupby(by), key=place))
  begun = {*runs[runs.updates < runs.updates.max()].groupby(by).groups}
  for method, group in groups.items():
    if len(settings := {*group.setting}) > 1 or len({*group.agent}) > 1:
      raise ValueError(
        f'The stage {group.stage.iloc[0]} has runs of several agents {method}, or of '
        f'several settings of it, {", ".join(sorted(settings))}: take those of all but '
        'one out of evaluations.csv and the work directory.'
      )
  games, numbers = max(
    map(_largest, groups.values()), key=_size, default=([], [])
  )
  found = {}
  for method, group in groups.items():
    group = group[group.game.isin(games) & group.run.isin(numbers)]
    if len(group) < len(games) * len(numbers):
      in_games = group.groupby('run').game.transform('nunique')
      is_shown = with_fewer_runs and method not in begun
      group = group[is_shown & (in_games == len(games))]
    if len(group):
      found[method] = group
  return found


def _largest(runs: pd.DataFrame) -> tuple[set[str], set[int]]:
  """Returns the games and runs of a method of which each game has each run."""
  numbers = {game: {*group.run} for game, group in runs.groupby('game')}
  common = set.intersection(*numbers.values())
  return max(
    (
      ({game for game in numbers if chosen <= numbers[game]}, chosen)
      for chosen in (common, *numbers.values())
    ),
    key=_size,
  )


def _size(extent: tuple[set[str], set[int]]) -> tuple[bool, int, int]:
  games, numbers = extent
  return len(numbers) > 1, len(games), len(numbers)  # One run has no interval.


def iqm(scores: np.ndarray) -> tuple[float, float, float]:
  """Returns the interquartile mean and its 95 % interval; NaN for a single run."""
  estimate = aggregates.metrics_of(scores)
  return estimate.value[0], estimate.low[0], estimate.high[0]


def improvement(
  scores: np.ndarray, others: np.ndarray
) -> tuple[float, float, float]:
  """Returns the probability that a run scores higher than another, and its interval."""
  [estimate] = aggregates.improvements({'': others, 'scores': scores}).values()
  return estimate.value[0], estimate.low[0], estimate.high[0]


def of_configurations(
  runs: pd.DataFrame, folder: str, games: Sequence[str] = ()
) -> pd.DataFrame:
  """Returns the scores of each configuration of an agent, by `Configuration.name`.

  Args:
    runs: Rows of `of_runs`.
    folder: Folder of the agent.
    games: Games; by default all of the search.

  Returns:
    Scores in the last evaluations, a column for each game. Configurations that have not
    finished in a game are left out.
  """
  search = finished(runs[runs.stage == 'search'])
  games = games or sorted({*search.game})
  chosen = search[search.agent == folder]
  table = chosen.pivot(index='setting', columns='game', values=LAST)
  return table.reindex(columns=games).dropna()


def searched(runs: pd.DataFrame) -> dict[str, tuple[str, pd.DataFrame]]:
  """Returns the agents of the search: `{label: (folder, of_configurations)}`."""
  search = runs[runs.stage == 'search']
  labels = dict(zip(search.agent, search.label, strict=True))
  known = [agent.folder for agent in protocol.AGENTS]
  order = [*(f for f in known if f in labels), *sorted({*labels} - {*known})]
  found = {labels[f]: (f, of_configurations(runs, f)) for f in order}
  return {label: both for label, both in found.items() if len(both[1])}
