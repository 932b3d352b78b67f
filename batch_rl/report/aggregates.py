"""Aggregates over games with stratified bootstrap intervals, by rliable.

See Agarwal et al., Deep Reinforcement Learning at the Edge of the Statistical
Precipice, NeurIPS 2021. Scores are normalised, float (runs, games). Intervals cover
95 % and are reproducible.
"""

import dataclasses
import functools
import itertools
from collections.abc import Callable, Iterable, Mapping

import numpy as np
from rliable import library, metrics

from batch_rl.report import normalisation
from batch_rl.report.comparison import Comparison, subject
from batch_rl.utils import choices, files, seeding

METRICS = ('IQM', 'Median', 'Mean', 'Optimality gap')
GAMES_ABOVE = 'Games above online DQN'
REPETITIONS = 2000  # Number of bootstrap samples.
_SEED = 0


@dataclasses.dataclass(frozen=True)
class Estimate:
  """Estimates with their 95 % intervals, arrays of the same shape.

  Attributes:
    value: Point estimates.
    low: Lower ends; NaN for a single run.
    high: Upper ends; NaN for a single run.
  """

  value: np.ndarray
  low: np.ndarray
  high: np.ndarray

  def by_name(self, names: Iterable[str]) -> dict[str, tuple]:
    """Returns `{name: (value, low, high)}`; the ends are None for a single run."""
    rows = np.stack([self.value, self.low, self.high], axis=1).tolist()
    return {
      name: tuple(None if np.isnan(x) else x for x in row)
      for name, row in zip(names, rows, strict=True)
    }


@dataclasses.dataclass(frozen=True)
class Summary:
  """Aggregates over the games that all methods have.

  Attributes:
    kind: 'final' or 'best'.
    normaliser: One of `normalisation.NORMALISERS`.
    scores: Normalised scores, `{method: float (runs, games)}`. Numbers of runs may
      differ.
    games: Games in the order of the columns.
    notes: Sentences about games and runs that are left out.
    metrics: Estimates of `metrics_of`, `{method: estimate}`; with `GAMES_ABOVE` for
      the normalisers of the online DQN.
  """

  kind: str
  normaliser: str
  scores: dict[str, np.ndarray]
  games: list[str]
  notes: list[str]
  metrics: dict[str, Estimate]

  @property
  def sample(self) -> str:
    """Numbers of runs and games, e.g. '3 to 5 runs of each of 60 games'."""
    if not self.games:
      return 'no game'
    counts = sorted({len(scores) for scores in self.scores.values()})
    runs = ' to '.join(map(str, dict.fromkeys([counts[0], counts[-1]])))
    games = f'each of {len(self.games)} games'
    return f'{runs} run{"s" * (counts != [1])} of {games if self.games[1:] else self.games[0]}'

  @functools.cached_property
  def improvements(self) -> dict[tuple[str, str], Estimate]:
    """Result of the function `improvements` for the scores."""
    return improvements(self.scores)


def summarise(compared: Comparison, kind: str, normaliser: str) -> Summary:
  """Aggregates normalised scores over the games that all methods have.

  If a method has more runs of some games than of others, the first ones count.

  Args:
    compared: Runs.
    kind: 'final' or 'best'.
    normaliser: One of `normalisation.NORMALISERS`.

  Raises:
    ValueError: If `kind` or `normaliser` is unknown.
  """
  choices.choose('normaliser', normaliser, normalisation.NORMALISERS)
  scores = compared.scores(kind)
  games, notes = _shared_games(compared.games, scores, normaliser)
  normalised = {}
  for method, by_game in scores.items() if games else ():
    counts = [len(by_game[game]) for game in games]
    if max(counts) > min(counts):
      few = [game for game in games if len(by_game[game]) == min(counts)]
      notes.append(
        f'{method} has only {min(counts)} of up to {max(counts)} runs of '
        f'{files.format_names(few)}; further runs of other games do not count (see '
        '--games)'
      )
    columns = [
      normalisation.normalise(by_game[game][: min(counts)], game, normaliser)
      for game in games
    ]
    normalised[method] = np.stack(columns, axis=1)
  reference = None
  if normaliser.startswith('dqn'):
    # The online DQN's score is 1, or 0 where it is worse than random.
    known = [normalisation.load()[game] for game in games]
    reference = np.array([k[normaliser] > k['random'] for k in known], float)
  one = normalisation.reference_score(normaliser)
  estimates = {m: metrics_of(v, reference, one) for m, v in normalised.items()}
  return Summary(kind, normaliser, normalised, games, notes, estimates)


