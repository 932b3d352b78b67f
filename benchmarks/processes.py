"""Measurements that need a separate process, memory above all.

`measuring.in_new_process` starts the process, which prints its result as JSON. Imports
are inside the functions, so that a process imports only its own requirements.
"""

import array
import json
import os
import sys
import time

import numpy as np


def memory(kind: str = 'VmRSS', process: int | str = 'self') -> int:
  """Returns a process's memory in bytes: `VmRSS` current, `VmHWM` peak.

  `ru_maxrss` is unsuitable: a process inherits it from its parent.
  """
  with open(f'/proc/{process}/status', encoding='ascii') as file:
    fields = dict(line.split(':', 1) for line in file)
  return int(fields[kind].split()[0]) << 10


def anonymous_memory(process: int | str = 'self') -> int:
  """Returns the bytes of anonymous memory; the rest of VmRSS is page cache."""
  with open(f'/proc/{process}/smaps_rollup', encoding='ascii') as file:
    fields = dict(line.split(':', 1) for line in file if ':' in line)
  return int(fields['Anonymous'].split()[0]) << 10


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
    'nbytes': loaded.nbytes,
  }


def convert(data_dir: str, directory: str) -> dict:
  """Converts a run to a store on disk; counts only newly packed rows."""
  from batch_rl.dataset.store import store

  before = memory()
  done: list[int] = []
  start = time.perf_counter()
  store.convert(data_dir, directory, done.append)
  return {
    'rows': sum(done),
    'seconds': time.perf_counter() - start,
    'peak': memory('VmHWM') - before,
  }


def draw(directory: str, seconds: str) -> dict:
  """Opens a store on disk and draws batches from it."""
  from batch_rl.dataset.sampling import sampler
  from batch_rl.dataset.store import store

  start = time.perf_counter()
  opened = store.Store(directory)
  drawn = sampler.Sampler(opened, 4, seed=0)
  drawn.batch(0, 32)
  result = {
    'first': time.perf_counter() - start,
    'clock': time.time(),
    'peak': memory('VmHWM'),
  }
  times = array.array('d')
  found = np.zeros(len(opened.suffixes), np.int64)
  stop = time.perf_counter() + float(seconds)
  while (now := time.perf_counter()) < stop:
    rows = drawn.batch(len(times) + 1, 32).rows
    times.append(time.perf_counter() - now)
    found += np.histogram(rows, opened.starts)[0]
  result |= {
    'rows': opened.rows,
    'transitions': drawn.num_transitions,
    'resident': memory(),
    'anonymous': anonymous_memory(),
    'times': list(times),
    'drawn': found.tolist(),
  }
  if times:
    valid = np.histogram(drawn.valid_rows(), opened.starts)[0]
    result['valid'] = valid.tolist()
  return result


def sequences(directory: str, length: str) -> dict:
  """Opens a run and draws sequences from it."""
  from batch_rl import dataset

  before, start = anonymous_memory(), time.perf_counter()
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
    'nbytes': run.store.nbytes,
    'anonymous': anonymous_memory() - before,
  }


def open_buffer(directory: str) -> dict:
  """Opens a store on disk as agents do, with TensorFlow."""
  start = time.perf_counter()
  import batch_rl.fixed_replay.replay_memory.fixed_replay_buffer as module

  imported = time.perf_counter()
  buffer = module.FixedReplayBuffer(directory, None, (84, 84), 4, 1_000_000, 32)
  buffer.sampler.batch(buffer.sampler.next_number(), 32)
  return {
    'import': imported - start,
    'first': time.perf_counter() - imported,
    'clock': time.time(),
  }


def hold_buffer(data_dir: str, cache_dir: str, batches: str) -> dict:
  """Opens a run as agents do, draws from it, and holds it until stdin ends."""
  import batch_rl.fixed_replay.replay_memory.fixed_replay_buffer as module

  buffer = module.FixedReplayBuffer(
    data_dir,
    None,
    (84, 84),
    4,
    1_000_000,
    32,
    cache_dir=cache_dir or None,
    seed=os.getpid(),
  )
  for _ in range(int(batches)):
    buffer.sampler.batch(buffer.sampler.next_number(), 32)
  print('ready', flush=True)
  sys.stdin.read()
  return {}


if __name__ == '__main__':
  result = globals()[sys.argv[1]](*sys.argv[2:])
  print(json.dumps(result))
