"""Finds shards that look out of place among the other shards of a run."""

from collections.abc import Sequence

import numpy as np

from batch_rl.dataset.checks import episode_table, shard_checks

# A shard's mean return is suspicious if it lies outside the range of its two neighbours
# on each side by more than three times the sum of that range and the standard
# deviation of their episodes (at least 1). The first and last shard are exempt: as the
# agent improves, their returns are extreme. On the DQN curves of 60 games, in shards of
# a million steps and with deviations of at least a tenth of the return, this flags
# nothing.
_RETURN_TOLERANCE = 3.0
_FEWEST_EPISODES = 3
# A mean frame is suspicious if it differs from both neighbours' by more than 10 gray
# levels (averaged over pixels) and by more than four times the neighbours' difference.
# Random play in 20 games: 0.2 to 9 levels between the halves of 3,000 steps, but 37 in
# Enduro, where night falls; 15 to 150 levels between games. The limit is 40 levels for
# the first and last shard: both of their neighbours are on one side, so the agent's
# progress shows.
_FRAME_TOLERANCE = 4.0
_FRAME_LEVELS = 10.0
_FRAME_LEVELS_AT_ENDS = 40.0


def find_repeated_frames(
  shards: Sequence[shard_checks.ShardChecks],
) -> list[shard_checks.Finding]:
  """Finds shards with the same frames as an earlier one."""
  findings = []
  paths: dict[str, str] = {}
  for checks in shards:
    if digest := checks.hashes.get('observation'):
      path = checks.paths['observation']
      other = paths.setdefault(digest, path)
      if other != path:
        findings.append(_suspicious(path, f'has the same frames as {other}'))
  return findings


def find_unlike_frames(
  shards: Sequence[shard_checks.ShardChecks],
) -> list[shard_checks.Finding]:
  """Finds shards whose mean frame is unlike that of their neighbours."""
  frames = [
    (checks.paths['observation'], checks.mean_frame)
    for checks in shards
    if checks.mean_frame is not None
  ]
  if len(frames) < 3:
    return []

  def difference(i, j):
    return float(np.abs(frames[i][1] - frames[j][1]).mean())

  findings = []
  last = len(frames) - 1
  for i, (path, _) in enumerate(frames):
    inside = 0 < i < last
    a, b = (i - 1, i + 1) if inside else (1, 2) if i == 0 else (i - 1, i - 2)
    smallest = min(difference(i, a), difference(i, b))
    levels = _FRAME_LEVELS if inside else _FRAME_LEVELS_AT_ENDS
    if smallest > max(levels, _FRAME_TOLERANCE * difference(a, b)):
      findings.append(
        _suspicious(
          path,
          f'looks unlike its neighbours (its mean frame is {smallest:.0f} gray '
          'levels away): is it from another game?',
        )
      )
  return findings


def find_outlying_returns(
  shards: Sequence[shard_checks.ShardChecks],
  episodes: episode_table.EpisodeTable,
) -> list[shard_checks.Finding]:
  """Finds shards whose mean return is far from that of their neighbours.

  Args:
    shards: Checks of the shards, in order.
    episodes: Episodes of the run.
  """
  statistics = []
  for checks in shards:
    returns = episodes.returns[episodes.suffix == checks.suffix]
    if len(returns) >= _FEWEST_EPISODES and np.isfinite(returns).all():
      path = checks.paths['reward']
      statistics.append((path, returns.mean(), returns.std()))
  findings = []
  for i, (path, mean, _) in list(enumerate(statistics))[1:-1]:
    near = statistics[max(i - 2, 0) : i] + statistics[i + 1 : i + 3]
    low, high = min(n[1] for n in near), max(n[1] for n in near)
    deviation = max(float(np.mean([n[2] for n in near])), 1.0)
    margin = _RETURN_TOLERANCE * (high - low + deviation)
    if not low - margin <= mean <= high + margin:
      findings.append(
        _suspicious(
          path,
          f'has a mean return of {mean:.1f}, its neighbours {low:.1f} to '
          f'{high:.1f}: is it from another run or game?',
        )
      )
  return findings


def _suspicious(path: str, problem: str) -> shard_checks.Finding:
  end = '' if problem.endswith('?') else '.'
  return shard_checks.Finding('suspicious', path, f'{path} {problem}{end}')