def _shared_games(
  games: list[str], scores: Mapping[str, Mapping], normaliser: str
) -> tuple[list[str], list[str]]:
  """Returns the games that all methods have, and notes."""
  known = [g for g in games if normalisation.can_normalise(g, normaliser)]
  shared = [g for g in known if all(g in own for own in scores.values())]
  notes = []
  if unknown := sorted(set(games) - set(known)):
    notes.append(
      f'games without this score do not count: {files.format_names(unknown)}'
    )
  groups: dict[tuple[str, ...], list[str]] = {}
  for method, by_game in scores.items():
    if lacking := tuple(game for game in known if game not in by_game):
      groups.setdefault(lacking, []).append(method)
  for lacking, methods in groups.items():
    notes.append(
      f'{subject(methods, "lacks", "lack")} {len(lacking)} of {len(known)} games, '
      'which count for no method (--agents leaves methods out): '
      f'{files.format_names(lacking)}'
    )
  return shared, notes


def metrics_of(
  scores: np.ndarray, reference: np.ndarray | None = None, optimum: float = 1.0
) -> Estimate:
  """Returns estimates of the `METRICS`, and of `GAMES_ABOVE` with a reference.

  Args:
    scores: Scores, float (runs, games).
    reference: Scores of the online DQN, float (games,). A game counts if the mean over
      runs exceeds it.
    optimum: Score at and above which the optimality gap is 0.
  """
  functions = [
    metrics.aggregate_iqm,
    metrics.aggregate_median,
    metrics.aggregate_mean,
    lambda sample: metrics.aggregate_optimality_gap(sample, optimum),
  ]
  if reference is not None:
    functions.append(lambda sample: (sample.mean(axis=0) > reference).sum())

  def measure(sample):
    return np.array([function(sample) for function in functions], float)

  return _estimate(measure, scores)


def game_means(scores: np.ndarray) -> Estimate:
  """Returns means over runs, (games,), of scores (runs, games)."""
  return _estimate(lambda sample: sample.mean(axis=0), scores)


def curve(scores: np.ndarray) -> Estimate:
  """Returns the IQM (interquartile mean) by iteration, (iterations,).

  Args:
    scores: Scores, float (runs, games, iterations).
  """
  return _estimate(_iqms, scores)


def profile(scores: np.ndarray, thresholds: np.ndarray) -> Estimate:
  """Returns the fraction of runs above each threshold, (thresholds,)."""

  def above(sample):
    ordered = np.sort(sample, axis=None)
    return 1 - np.searchsorted(ordered, thresholds, 'right') / ordered.size

  return _estimate(above, scores)


def improvements(
  scores: Mapping[str, np.ndarray],
) -> dict[tuple[str, str], Estimate]:
  """Returns the probability of improvement of each method over each earlier one.

  It is the probability that a run of the method scores higher than a run of the other
  on the same game, averaged over games. Ties count half.

  Args:
    scores: Scores on the same games, `{method: float (runs, games)}`.

  Returns:
    Estimates (1,), `{(method, other): estimate}`.
  """
  return {
    (later, earlier): _estimate(_probability, [scores[later], scores[earlier]])
    for earlier, later in itertools.combinations(scores, 2)
  }


def _iqms(scores: np.ndarray) -> np.ndarray:
  """Returns `metrics.aggregate_iqm` of all iterations at once."""
  ordered = np.sort(scores.reshape(-1, scores.shape[-1]), axis=0)
  quarter = int(0.25 * len(ordered))
  return ordered[quarter : len(ordered) - quarter].mean(axis=0)


def _probability(scores: np.ndarray, others: np.ndarray) -> np.ndarray:
  """Returns `metrics.probability_of_improvement`, with one call for all games."""
  above = scores[:, None] > others[None]
  equal = scores[:, None] == others[None]
  return np.array([(above + 0.5 * equal).mean()])


def _estimate(
  function: Callable[..., np.ndarray], scores: np.ndarray | list[np.ndarray]
) -> Estimate:
  arrays = scores if isinstance(scores, list) else [scores]
  if min(map(len, arrays)) < 2:
    value = function(*arrays)
    return Estimate(value, *np.full((2, *value.shape), np.nan))
  states = seeding.random_states()
  try:
    np.random.seed(_SEED)  # rliable uses the global generator
    values, intervals = library.get_interval_estimates(
      {'': scores}, function, reps=REPETITIONS
    )
  finally:
    seeding.restore_random_states(states)
  return Estimate(values[''], *intervals[''])
