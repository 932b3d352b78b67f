"""Normalises scores by the scores of a random agent and of a reference.

`scores/normalisers.csv` has the scores and their sources:

  random        random agent under the dataset's protocol, with the dataset's ROM
  dqn_final     online DQN after 199 iterations of 250,000 agent steps
  dqn_best      online DQN in the best iteration of each run
  human         professional tester; published for 55 of the dataset's 60 games
  human_random  random agent published with `human`
  gamer         the same tester, rounded; for the eight games of Decision Transformer
                and its successors
  gamer_random  random agent published with `gamer`

The last four were measured without sticky actions, from up to 30 no-ops. So the random
agent of the dataset's protocol is close to 0 human-normalised, but not 0.

The online DQN's scores are Dopamine's published baselines: returns during training, not
of evaluations, with epsilon 0.01 and the dataset's sticky actions.

`random_scores.csv` has the random agent's score with each ROM, and how it was measured
(`benchmarks/random_scores.py`). `minatar_scores.csv` has the scores of MinAtar's games,
all of them measured by `benchmarks/minatar_scores.py`: `random`, and `dqn_final` and
`dqn_best` of the MinAtar benchmark's online DQNs, with 20 iterations of 100,000 agent
steps; `dqn_final` is the mean of their last three evaluations.
"""

import functools
import pathlib
from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from batch_rl.runs import games
from batch_rl.utils import choices, files

NORMALISERS = ('dqn_final', 'dqn_best', 'human', 'gamer')
# Random scores of the normalisers.
_RANDOM = {'human': 'human_random', 'gamer': 'gamer_random'}
SCORES_DIRECTORY = pathlib.Path(__file__).with_name('scores')
NORMALISERS_CSV = SCORES_DIRECTORY / 'normalisers.csv'
RANDOM_SCORES_CSV = SCORES_DIRECTORY / 'random_scores.csv'
MINATAR_SCORES_CSV = SCORES_DIRECTORY / 'minatar_scores.csv'


@functools.cache
def load() -> Mapping[str, Mapping[str, float]]:
  """Returns the scores by game: mean undiscounted, unclipped returns.

  Returns:
    `{game: {name: score}}`: the dataset's games, sorted, then MinAtar's. The
    names are 'random', 'dqn_final', 'dqn_best' and, if published, 'human',
    'human_random', 'gamer' and 'gamer_random'.
  """
  scores: dict[str, dict[str, float]] = {}
  for path in (NORMALISERS_CSV, MINATAR_SCORES_CSV):
    for row in files.read_csv(path):
      scores.setdefault(row['game'], {})[row['score']] = float(row['value'])
  return scores


def formula(normaliser: str) -> str:
  """Returns the formula of a normaliser, and whose scores it has."""
  if normaliser not in _RANDOM:
    return (
      '(agent \N{MINUS SIGN} min(DQN, random)) / |DQN \N{MINUS SIGN} random|, by an online '
      'DQN (on Atari, its returns during training)'
    )
  percent = '100 * ' if normaliser == 'gamer' else ''
  return (
    f'{percent}(agent \N{MINUS SIGN} random) / ({normaliser} \N{MINUS SIGN} random), by published scores '
    'without sticky actions'
  )


def describe(normaliser: str) -> str:
  """Returns the formula of a normaliser, and the files of its scores, in a line."""
  sources = '; '.join(
    f'{path.name}, sha256 {files.sha256(str(path))[:12]}'
    for path in (NORMALISERS_CSV, MINATAR_SCORES_CSV)
  )
  return f'{normaliser}: {formula(normaliser)}; scores and sources: {sources}.'


def can_normalise(game: str, normaliser: str) -> bool:
  """Returns whether returns in a game can be normalised.

  They cannot if the game has no scores, or if the reference scores the same as the
  random agent, as `dqn_final` does in Montezuma's Revenge.

  Raises:
    ValueError: If the normaliser is unknown.
  """
  choices.choose('normaliser', normaliser, NORMALISERS)
  try:
    _zero_and_unit(game, normaliser)
  except ValueError:
    return False
  return True


def normalise(returns: npt.ArrayLike, game: str, normaliser: str) -> np.ndarray:
  """Normalises returns: 0 is the random agent and `reference_score` the reference.

  With a DQN: (agent - min(DQN, random)) / |DQN - random| (Agarwal et al., 2020). If it
  is worse than random, 0 is the DQN and 1 the random agent.
  With a human: (agent - random) / (human - random) (Mnih et al., 2015).
  With a gamer: 100 (agent - random) / (gamer - random) (Chen et al., 2021).

  Args:
    returns: Undiscounted, unclipped returns of episodes, any shape.
    game: Name of the game, e.g. `MontezumaRevenge` or `montezuma_revenge`.
    normaliser: One of `NORMALISERS`.

  Returns:
    Normalised returns, float64 of the same shape.

  Raises:
    ValueError: If the game or the normaliser is unknown, or `can_normalise` is False.
  """
  zero, unit = _zero_and_unit(game, normaliser)
  return (np.asarray(returns, np.float64) - zero) / unit


def denormalise(
  scores: npt.ArrayLike, game: str, normaliser: str
) -> np.ndarray:
  """Returns the returns with the given normalised scores; inverts `normalise`."""
  zero, unit = _zero_and_unit(game, normaliser)
  return np.asarray(scores, np.float64) * unit + zero


def reference_score(normaliser: str) -> float:
  """Returns the normalised score of the reference: 100 for 'gamer', else 1."""
  return 100.0 if normaliser == 'gamer' else 1.0


def reference_name(normaliser: str) -> str:
  """Returns the reference in words: 'online DQN', 'human' or 'gamer'."""
  return 'online DQN' if normaliser.startswith('dqn') else normaliser


def _zero_and_unit(game: str, normaliser: str) -> tuple[float, float]:
  """Returns the return with score 0, and the difference in return of one point.

  Raises:
    ValueError: If the normaliser is unknown, or `can_normalise` is False.
  """
  choices.choose('normaliser', normaliser, NORMALISERS)
  name = games.canonical_name(game)
  scores = load().get(name, {})
  zero = scores.get(_RANDOM.get(normaliser, 'random'))
  one = scores.get(normaliser)
  if zero is None or one is None or zero == one:
    raise ValueError(
      f'{name} has no {normaliser!r} score that differs from the random score: leave '
      'the game out, or choose another normaliser.'
    )
  if normaliser not in _RANDOM:
    zero, one = sorted((zero, one))
  return zero, (one - zero) / reference_score(normaliser)
