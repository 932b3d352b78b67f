"""How well numbers from the logged data predict returns in the MinAtar benchmark."""

from collections.abc import Callable, Iterable
from typing import TypeAlias

import numpy as np
import pandas as pd

from batch_rl.fixed_replay import ranking
from benchmarks.evidence.minatar import protocol, record, scores

Interval: TypeAlias = tuple[float, float, float]  # value, low, high
BC = 'bc'  # The folder of the agent below which a run has failed.
RANDOM = 'random'  # The choice of any setting.
ALL = 'all'
# CQL's loss raises the values of logged actions, and Munchausen learns soft values.
NOT_RETURNS = ('cql', 'munchausen_dqn')
_STAGES = ('search', 'whole', 'parts')
_SAMPLES = 1000  # of the bootstrap


def mean(values: Iterable[float]) -> Interval:
  """Returns a mean and its 95 % bootstrap interval; without those that are NaN."""
  known = np.array([*values], float)
  known = known[~np.isnan(known)]
  if not len(known):
    return (np.nan,) * 3
  return _interval(np.mean, known, [np.arange(len(known))], within=True)


def of_settings(selection: pd.DataFrame) -> pd.DataFrame:
  """Returns how well each method ranks the settings of an agent in a game.

  Returns:
    A row for each method, agent and game: `method`, `agent`, `game`, `correlation` of
    ranks, and `regret` of the return in [0, 1]. `RANDOM` has the mean regret of the
    settings.
  """
  rows = []
  for (agent, game), group in selection.groupby(['agent', 'game']):
    returns = group.return_last.to_numpy(float)
    if not (spread := np.ptp(returns)):
      continue  # All settings are as good.
    for method in record.METHODS:
      good = ranking.goodness(method, group[method].to_numpy(float))
      correlation = ranking.rank_correlation(good, returns)
      regret = ranking.regret(good, returns)
      rows.append((method, agent, game, correlation, regret))
    regret = (returns.max() - returns.mean()) / spread
    rows.append((RANDOM, agent, game, 0.0, regret))
  columns = ['method', 'agent', 'game', 'correlation', 'regret']
  return pd.DataFrame(rows, columns=columns)


def of_policies(selection: pd.DataFrame) -> dict[tuple[str, str], Interval]:
  """Returns rank correlations over the policies of all agents, by method and game.

  Intervals are over the settings of each agent.
  """
  found = {}
  for game, group in selection.groupby('game'):
    returns = group.return_last.to_numpy(float)
    agents = [*group.reset_index().groupby('agent').indices.values()]
    for method in record.METHODS:
      good = ranking.goodness(method, group[method].to_numpy(float))
      pairs = np.stack([good, returns], axis=1)
      found[method, game] = _interval(_correlation, pairs, agents, within=True)
  return found


def scored(runs: pd.DataFrame) -> pd.DataFrame:
  """Returns the finished runs with over-estimation, and on which data they learned.

  Returns:
    Rows of `scores.of_runs` with `part`, a part of the data or `ALL`, and `failed`,
    whether the score is lower than the mean of behavioural cloning on the same data;
    NaN without it.
  """
  chosen = pd.concat([scores.finished(runs[runs.stage == s]) for s in _STAGES])
  chosen['part'] = chosen.setting.where(chosen.stage == 'parts', ALL)
  data = ['stage', 'part', 'game']
  cloned = chosen[chosen.agent == BC].groupby(data)[scores.LAST].mean()
  chosen = chosen.join(cloned.rename('cloned'), on=data)
  chosen['failed'] = (chosen[scores.LAST] < chosen.cloned).astype(float)
  chosen.loc[chosen.cloned.isna(), 'failed'] = np.nan
  return chosen.dropna(subset=['overestimation', scores.LAST])


def of_overestimation(runs: pd.DataFrame) -> pd.DataFrame:
  """Returns how well over-estimation predicts scores, by stage, part and game.

  Runs of an agent are alike, so intervals are over agents.

  Returns:
    `stage`, `part`, `game`, number of `runs` and of those that `failed`, the rank
    `correlation` of over-estimation and score, that without `NOT_RETURNS`, and the
    `chance` that a failed run over-estimates more than another; each an `Interval`.
  """
  rows = []
  for key, group in scored(runs).groupby(['stage', 'part', 'game']):
    if len(group) < 3:
      continue
    returns = group[~group.agent.isin(NOT_RETURNS)]
    estimates = (
      _over_agents(_correlation, group, scores.LAST),
      _over_agents(_correlation, returns, scores.LAST),
      _over_agents(_chance, group, 'failed'),
    )
    rows.append((*key, len(group), int(group.failed.sum()), *estimates))
  # Of all data first, then parts in their order.
  order = {part: i for i, part in enumerate([ALL, *protocol.PARTS])}
  rows.sort(key=lambda row: (_STAGES.index(row[0]), order.get(row[1], 99)))
  columns = ['stage', 'part', 'game', 'runs', 'failed']
  columns += ['correlation', 'correlation_of_returns', 'chance']
  return pd.DataFrame(rows, columns=columns)


def _over_agents(
  function: Callable[[np.ndarray], float], runs: pd.DataFrame, outcome: str
) -> Interval:
  """Returns a function of over-estimation and outcome, with its interval."""
  agents = [*runs.reset_index().groupby('agent').indices.values()]
  pairs = runs[['overestimation', outcome]].to_numpy(float)
  return _interval(function, pairs, agents, within=False)


def _correlation(pairs: np.ndarray) -> float:
  return ranking.rank_correlation(*pairs.T)


def _chance(outcomes: np.ndarray) -> float:
  """Returns the chance that a failed run has more than another; NaN without both."""
  values, failed = outcomes.T
  bad, good = values[failed == 1, None], values[failed == 0]
  if not bad.size or not good.size:
    return float('nan')
  return float(((bad > good) + 0.5 * (bad == good)).mean())


def _interval(
  function: Callable[[np.ndarray], float],
  rows: np.ndarray,
  groups: list[np.ndarray],
  within: bool,
) -> Interval:
  """Returns a function of rows, and its 95 % bootstrap interval.

  Args:
    function: What is estimated.
    rows: Data, (n, ...).
    groups: Indices of the rows of each group.
    within: Whether to resample rows within each group; otherwise whole groups are
      resampled.
  """
  if len(rows) < 2 or not within and len(groups) < 2:
    return float(function(rows)), np.nan, np.nan
  random = np.random.default_rng(0)
  found = []
  for _ in range(_SAMPLES):
    if within:
      drawn = [random.choice(group, len(group)) for group in groups]
    else:
      chosen = random.integers(len(groups), size=len(groups))
      drawn = [groups[i] for i in chosen]
    found.append(function(rows[np.concatenate(drawn)]))
  known = np.array(found)[~np.isnan(found)]
  low, high = np.percentile(known, [2.5, 97.5]) if len(known) else [np.nan] * 2
  return float(function(rows)), float(low), float(high)
