"""Normalises scores by those of a random agent and of a reference.

`normalisers.csv` has the scores and their sources:

  random     random agent under the dataset's protocol, with the dataset's ROM
  dqn_final  online DQN after 199 iterations of 250,000 agent steps
  dqn_best   online DQN in the best iteration of each run
  human      professional tester; published for 55 of the dataset's 60 games

`random_scores.csv` has the random agent's score with each ROM, and how it was measured
(`benchmarks/random_scores.py`). `minatar_scores.csv` has the scores of MinAtar's games,
all of them measured by `benchmarks/minatar_scores.py`: `random`, and `dqn_final` and
`dqn_best` of online DQNs in 5 iterations of 100,000 agent steps.
"""

import csv
import functools
import hashlib
import pathlib
from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from batch_rl.minatar import games as minatar
from batch_rl.runs import games

VERSION = '1'  # Version of `normalisers.csv`; changes with any score in it.
MINATAR_VERSION = '2'  # Version of `minatar_scores.csv`.
NORMALISERS = ('dqn_final', 'dqn_best', 'human')
NORMALISERS_CSV = pathlib.Path(__file__).with_name('normalisers.csv')
RANDOM_SCORES_CSV = pathlib.Path(__file__).with_name('random_scores.csv')
MINATAR_SCORES_CSV = pathlib.Path(__file__).with_name('minatar_scores.csv')

_ORIGINS = {
  'random': (
    'uniformly random actions under the protocol of the dataset, in its ROMs '
    '(benchmarks/random_scores.py)'
  ),
  'dqn_final': (
    "Dopamine's published DQN baseline with sticky actions, mean of 5 runs, "
    'last of 199 iterations'
  ),
  'dqn_best': (
    "Dopamine's published DQN baseline with sticky actions, mean of 5 runs, "
    'best of 199 iterations in each'
  ),
  'human': (
    'professional human tester, no sticky actions, after up to 30 no-ops: '
    'Wang et al., 2016 (arXiv:1511.06581)'
  ),
}


def load() -> dict[str, dict[str, float]]:
  """Returns the scores by game: mean undiscounted, unclipped returns.

  Returns:
    `{game: {name: score}}`: the dataset's games, sorted, then those of MinAtar. The
    names are 'random', 'dqn_final', 'dqn_best' and, if published, 'human'.
  """
  return {game: dict(scores) for game, scores in _scores().items()}


def describe(normaliser: str) -> str:
  """Returns version, hash, formula and sources of a normaliser, in a line.

  Raises:
    ValueError: If the normaliser is unknown.
  """
  _check(normaliser)
  if normaliser == 'human':
    formula = '(agent - random) / (human - random)'
  else:
    formula = '(agent - min(DQN, random)) / |DQN - random|'
  return (
    f'{normaliser} version {VERSION} (sha256 {_digest(NORMALISERS_CSV)}): {formula}; '
    f'{normaliser}: {_ORIGINS[normaliser]}; random: {_ORIGINS["random"]}. MinAtar '
    f'version {MINATAR_VERSION} (sha256 {_digest(MINATAR_SCORES_CSV)}): random actions; '
    'online DQNs of this package, 3 runs of 500,000 agent steps, evaluated 5 times '
    '(benchmarks/minatar_scores.py)'
  )


def versions(of_games: Iterable[str]) -> str:
  """Returns the versions of the scores of games, e.g. '1' or '1, MinAtar 1'."""
  of_minatar = {minatar.is_minatar(game) for game in of_games}
  named = {False: VERSION, True: f'MinAtar {MINATAR_VERSION}'}
  return ', '.join(named[key] for key in sorted(of_minatar))


def _digest(path: pathlib.Path) -> str:
  return hashlib.sha256(path.read_bytes()).hexdigest()[:12]


def can_normalise(game: str, normaliser: str) -> bool:
  """Returns whether returns in a game can be normalised.

  They cannot if the game has no scores, or if the reference scores the same as the
  random agent, as `dqn_final` does in Montezuma's Revenge.

  Raises:
    ValueError: If the normaliser is unknown.
  """
  _check(normaliser)
  try:
    return _zero_and_one(game, normaliser) is not None
  except ValueError:
    return False


def normalise(returns: npt.ArrayLike, game: str, normaliser: str) -> np.ndarray:
  """Normalises returns: 0 is the random agent and 1 the reference.

  With a DQN: (agent - min(DQN, random)) / |DQN - random| (Agarwal et al., 2020). If it
  is worse than random, 0 is the DQN and 1 the random agent.
  With a human: (agent - random) / (human - random) (Mnih et al., 2015).

  Args:
    returns: Undiscounted, unclipped returns of episodes, any shape.
    game: Name of the game, e.g. `MontezumaRevenge` or `montezuma_revenge`.
    normaliser: One of `NORMALISERS`.

  Returns:
    Normalised returns, float64 of the same shape.

  Raises:
    ValueError: If the game or the normaliser is unknown, or `can_normalise` is False.
  """
  _check(normaliser)
  bounds = _zero_and_one(game, normaliser)
  if bounds is None:
    others = [repr(name) for name in NORMALISERS if can_normalise(game, name)]
    choose = f', or choose {" or ".join(others)}' if others else ''
    raise ValueError(
      f'{games.canonical_name(game)} has no {normaliser!r} score that differs from '
      f'the random score: leave the game out{choose}.'
    )
  zero, one = bounds
  return (np.asarray(returns, np.float64) - zero) / (one - zero)


def random_score(game: str) -> float | None:
  """Returns the mean undiscounted, unclipped return of random actions.

  Args:
    game: Name of the game, as in `normalise`.

  Returns:
    The score with the dataset's ROM, or None if it was not measured.

  Raises:
    ValueError: If the game is unknown.
  """
  return _scores().get(games.canonical_name(game), {}).get('random')


def _check(normaliser: str) -> None:
  if normaliser not in NORMALISERS:
    raise ValueError(
      f'Unknown normaliser {normaliser!r}: choose one of {", ".join(NORMALISERS)}.'
    )


def _zero_and_one(game: str, normaliser: str) -> tuple[float, float] | None:
  """Returns the returns that map to 0 and 1; None if missing or equal."""
  scores = _scores().get(games.canonical_name(game), {})
  if 'random' not in scores or normaliser not in scores:
    return None
  zero, one = scores['random'], scores[normaliser]
  if normaliser != 'human':
    zero, one = sorted((zero, one))
  return (zero, one) if zero != one else None


@functools.cache
def _scores() -> dict[str, dict[str, float]]:
  scores: dict[str, dict[str, float]] = {}
  for path in (NORMALISERS_CSV, MINATAR_SCORES_CSV):
    with path.open(encoding='utf-8', newline='') as rows:
      for row in csv.DictReader(rows):
        scores.setdefault(row['game'], {})[row['score']] = float(row['value'])
  return scores
