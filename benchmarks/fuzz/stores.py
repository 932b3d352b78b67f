"""Damaged stores, opened, sampled and verified; also damaged while mapped."""

import functools
import os
import shutil
from collections.abc import Iterable
from typing import Any

import numpy as np

from batch_rl.dataset import run_directories
from batch_rl.dataset.checks import run_checks
from batch_rl.dataset.store import packed_shard, store, store_directory
from benchmarks.fuzz import mutations, outcomes, shards

_IN_PLACE = {**mutations.SAME_SIZE, 'truncated': mutations.truncate}
_JSON = {**mutations.ANY_SIZE, 'value changed': mutations.change_value}


def make(directory: str) -> None:
  """Converts a run to a store."""
  data_dir = os.path.join(directory, 'run')
  shards.write_run(data_dir)
  store.convert(data_dir, os.path.join(directory, 'store'))


class Cases:
  """Cases with damaged stores.

  Args:
    original: Directory that `make` filled.
    scratch: Directory for damaged copies.
  """

  def __init__(self, original: str, scratch: str):
    self._original = os.path.join(original, 'store')
    self._path = os.path.join(scratch, 'store')
    shutil.rmtree(scratch, ignore_errors=True)
    shutil.copytree(self._original, self._path)
    self._expected = self._read(preload=False)
    self._samples = shards.sample(store.Store(self._path))

  def draw(self, random: np.random.Generator) -> outcomes.Case:
    """Returns a random case."""
    names = sorted(
      name
      for name in os.listdir(self._original)
      if name[0] != '.' and os.path.getsize(os.path.join(self._original, name))
    )
    binaries = [name for name in names if name.endswith('.bin')]
    is_binary = random.random() < 0.7
    others = [name for name in names if name not in binaries]
    file = mutations.choose(random, binaries if is_binary else others)
    if random.random() < 0.1:
      return self._draw_exchange(random)
    content = self._read_file(file)
    mapped = is_binary and random.random() < 0.5
    preload = not mapped and bool(random.random() < 0.3)
    table = mutations.ANY_SIZE
    if mapped:
      table = _IN_PLACE
    elif file.endswith('.json'):
      table = _JSON
    mutation, damaged = mutations.mutate(content, random, table)
    when = 'while mapped' if mapped else 'read' if preload else 'opened'
    check = self._check_mapped if mapped else self._check_opened
    return outcomes.Case(
      f'{file}: {mutation}, {when}',
      functools.partial(check, {file: damaged}, preload),
    )

  def _draw_exchange(self, random: np.random.Generator) -> outcomes.Case:
    """Returns a case in which files of one shard are those of another."""
    suffixes = store_directory.list_shards(self._original)
    one, other = random.permutation(suffixes)[:2].tolist()
    kinds = mutations.choose(random, [[0], [1], [0, 1]])  # `.bin`, `.json`
    pairs = [(one, other), (other, one)][: int(random.integers(1, 3))]
    names = {
      os.path.basename(packed_shard.paths('', to)[kind]): os.path.basename(
        packed_shard.paths('', origin)[kind]
      )
      for to, origin in pairs
      for kind in kinds
    }
    damaged = {to: self._read_file(origin) for to, origin in names.items()}
    return outcomes.Case(
      ', '.join(f'{to} is {origin}' for to, origin in names.items()),
      functools.partial(self._check_opened, damaged, False),
    )

  def _check_opened(self, damaged, preload) -> outcomes.Outcome:
    for file, content in damaged.items():
      self._write(file, content)
    try:
      verified = outcomes.read('verify', self._verify, {})
      found = [
        outcomes.read('store', lambda: self._read(preload), self._expected),
        outcomes.read('sampler', lambda: self._sample(preload), self._samples),
      ]
    finally:
      self._restore(damaged)
    return outcomes.worst([*found, verified])

  def _check_mapped(self, damaged, preload) -> outcomes.Outcome:
    opened = store.Store(self._path, preload=preload)
    sampled = store.Store(self._path, preload=preload)
    # The same file, not a new one of the same name: the mapping sees the change.
    for file, content in damaged.items():
      with open(os.path.join(self._path, file), 'r+b') as stream:
        stream.write(content)
        stream.truncate()
    try:
      found = [
        outcomes.read(
          'mapped store', lambda: shards.content(opened), self._expected
        ),
        outcomes.read(
          'sampler, mapped',
          lambda: shards.sample(sampled, self._samples),
          self._samples,
        ),
      ]
      return outcomes.worst(found)
    finally:
      self._restore(damaged)

  def _read(self, preload: bool) -> dict[str, Any]:
    return shards.content(store.Store(self._path, preload=preload))

  def _sample(self, preload: bool) -> dict[str, Any]:
    opened = store.Store(self._path, preload=preload)
    return shards.sample(opened, self._samples)

  def _verify(self) -> dict[str, Any]:
    """Raises the first problem that `verify` finds."""
    run = run_directories.as_run(self._path)
    if run is None:
      raise ValueError(f'{self._path} is not a run.')
    if problems := run_checks.verify_store(run).problems:
      raise ValueError(problems[0].message)
    return {}

  def _write(self, file: str, content: bytes) -> None:
    path = os.path.join(self._path, file)
    with open(path + '.new', 'wb') as stream:
      stream.write(content)
    os.replace(path + '.new', path)  # Others may still map the old file.

  def _restore(self, names: Iterable[str]) -> None:
    for name in names:
      self._write(name, self._read_file(name))

  def _read_file(self, name: str) -> bytes:
    with open(os.path.join(self._original, name), 'rb') as stream:
      return stream.read()
