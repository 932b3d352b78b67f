"""Scores that normalise MinAtar's returns, for `batch_rl/report/scores/minatar_scores.csv`.

  python -um benchmarks.minatar_scores --random
  python -um benchmarks.minatar_scores --online runs/minatar/online
  python -um benchmarks.minatar_scores --random --update  # replaces scores of the file

`--random` plays 1,000 episodes of uniformly random actions in each game; it takes two
minutes of one processor, and the seed determines the scores. `--online` takes the
`dqn_final` and `dqn_best` scores from the finished online DQN runs below a directory:
means over the runs of the last evaluation and of the best one. They are printed, or added
to a file of your choice (`--out`). With `--update`, they replace those of the package.
"""

import argparse
import dataclasses
import importlib.metadata
import pathlib
from collections.abc import Iterable

import numpy as np

from batch_rl.minatar import environment, games
from batch_rl.report import normalisation, run_results
from batch_rl.utils import files
from benchmarks import measuring

SEED = 0
# In the order of the file.
SCORES = ('random', 'dqn_final', 'dqn_best')
_ONLINE_DQN = 'DQN (Adam), online'


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


def online_scores(directory: str) -> list[Score]:
  """Returns the scores of the finished online DQN runs below a directory.

  Raises:
    ValueError: If there is none, or runs of a game differ in length.
  """
  by_game: dict[str, list[run_results.RunResults]] = {}
  found, unread = run_results.find_runs([directory])
  for path in found:
    try:
      run = run_results.read_run(path)
    except run_results.NoResultsError as error:
      unread.append((path, error.reason))
      continue
    if run.agent == _ONLINE_DQN and games.is_minatar(run.game):
      if run.is_finished:
        by_game.setdefault(run.game, []).append(run)
      else:
        unread.append((path, f'{run.done} of {run.planned} iterations'))
  for path, reason in unread:
    print(f'left out: {path}: {reason}')
  if not by_game:
    raise ValueError(
      f'{directory} has no finished run of an online DQN on MinAtar.'
    )
  scores = []
  for game, runs in sorted(by_game.items()):
    iterations, *others = sorted({run.done for run in runs})
    if others:
      raise ValueError(
        f'{directory} has runs of {iterations} and of {others[-1]} iterations of '
        f'{game}: choose one length.'
      )
    source = (
      f'benchmarks/minatar_scores.py: {runs[0].agent}, batch_rl/minatar/configs/'
      f'online.gin, {len(runs)} runs of {iterations} iterations, '
    )
    last = np.array([run.returns[-1] for run in runs])
    best = np.array([run.returns.max() for run in runs])
    scores += [
      _score(game, 'dqn_final', last, source + 'last evaluation'),
      _score(game, 'dqn_best', best, source + 'best evaluation of each'),
    ]
  return scores


def _score(game, score, returns, source):
  error = float('nan')
  if len(returns) > 1:
    error = float(returns.std(ddof=1) / len(returns) ** 0.5)
  return Score(
    game, score, round(float(returns.mean()), 6), round(error, 6), source
  )


def update(scores: Iterable[Score], path: pathlib.Path) -> None:
  """Writes scores to a file, in place of earlier ones of the same kind."""
  rows = {}
  if path.exists():
    rows = {(row['game'], row['score']): row for row in files.read_csv(path)}
  for score in scores:
    rows[score.game, score.score] = dataclasses.asdict(score)
  in_order = sorted(
    rows.values(), key=lambda row: (row['game'], SCORES.index(row['score']))
  )
  measuring.write_csv(path, in_order)


def main() -> None:
  """Measures, prints and, if asked, writes scores."""
  parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
  parser.add_argument('--random', action='store_true')
  parser.add_argument('--online', metavar='DIR')
  parser.add_argument('--episodes', type=int, default=1000)
  measuring.add_out(parser, normalisation.MINATAR_SCORES_CSV, 'printed only')
  arguments = parser.parse_args()
  if not (arguments.random or arguments.online):
    parser.error('give --random, --online or both')
  if arguments.episodes < 2:
    parser.error(f'--episodes={arguments.episodes} is below 2')
  scores = []
  if arguments.random:
    for game in games.GAMES:
      scores.append(measure_random(game, arguments.episodes))
  if arguments.online:
    scores += online_scores(arguments.online)
  for one in scores:
    print(f'{one.game} {one.score}: {one.value} +- {one.standard_error}')
  if arguments.out:
    update(scores, arguments.out)
    print(arguments.out)


if __name__ == '__main__':
  main()
