"""Logs of real frames for the benchmarks, made once and kept.

  python -um benchmarks.logs          # makes all logs, a few minutes

Each log is a run in the shard format in `benchmarks/.logs/<game>-<player>`. The
`random` player acts uniformly. The `scripted` player reads the ball and the paddle from
the console's memory and follows the ball: its frames resemble a trained agent's, with
long rallies and broken walls.
"""

import batch_rl.agents  # noqa: F401  isort: skip  (before Dopamine)

import os
import shutil

import gin
import numpy as np
import tqdm.auto as tqdm
from dopamine.discrete_domains import atari_lib

from batch_rl.dataset.shards import (
  replay_log,
  shard_files,
  shard_reader,
  stitching,
)
from batch_rl.utils import files

DIRECTORY = os.path.join(os.path.dirname(__file__), '.logs')
ROWS, CAPACITY = 60_000, 20_000
# Addresses in the console's memory (ball, paddle), and the actions that increase and
# decrease the paddle's byte. Action 1 serves.
_BALL_GAMES = {'Pong': (54, 51, 3, 2), 'Breakout': (99, 72, 2, 3)}
LOGS = (
  ('Pong', 'random'),
  ('Breakout', 'random'),
  ('Seaquest', 'random'),
  ('Pong', 'scripted'),
  ('Breakout', 'scripted'),
)


def _scripted(
  game: str, memory: np.ndarray, random: np.random.Generator
) -> int:
  ball, paddle, grow, shrink = _BALL_GAMES[game]
  if random.random() < 0.05:
    return 1
  offset = int(memory[ball]) - int(memory[paddle])
  # Breakout's byte is the paddle's left edge; aim anywhere on it.
  offset -= random.integers(4, 12) if game == 'Breakout' else 4
  return 0 if abs(offset) < 3 else grow if offset > 0 else shrink


def make(game: str, player: str, rows: int = ROWS) -> str:
  """Returns the directory of a log's shards; makes a missing log."""
  run = os.path.join(DIRECTORY, f'{game}-{player}')
  data_dir = os.path.join(run, 'replay_logs')
  if files.read_json(os.path.join(run, 'done.json')):
    return data_dir
  shutil.rmtree(run, ignore_errors=True)
  # ale-py's ROMs: the same on every machine.
  gin.bind_parameter('make_atari.rom_set', 'current')
  environment = atari_lib.create_atari_environment(game)
  random = np.random.default_rng(0)
  log = replay_log.ReplayLog(data_dir, (84, 84), np.uint8, CAPACITY, 4)
  frame = environment.reset()[..., 0]
  for _ in tqdm.trange(rows, desc=f'{game}, {player}'):
    if player == 'random':
      action = int(random.integers(environment.action_space.n))
    else:
      memory = environment.environment.unwrapped.ale.getRAM()
      action = _scripted(game, memory, random)
    after, reward, terminal, _ = environment.step(action)
    log.add(frame.copy(), action, np.clip(reward, -1, 1), terminal)
    frame = (environment.reset() if terminal else after)[..., 0]
  log.close()
  files.write_json(os.path.join(run, 'done.json'), {'rows': rows})
  return data_dir


def columns(game: str, player: str) -> dict[str, np.ndarray]:
  """Returns all rows of a log in time order, by column."""
  data_dir = make(game, player)
  parts = []
  for suffix in shard_files.list_suffixes(data_dir):
    loaded = shard_reader.read_shard(data_dir, suffix)
    order = stitching.time_order(loaded.add_count, loaded.capacity)
    parts.append({name: c[order] for name, c in loaded.columns.items()})
  return {name: np.concatenate([p[name] for p in parts]) for name in parts[0]}


if __name__ == '__main__':
  for log in LOGS:
    print(make(*log))
