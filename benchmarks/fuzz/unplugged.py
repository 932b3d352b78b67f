"""Damaged files of RL Unplugged, read and imported."""

import functools
import gzip
import os
import shutil
from collections.abc import Callable
from typing import Any

import numpy as np

from batch_rl.dataset.imports import store_import
from batch_rl.dataset.store import store
from batch_rl.dataset.unplugged import reader
from batch_rl.tests.dataset.unplugged import unplugged_files
from benchmarks.fuzz import mutations, outcomes, shards

_FILES = 3
_MUTATIONS = {
  **mutations.ANY_SIZE,
  'gzip member appended': mutations.append_member,
}


def _zip_again(mutate: mutations.Mutation) -> mutations.Mutation:
  """Returns a mutation of the records, whose gzip stream is intact again."""

  def mutate_records(content: bytes, random: np.random.Generator) -> bytes:
    damaged = mutate(gzip.decompress(content), random)
    return gzip.compress(damaged, 1, mtime=0)

  return mutate_records


_RECORD_MUTATIONS = {
  f'records: {name}': _zip_again(mutation)
  for name, mutation in mutations.ANY_SIZE.items()
}


def make(directory: str) -> None:
  """Writes a folder with some files of a run."""
  unplugged_files.write_run(
    os.path.join(directory, 'Pong'), checkpoints=range(_FILES)
  )


class Cases:
  """Cases with damaged files.

  Args:
    original: Directory that `make` filled.
    scratch: Directory for damaged copies.
  """

  def __init__(self, original: str, scratch: str):
    shutil.rmtree(scratch, ignore_errors=True)
    self._folder = os.path.join(scratch, 'Pong')
    self._destination = os.path.join(scratch, 'store')
    shutil.copytree(os.path.join(original, 'Pong'), self._folder)
    self._content = {}
    for name in sorted(os.listdir(self._folder)):
      with open(os.path.join(self._folder, name), 'rb') as file:
        self._content[name] = file.read()
    self._expected = self._read()
    self._imported = self._import()

  def draw(self, random: np.random.Generator) -> outcomes.Case:
    """Returns a random case."""
    names = sorted(self._content)
    name = mutations.choose(random, names)
    readers = ('reader', 'import')
    if random.random() < 0.1:
      other = mutations.choose(random, [n for n in names if n != name])
      mutation, damaged = f'content of {other}', self._content[other]
      readers = ('import',)  # Only it compares files; each is intact.
    else:
      table = _MUTATIONS if random.random() < 0.6 else _RECORD_MUTATIONS
      mutation, damaged = mutations.mutate(self._content[name], random, table)
    return outcomes.Case(
      f'{name}: {mutation}',
      functools.partial(self._check, name, damaged, readers),
    )

  def _check(
    self, name: str, damaged: bytes, readers: tuple[str, ...]
  ) -> outcomes.Outcome:
    self._write(name, damaged)
    known: dict[str, tuple[Callable[[], Any], Any]] = {
      'reader': (self._read, self._expected),
      'import': (self._import, self._imported),
    }
    try:
      return outcomes.worst(
        [outcomes.read(label, *known[label]) for label in readers]
      )
    finally:
      self._write(name, self._content[name])

  def _write(self, name: str, content: bytes) -> None:
    with open(os.path.join(self._folder, name), 'wb') as file:
      file.write(content)

  def _read(self) -> dict[str, Any]:
    """Returns everything in the files."""
    opened = reader.UnpluggedReader(self._folder)
    found: dict[str, Any] = {}
    for part in opened.parts:
      for number, episode in enumerate(opened.read(part)):
        frames: Any = episode.frames
        decoded = np.stack(list(frames))
        found[f'episode {number} of {part.name}'] = [
          *(episode.terminal, episode.episode_return),
          *(episode.action.tolist(), episode.reward.tolist()),
          *(episode.unclipped.tolist(), decoded.tobytes()),
        ]
    return found

  def _import(self) -> dict[str, Any]:
    """Returns everything in the store that the files become."""
    shutil.rmtree(self._destination, ignore_errors=True)
    opened = reader.UnpluggedReader(self._folder)
    summary = store_import.import_parts(opened, self._destination)
    if left_out := summary.get('left_out'):
      raise ValueError(next(iter(left_out.values())))
    return shards.content(store.Store(self._destination))
