"""Scores of the runs in the record of the MinAtar benchmark, and their intervals.

A return is normalised so that random actions have 0 and the online DQNs 1: the mean over
runs of their last evaluations. Evaluations are averaged over three in a row.
"""

import math
from collections.abc import Sequence

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


def complete(runs: pd.DataFrame) -> dict[str, pd.DataFrame]:
  """Returns the finished runs of each method that has as many as any other.

  Args:
    runs: Runs of one stage.

  Returns:
    Runs by `label`, in the order of `protocol.AGENTS`; others come last.
  """
  order = [agent.folder for agent in protocol.AGENTS]

  def place(item):
    [folder] = set(item[1].agent)
    return order.index(folder) if folder in order else len(order)

  groups = sorted(finished(runs).groupby('label'), key=place)
  most = max((len(group) for _, group in groups), default=0)
  return {label: group for label, group in groups if len(group) == most}


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
  runs: pd.DataFrame,
  agent: protocol.Agent,
  games: Sequence[str] = (),
) -> pd.Series:
  """Returns the score of each configuration of an agent, by `Configuration.name`.

  It is the mean over games of the last evaluations; games default to all of the
  search. Configurations that have not finished in a game are left out.
  """
  search = finished(runs[runs.stage == 'search'])
  games = games or sorted({*search.game})
  chosen = search[search.agent == agent.folder]
  table = chosen.pivot(index='setting', columns='game', values=LAST)
  if set(table.columns) != set(games):
    return pd.Series(dtype=float)
  return table.dropna().mean(axis=1)
