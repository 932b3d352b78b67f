"""Logs of real frames for the benchmarks, made once and kept.

Logs of Atari are runs of random actions in the shard format, `benchmarks/.logs/<game>-random`.
"""

import glob
import os
import shutil
import tempfile

import numpy as np
import tqdm

from batch_rl.dataset.shards import replay_log
from batch_rl.tests import shards
from benchmarks import measuring

DIRECTORY = os.path.join(os.path.dirname(__file__), '.logs')
ROWS, CAPACITY = 60_000, 20_000
MINATAR = 'MinAtar-Breakout/1'
if measuring.QUICK:
  DIRECTORY = os.path.join(DIRECTORY, 'smallest')
  ROWS, CAPACITY = 3000, 1000


def make(game: str) -> str:
  """Returns the directory of a log's shards; makes a missing log."""
  run = os.path.join(DIRECTORY, f'{game}-random')
  data_dir = os.path.join(run, 'replay_logs')
  if os.path.isdir(run):
    return data_dir
  # Here, since some benchmarks measure processes without TensorFlow.
  import batch_rl.agents  # noqa: F401  isort: skip  (before Dopamine)
  import gin
  from dopamine.discrete_domains import atari_lib

  os.makedirs(DIRECTORY, exist_ok=True)
  partial = tempfile.mkdtemp(dir=DIRECTORY)
  # ale-py's ROMs: the same on every machine.
  gin.bind_parameter('make_atari.rom_set', 'current')
  environment = atari_lib.create_atari_environment(game)
  random = np.random.default_rng(0)
  log = replay_log.ReplayLog(
    os.path.join(partial, 'replay_logs'), (84, 84), np.uint8, CAPACITY, 4
  )
  frame = environment.reset()[..., 0]
  for _ in tqdm.trange(ROWS, desc=game):
    action = int(random.integers(environment.action_space.n))
    after, reward, terminal, _ = environment.step(action)
    log.add(frame.copy(), action, np.clip(reward, -1, 1), terminal)
    frame = (environment.reset() if terminal else after)[..., 0]
  log.close()
  _keep(partial, run)
  return data_dir


def _keep(partial: str, run: str) -> None:
  try:
    os.rename(partial, run)
  except OSError:  # Another program has made it meanwhile.
    shutil.rmtree(partial)


def minatar() -> str:
  """Returns the run of MinAtar; with `--quick`, one of its last shard, 340 rows."""
  whole = os.path.join('data', MINATAR)
  run = os.path.join(DIRECTORY, MINATAR) if measuring.QUICK else whole
  if not os.path.isdir(run):
    os.makedirs(os.path.dirname(run), exist_ok=True)
    partial = tempfile.mkdtemp(dir=DIRECTORY)
    shards_dir = os.path.join(partial, 'replay_logs')
    os.mkdir(shards_dir)
    for path in glob.glob(os.path.join(whole, 'replay_logs', '*_ckpt.2.gz')):
      shutil.copy(path, shards_dir)
    _keep(partial, run)
  return run


def columns(game: str) -> dict[str, np.ndarray]:
  """Returns all rows of a log in time order, by column."""
  return shards.read_columns(make(game))
