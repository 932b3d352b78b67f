"""Random scores of each game, for `batch_rl/report/scores/random_scores.csv`.

  python -um benchmarks.random_scores [--games Pong Breakout] [--episodes 100] [--out FILE]
  python -um benchmarks.random_scores --update   # adds the package's missing rows

Uniformly random actions of the minimal set under the dataset's protocol: sticky
actions 0.25, frame skip 4, no life-loss terminals, episodes of at most 27,000 agent
steps. Each game is played with the dataset's ROM and, if it differs, ale-py's. Scores are
printed, and added to a file of your choice (`--out`) or, with `--update`, to the package's.
Existing rows of the file are not measured again. `--update` copies the scores for the
dataset's ROMs to `normalisers.csv`.

Takes about an hour of one processor. Seed and engine determine the scores.
"""

import argparse
import dataclasses
import pathlib

import ale_py
import numpy as np
import tqdm

from batch_rl.atari import environment, roms
from batch_rl.report import normalisation
from batch_rl.sweep import plan
from batch_rl.utils import files
from benchmarks import measuring

# All play the same number of complete episodes. Taking the first episodes to end would
# favour short ones.
ENVIRONMENTS = 10
FRAME_SKIP = 4
MOST_STEPS = 27_000  # agent steps an episode
# Games in which 100 episodes would exceed about 400,000 agent steps.
FEWER_EPISODES = {'ElevatorAction': 20, 'Solaris': 60}


@dataclasses.dataclass(frozen=True)
class Score:
  """A row of `random_scores.csv`.

  Attributes:
    game: CamelCase name.
    rom_md5: Hexadecimal md5 of the ROM.
    rom_set: 'legacy' for the dataset's ROM, 'current' for ale-py's, or 'both'.
    mean_return: Mean undiscounted, unclipped return.
    standard_error: Standard error of `mean_return`.
    episodes: Number of complete episodes.
    agent_steps: Agent steps of all episodes.
    mean_clipped_return: Mean return with rewards clipped to [-1, 1].
    seed: Seed of actions, sticky actions and initial memory.
    engine_version: Version of ale-py.
  """

  game: str
  rom_md5: str
  rom_set: str
  mean_return: float
  standard_error: float
  episodes: int
  agent_steps: int
  mean_clipped_return: float
  seed: int
  engine_version: str = ale_py.__version__


