"""Damaged stores, opened, sampled and verified; also damaged while mapped."""

import functools
import os
import shutil
from typing import Any

import numpy as np

from batch_rl.dataset import run_directories
from batch_rl.dataset.checks import run_checks
from batch_rl.dataset.store import store
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
    with open(os.path.join(self._original, file), 'rb') as stream:
      content = stream.read()
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
      functools.partial(check, file, damaged, preload),
    )

  def _check_opened(self, file, damaged, preload) -> outcomes.Outcome:
    self._write(file, damaged)
    try:
      verified = outcomes.read('verify', self._verify, {})
      found = outcomes.read(
        'store', lambda: self._read(preload), self._expected
      )
    finally:
      self._restore(file)
    return outcomes.worst([found, verified])

  def _check_mapped(self, file, damaged, preload) -> outcomes.Outcome:
    opened = store.Store(self._path, preload=preload)
    # The same file, not a new one of the same name: the mapping sees the change.
    with open(os.path.join(self._path, file), 'r+b') as stream:
      stream.write(damaged)
      stream.truncate()
    try:
      return outcomes.read(
        'mapped store', lambda: shards.content(opened), self._expected
      )
    finally:
      self._restore(file)

  def _read(self, preload: bool) -> dict[str, Any]:
    return shards.content(store.Store(self._path, preload=preload))

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

  def _restore(self, file: str) -> None:
    with open(os.path.join(self._original, file), 'rb') as stream:
      self._write(file, stream.read())
