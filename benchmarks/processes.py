"""Measurements that need a separate process, memory above all.

`measuring.in_new_process` starts the process, which prints its result as JSON. Imports
are inside the functions, so that a process imports only its own requirements.
"""

import json
import os
import pathlib
import sys
import time
from typing import Any


def memory(kind: str = 'VmRSS', process: int | str = 'self') -> int:
  """Returns a process's memory in bytes.

  `ru_maxrss` is unsuitable: a process inherits it from its parent.

  Args:
    kind: `VmRSS` for current memory, `VmHWM` for its peak, `Anonymous` for the part
      that is not page cache, `RssAnon` for its quick estimate, `Pss` for the
      proportional set size.
    process: Number of the process.
  """
  file = 'status' if kind.startswith(('Vm', 'Rss')) else 'smaps_rollup'
  text = pathlib.Path(f'/proc/{process}/{file}').read_text(encoding='ascii')
  fields = dict(line.split(':', 1) for line in text.split('\n') if ':' in line)
  return int(fields[kind].split()[0]) << 10


def packed_bytes(opened: Any) -> int:
  """Returns the size of a store's packed frames and columns, in bytes."""
  import numpy as np

  tables = opened.frame_tables
  # Offsets begin at 0 in each shard; its last one is the size of its frames.
  sizes = tables.offsets[np.append(tables.offsets[1:] == 0, True)]
  columns = (opened.action, opened.reward, opened.ends)
  arrays = (tables.offsets, tables.running_crc32, *columns)
  return int(sizes.sum()) + sum(array.nbytes for array in arrays)


def load(data_dir: str, suffix: str) -> dict:
  """Loads a shard into memory and draws from it."""
  from batch_rl.dataset.sampling import sampler
  from batch_rl.dataset.store import store

  before = memory()
  start, cpu = time.perf_counter(), time.process_time()
  loaded = store.Store(data_dir, [int(suffix)])
  loaded.wait()
  seconds, cpu = time.perf_counter() - start, time.process_time() - cpu
  drawn = sampler.Sampler(loaded, 4)
  drawn.batch(0, 32)
  return {
    'rows': loaded.rows,
    'seconds': seconds,
    'cpu': cpu,
    'resident': memory() - before,
    'peak': memory('VmHWM') - before,
    'nbytes': packed_bytes(loaded),
  }


def open_store(directory: str) -> dict:
  """Opens a store on disk and draws a batch from it."""
  from batch_rl.dataset.sampling import sampler
  from batch_rl.dataset.store import store

  start = time.perf_counter()
  sampler.Sampler(store.Store(directory), 4, seed=0).batch(0, 32)
  return {'first': time.perf_counter() - start, 'clock': time.time()}


def sequences(directory: str, length: str) -> dict:
  """Opens a run and draws sequences from it."""
  from batch_rl import dataset

  before, start = memory('Anonymous'), time.perf_counter()
  run = dataset.open(directory, show_progress=False)
  opened = time.perf_counter() - start
  drawn = run.sequences(int(length), seed=0)
  seconds = time.perf_counter() - start
  for number in range(10):
    drawn.batch(number, 64)
  return {
    'rows': run.store.rows,
    'opened': opened,
    'seconds': seconds,
    'nbytes': packed_bytes(run.store),
    'anonymous': memory('Anonymous') - before,
  }


def open_buffer(directory: str) -> dict:
  """Opens a store on disk as agents do, with TensorFlow."""
  start = time.perf_counter()
  import batch_rl.fixed_replay.replay_memory.fixed_replay_buffer as module

  imported = time.perf_counter()
  buffer = module.FixedReplayBuffer(directory, None, (84, 84), 4, 1_000_000, 32)
  buffer.sampler.batch(buffer.sampler.next_number(), 32)
  return {'import': imported - start, 'first': time.perf_counter() - imported}


def hold_buffer(data_dir: str, batches: str) -> dict:
  """Opens a run as agents do, draws from it, and holds it until stdin ends."""
  import batch_rl.fixed_replay.replay_memory.fixed_replay_buffer as module

  buffer = module.FixedReplayBuffer(
    data_dir, None, (84, 84), 4, 1_000_000, 32, seed=os.getpid()
  )
  for _ in range(int(batches)):
    buffer.sampler.batch(buffer.sampler.next_number(), 32)
  print('ready', flush=True)
  sys.stdin.read()
  return {}


if __name__ == '__main__':
  result = globals()[sys.argv[1]](*sys.argv[2:])
  print(json.dumps(result))