def measure(rom: roms.Rom, episodes: int, seed: int) -> Score:
  """Plays random actions.

  The episodes are bit for bit those of `make_vector_environment` with these seeds and
  the actions of one generator. The vector environment synchronises its emulators in
  every step, which takes ten times as long on a busy machine; here they play one after
  the other.

  Args:
    rom: ROM of the game.
    episodes: Number of episodes, a multiple of `ENVIRONMENTS`.
    seed: Seed of actions, sticky actions and initial memory.
  """
  shape = (ENVIRONMENTS, episodes // ENVIRONMENTS)
  ale = environment.make_atari(rom.game, rom.rom_set).ale
  minimal = ale.getMinimalActionSet()
  # By step and emulator; the action between two episodes is ignored.
  actions = np.random.default_rng(seed).integers(
    len(minimal), size=(shape[1] * (MOST_STEPS + 1), ENVIRONMENTS)
  )
  seeds = np.random.SeedSequence(seed).generate_state(ENVIRONMENTS) >> 1
  lengths = np.zeros(shape, np.int64)
  returns, clipped = np.zeros(shape), np.zeros(shape)
  for i in range(ENVIRONMENTS):
    ale.setInt('random_seed', int(seeds[i]))
    ale.loadROM(rom.path)
    step = 0
    for episode in range(shape[1]):
      ale.reset_game()
      while not ale.game_over():
        action = minimal[actions[step, i]]
        reward = 0
        for _ in range(FRAME_SKIP):
          reward += ale.act(action)
          if ale.game_over():
            break
        step += 1
        lengths[i, episode] += 1
        returns[i, episode] += reward
        clipped[i, episode] += min(max(reward, -1), 1)
      step += 1
  return Score(
    rom.game,
    rom.md5,
    _rom_set(rom),
    mean_return=float(returns.mean()),
    standard_error=float(returns.std(ddof=1) / returns.size**0.5),
    episodes=returns.size,
    agent_steps=int(lengths.sum()),
    mean_clipped_return=float(clipped.mean()),
    seed=seed,
  )


def _rom_set(rom: roms.Rom) -> str:
  return 'both' if rom.same_in_both_sets else rom.rom_set


def find_roms(game: str) -> list[roms.Rom]:
  """Returns the dataset's ROM and ale-py's, or one if they are identical."""
  current = roms.find_rom(game, 'current')
  if current.same_in_both_sets:
    return [current]
  try:
    return [roms.find_rom(game, 'legacy'), current]
  except ValueError as error:
    print(error)
    return [current]


def read_scores(
  path: pathlib.Path | None,
) -> dict[tuple[str, str], dict[str, str]]:
  """Returns the rows of a file by game and md5; {} without a file."""
  rows = files.read_csv(path) if path and path.exists() else []
  return {(row['game'], row['rom_md5']): row for row in rows}


def update_normalisers() -> None:
  """Rewrites the random scores of `normalisers.csv`.

  The score is that of the dataset's ROM or, if not measured, of ale-py's.
  """
  random: dict[str, dict[str, str]] = {}
  for row in read_scores(normalisation.RANDOM_SCORES_CSV).values():
    if row['rom_set'] != 'current' or row['game'] not in random:
      random[row['game']] = row
  rows = files.read_csv(normalisation.NORMALISERS_CSV)
  rows = [row for row in rows if row['score'] != 'random']
  for game, row in random.items():
    source = (
      f'benchmarks/random_scores.py: {row["episodes"]} episodes, '
      f'ROM {row["rom_md5"]}, ale-py {row["engine_version"]}, '
      f'seed {row["seed"]}'
    )
    value = row['mean_return']
    rows.append(
      {'game': game, 'score': 'random', 'value': value, 'source': source}
    )
  order = ('random', 'dqn_final', 'dqn_best', 'human', 'human_random')
  order += ('gamer', 'gamer_random')
  rows.sort(key=lambda row: (row['game'], order.index(row['score'])))
  measuring.write_csv(normalisation.NORMALISERS_CSV, rows)


def main() -> None:
  """Measures the missing rows one by one."""
  parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
  parser.add_argument('--games', nargs='+', default=plan.dataset_games())
  parser.add_argument('--episodes', type=int, default=100)
  parser.add_argument('--seed', type=int, default=0)
  measuring.add_out(parser, normalisation.RANDOM_SCORES_CSV, 'printed only')
  arguments = parser.parse_args()
  if arguments.episodes <= 0 or arguments.episodes % ENVIRONMENTS:
    parser.error(f'--episodes is not a multiple of {ENVIRONMENTS}.')
  rows = read_scores(arguments.out)
  missing = []
  for game in arguments.games:
    for rom in find_roms(game):
      if (rom.game, rom.md5) not in rows:
        missing.append(rom)
  # The dataset's ROMs first.
  missing.sort(key=lambda rom: _rom_set(rom) == 'current')
  progress = tqdm.tqdm(missing, unit='ROM')
  for rom in progress:
    most = FEWER_EPISODES.get(rom.game, arguments.episodes)
    score = measure(rom, min(most, arguments.episodes), arguments.seed)
    rows[score.game, score.rom_md5] = {
      name: str(value) for name, value in dataclasses.asdict(score).items()
    }
    if arguments.out:
      in_order = sorted(rows.values(), key=lambda r: (r['game'], r['rom_set']))
      measuring.write_csv(arguments.out, in_order)
    progress.write(
      f'{score.game} ({score.rom_set}): {score.mean_return:.2f}, standard error '
      f'{score.standard_error:.2f}, {score.episodes} episodes, '
      f'{score.agent_steps:,} agent steps'
    )
  if arguments.out == normalisation.RANDOM_SCORES_CSV:
    update_normalisers()


if __name__ == '__main__':
  main()
