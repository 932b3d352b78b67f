"""Scores that normalise MinAtar's returns, for `batch_rl/report/scores/minatar_scores.csv`.

  python -um benchmarks.minatar_scores --random
  python -um benchmarks.minatar_scores --online
  python -um benchmarks.minatar_scores --online --update  # replaces scores of the file

`--random` plays 1,000 episodes of uniformly random actions in each game; it takes two
minutes of one processor, and the seed determines the scores. `--online` takes the
`dqn_final` and `dqn_best` scores from the record of the MinAtar benchmark: means over the
online DQNs of their last three evaluations, and of their best one. They are printed, or
added to a file of your choice (`--out`). With `--update`, they replace those of the package.
"""

import argparse
import dataclasses
import importlib.metadata
import pathlib
from collections.abc import Iterable

import numpy as np
import pandas as pd

from batch_rl.minatar import environment, games
from batch_rl.report import normalisation
from batch_rl.utils import files
from benchmarks import measuring
from benchmarks.evidence.minatar import protocol, record, scores

SEED = 0
# In the order of the file.
SCORES = ('random', 'dqn_final', 'dqn_best')
_RECORD = pathlib.Path(record.__file__).parent / 'results' / 'evaluations.csv'


@dataclasses.dataclass(frozen=True)
class Score:
  """A row of `minatar_scores.csv`.

  Attributes:
    game: Name, e.g. `MinAtar-Breakout`.
    score: One of `SCORES`.
    value: Mean undiscounted, unclipped return.
    standard_error: Standard error of `value` over episodes, for 'random', or runs.
    source: How it was measured.
  """

  game: str
  score: str
  value: float
  standard_error: float
  source: str


def measure_random(game: str, episodes: int, seed: int = SEED) -> Score:
  """Plays random actions under MinAtar's defaults: sticky actions and ramping.

  Args:
    game: Name of the game.
    episodes: Number of complete episodes, at least 2.
    seed: Seed of the game, and of the actions.
  """
  env = environment.MinAtarEnvironment(game)
  random = np.random.default_rng(seed)
  returns = np.zeros(episodes)
  env.reset(seed)
  for episode in range(episodes):
    while not env.game_over:
      action = int(random.integers(env.action_space.n))
      returns[episode] += env.step(action)[1]
    env.reset()
  version = importlib.metadata.version('minatar')
  return _score(
    env.name,
    'random',
    returns,
    f'benchmarks/minatar_scores.py: {episodes} episodes, minatar {version}, '
    f'seed {seed}',
  )


def online_scores(evaluations: pd.DataFrame) -> list[Score]:
  """Returns the scores of the online DQNs of the tables in a record of the benchmark.

  Args:
    evaluations: Rows of `evaluations.csv`.

  Raises:
    ValueError: If it has none.
  """
  runs = scores.of_runs(evaluations)
  runs = runs[(runs.stage == 'online') & runs.run.isin(protocol.RUNS)]
  if runs.empty:
    raise ValueError('The record has no online DQN: run the stage data first.')
  runs = scores.finished(runs)
  found = []
  for game, group in runs.groupby('game'):
    source = (
      f'benchmarks/evidence/minatar: {group.label.iloc[0]}, {len(group)} runs of '
      f'{group.updates.iloc[0]:,} updates, '
    )
    last, best = group.return_last.to_numpy(), group.return_best.to_numpy()
    found += [
      _score(game, 'dqn_final', last, source + 'last three evaluations'),
      _score(game, 'dqn_best', best, source + 'best evaluation of each'),
    ]
  return found


def _score(game, score, returns, source):
  error = float('nan')
  if len(returns) > 1:
    error = float(returns.std(ddof=1) / len(returns) ** 0.5)
  return Score(
    game, score, round(float(returns.mean()), 6), round(error, 6), source
  )


def update(measured: Iterable[Score], path: pathlib.Path) -> None:
  """Writes scores to a file, in place of earlier ones of the same kind."""
  rows = {}
  if path.exists():
    rows = {(row['game'], row['score']): row for row in files.read_csv(path)}
  for score in measured:
    rows[score.game, score.score] = dataclasses.asdict(score)
  in_order = sorted(
    rows.values(), key=lambda row: (row['game'], SCORES.index(row['score']))
  )
  measuring.write_csv(path, in_order)


def main() -> None:
  """Measures, prints and, if asked, writes scores."""
  parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
  parser.add_argument('--random', action='store_true')
  parser.add_argument('--online', action='store_true')
  parser.add_argument('--episodes', type=int, default=1000)
  measuring.add_out(parser, normalisation.MINATAR_SCORES_CSV, 'printed only')
  arguments = parser.parse_args()
  if not (arguments.random or arguments.online):
    parser.error('give --random, --online or both')
  if arguments.episodes < 2:
    parser.error(f'--episodes={arguments.episodes} is below 2')
  measured = []
  if arguments.random:
    for game in games.GAMES:
      measured.append(measure_random(game, arguments.episodes))
  if arguments.online:
    measured += online_scores(record.read(_RECORD, record.EVALUATIONS))
  for one in measured:
    print(f'{one.game} {one.score}: {one.value} +- {one.standard_error}')
  if arguments.out:
    update(measured, arguments.out)
    print(arguments.out)


if __name__ == '__main__':
  main()
