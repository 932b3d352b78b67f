"""Damaged shards, read, packed, sampled and verified."""

import functools
import os
import shutil
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from batch_rl.dataset.checks import run_checks
from batch_rl.dataset.sampling import sampler
from batch_rl.dataset.shards import replay_log, shard_files
from batch_rl.dataset.store import store
from batch_rl.tests import shards
from benchmarks.fuzz import mutations, outcomes

_SAMPLE = os.path.join('data', 'Pong', '1', shard_files.REPLAY_LOGS)
_ROWS, _CAPACITY = 170, 60
_MUTATIONS = {
  **mutations.ANY_SIZE,
  'gzip member appended': mutations.append_member,
  'header edited': mutations.edit_header,
}


def write_run(directory: str, first: int = 0) -> None:
  """Logs real frames in three shards with a manifest.

  Args:
    directory: Directory of the shards.
    first: First row of the sample to use.
  """
  sample = shards.read_shard(_SAMPLE, 0, shard_files.COLUMNS)
  rows = {
    name: column[first + 100 : first + 100 + _ROWS]
    for name, column in sample.items()
  }
  with replay_log.ReplayLog(
    directory,
    (84, 84),
    np.uint8,
    _CAPACITY,
    metadata={'environment': {'game': 'Pong', 'num_actions': 18}},
  ) as log:
    for i in range(_ROWS):
      frame = np.maximum(rows['observation'][i], 1)  # not padding
      frame[0, 0] = i  # unlike the others
      log.add(
        frame,
        int(rows['action'][i]),
        float(np.sign(i % 5 - 2)),
        i % 37 == 36,
        truncated=i in (50, 120),
      )


def make(directory: str) -> None:
  """Writes a run, and its cache of packed shards."""
  data_dir = os.path.join(directory, 'run')
  write_run(data_dir)
  cached = store.Store(data_dir, directory=os.path.join(directory, 'cache'))
  cached.wait()
  cached.close()


def content(opened: store.Store) -> dict[str, Any]:
  """Returns everything that a store has, and samples of it."""
  opened.wait()
  opened.close()
  rows = np.arange(opened.rows)
  found = {
    'actions': opened.action,
    'rewards': opened.reward,
    'ends': opened.ends,
    'truncations': opened.truncations,
    'starts': opened.starts,
    'windows': opened.windows(rows - 3, 5),
    'frames': opened.frames(rows),
    'padding': [opened.padding(suffix) for suffix in opened.suffixes],
  }
  sampled = sampler.Sampler(opened, stack_size=4, update_horizon=2, seed=1)
  found['valid rows'] = sampled.valid_rows()
  found['hash'] = sampled.subset_hash()
  for number in range(4):
    batch = sampled.batch(number, 32)
    found |= {
      f'{name} of batch {number}': array
      for name, array in batch._asdict().items()
    }
  return found


def sample(
  opened: store.Store, expected: Mapping[str, Any] | None = None
) -> dict[str, Any]:
  """Returns all transitions of a store, from compiled code, ten at a time.

  Args:
    opened: Store.
    expected: What an intact store has. If some transitions cannot be read, and all
      others are as expected, the error is raised.
  """
  sampled = sampler.Sampler(opened, stack_size=4, seed=1)
  if not sampled.wait_until_compiled():
    raise RuntimeError('The sampler cannot be compiled.')
  found: dict[str, Any] = {}
  errors = []
  rows = sampled.valid_rows()
  for start in range(0, len(rows), 10):
    try:
      batch = sampled.gather(rows[start : start + 10])
    except ValueError as error:
      errors.append(error)
      continue
    for name, column in batch._asdict().items():
      found[f'{name} from {start}'] = column
  if errors and all(
    np.array_equal(array, (expected or {}).get(name))
    for name, array in found.items()
  ):
    raise errors[0]
  return found


def read_shards(data_dir: str) -> dict[str, Any]:
  """Returns all arrays of a run, as the reader of shards returns them."""
  found: dict[str, Any] = {}
  for suffix in shard_files.list_suffixes(data_dir):
    shard = shards.read_shard(data_dir, suffix)
    found |= {f'{name} {suffix}': array for name, array in shard.items()}
  return found


class Cases:
  """Cases with damaged shards.

  Args:
    original: Directory that `make` filled.
    scratch: Directory for damaged copies.
  """

  def __init__(self, original: str, scratch: str):
    self._original = os.path.join(original, 'run')
    self._original_cache = os.path.join(original, 'cache')
    self._data_dir = os.path.join(scratch, 'run')
    self._cache = os.path.join(scratch, 'cache')
    shutil.rmtree(scratch, ignore_errors=True)
    # Times are kept: packed shards in the cache are up to date.
    shutil.copytree(self._original, self._data_dir)
    self._readers: dict[str, Callable[[], dict[str, Any]]] = {
      'reader': lambda: read_shards(self._data_dir),
      'store': lambda: content(store.Store(self._data_dir)),
      'cached store': self._read_cached,
    }
    self._expected = {name: read() for name, read in self._readers.items()}

  def draw(self, random: np.random.Generator) -> outcomes.Case:
    """Returns a random case."""
    suffixes = shard_files.list_suffixes(self._original)
    suffix = mutations.choose(random, suffixes)
    name = mutations.choose(random, shard_files.FILES)
    file = shard_files.file_name(name, suffix)
    if random.random() < 0.1:
      other = mutations.choose(random, [s for s in suffixes if s != suffix])
      mutation = f'exchanged for that of shard {other}'
      damaged = self._read_file(shard_files.file_name(name, other))
      well_formed = True
    else:
      mutation, damaged = mutations.mutate(
        self._read_file(file), random, _MUTATIONS
      )
      # A valid file, which only the manifest can tell from the original.
      well_formed = mutation == 'header edited'
    readers = ['reader', 'store', *['cached store'][: random.integers(2)]]
    return outcomes.Case(
      f'{file}: {mutation}',
      functools.partial(self._check, file, damaged, readers, well_formed),
    )

  def _read_file(self, file: str) -> bytes:
    with open(os.path.join(self._original, file), 'rb') as stream:
      return stream.read()

  def _check(self, file, damaged, readers, well_formed) -> outcomes.Outcome:
    path = os.path.join(self._data_dir, file)
    with open(path, 'wb') as stream:
      stream.write(damaged)
    try:
      verified = outcomes.read('verify', self._verify, {})
      found = [
        outcomes.read(name, self._readers[name], self._expected[name])
        for name in readers
      ]
    finally:
      shutil.copy2(os.path.join(self._original, file), path)
    worst = outcomes.worst(found)
    is_verified = verified.verdict == outcomes.DETECTED
    if well_formed and worst.verdict == outcomes.SILENT and is_verified:
      return verified
    return outcomes.worst([worst, verified])

  def _verify(self) -> dict[str, Any]:
    """Raises the first problem that `verify` finds."""
    if problems := run_checks.verify(self._data_dir, '').problems:
      raise ValueError(problems[0].message)
    return {}

  def _read_cached(self) -> dict[str, Any]:
    shutil.rmtree(self._cache, ignore_errors=True)
    shutil.copytree(self._original_cache, self._cache)
    return content(store.Store(self._data_dir, directory=self._cache))
