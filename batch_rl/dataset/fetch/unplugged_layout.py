"""RL Unplugged's files, one for each checkpoint of a run.

Their folder is `atari_episodes_ordered/<Game>`; see `unplugged.file_names`. The run's
directory, `<Game>/<run>`, becomes a store, and shard k holds checkpoint k.
"""

import os
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from batch_rl.dataset.fetch import layout, partial_file, plan
from batch_rl.dataset.imports import store_import
from batch_rl.dataset.shards import digests, shard_files, stitching
from batch_rl.dataset.unplugged import file_names, reader
from batch_rl.utils import number_ranges

# Folder of the fetched files in a run's directory.
RAW = 'raw'
# Assumed bytes of a store for each byte of raw files. Files written from the sample,
# with PNGs by OpenCV, give 0.35; files of the bucket itself were not seen.
STORE_RATIO = 0.4


class UnpluggedLayout(layout.Layout):
  """Files of episodes. Each is imported while others are fetched, then removed.

  At most `jobs + max_waiting` of them are on the disk.

  Args:
    last_step: Content of terminal steps; see `StoreImport`.
    keep_raw: Whether to keep the fetched files.
  """

  unit = 'checkpoint'
  max_waiting = 2
  advice = (
    'Files that you have already become a store with `python -m batch_rl.dataset '
    'import`, and so does the RLDS copy of the same runs, '
    'rlu_atari_checkpoints_ordered.'
  )

  def __init__(self, last_step: str | None = None, keep_raw: bool = False):
    self._last_step = last_step or 'auto'
    self._keep_raw = keep_raw
    # An import uses all cores.
    self._importing = threading.Lock()

  def check(
    self, games: Sequence[str], runs: Sequence[int], numbers: Sequence[int]
  ) -> None:
    """See the base class."""
    for game in games:
      if game not in file_names.GAMES:
        raise ValueError(
          f'RL Unplugged has {len(file_names.GAMES)} games, and no {game}'
          f'{plan.near_names([game], file_names.GAMES)}.'
        )
      count = file_names.count_of(game)
      for name, chosen, known in (
        ('run', runs, file_names.RUNS),
        ('checkpoint', numbers, range(count)),
      ):
        if others := sorted(set(chosen) - set(known)):
          raise ValueError(
            f'RL Unplugged has no {name} {number_ranges.brief(others)} of {game}; '
            f'it has {name}s {number_ranges.brief(known)}.'
          )

  def folder(self, root: str, game: str, run: int) -> str:
    """See the base class."""
    is_above = root.rstrip('/').rpartition('/')[2] != file_names.FOLDER
    return f'{file_names.FOLDER}/{game}' if is_above else game

  def names(
    self, game: str, run: int, number: int
  ) -> tuple[list[str], list[str]]:
    """See the base class."""
    return [file_names.format(run, number, file_names.count_of(game))], []

  def number_of(self, name: str, run: int) -> int | None:
    """See the base class."""
    parts = file_names.parse(name)
    return parts.number if parts and parts.run == run else None

  def all_numbers(self, game: str, found: Collection[int]) -> Sequence[int]:
    """See the base class."""
    return range(file_names.count_of(game))

  def destination(
    self, source: str, game: str, run: int, directory: str
  ) -> 'StoreDestination':
    """See the base class."""
    if os.path.isdir(os.path.join(directory, shard_files.REPLAY_LOGS)):
      raise ValueError(
        f'{directory} holds shards, and RL Unplugged is fetched as a store; choose '
        'another --data_dir.'
      )
    store = store_import.StoreImport(
      directory,
      store_import.Identity(game, str(run), file_names.NAME, source),
      'fetch',
      self._last_step,
      own_names=(RAW,),
    )
    return StoreDestination(store, game, self._keep_raw, self._importing)

  def disk_need(
    self, plans: Sequence[layout.RunPlan], jobs: int
  ) -> layout.DiskNeed:
    """See the base class."""
    waiting = layout.waiting(plans)
    sizes = sorted((file.size or 0 for file in waiting), reverse=True)
    held = sizes if self._keep_raw else sizes[: jobs + self.max_waiting]
    begun = sum(file.begun for file in waiting)
    return layout.DiskNeed(
      len(held), max(sum(held) - begun, 0), round(STORE_RATIO * sum(sizes))
    )


class StoreDestination(layout.Destination):
  """Store of a run, into which the fetched files are imported.

  Args:
    store: The store.
    game: Name of the game.
    keep_raw: Whether to keep the fetched files.
    importing: Lock held during an import.
  """

  def __init__(
    self,
    store: store_import.StoreImport,
    game: str,
    keep_raw: bool,
    importing: threading.Lock,
  ):
    super().__init__(store.directory)
    self._store, self._game = store, game
    self._keep_raw, self._importing = keep_raw, importing

  def has(self, name: str, size: int | None) -> bool:
    """See the base class."""
    return self._store.has(name, size)

  def partial(self, name: str) -> str:
    """See the base class."""
    return os.path.join(self.directory, RAW, name)

  def open(self, numbers: Collection[int]) -> None:
    """See the base class."""
    self._store.__enter__()
    self._store.plan(numbers)
    os.makedirs(self.partial(''), exist_ok=True)

  def close(self) -> None:
    """Removes what a killed process has left in the folder of raw files."""
    for note in os.listdir(self.partial('')):
      name = note.removesuffix(partial_file.NOTE)
      path = self.partial(name)
      if name != note and (self.is_done(name) or not os.path.exists(path)):
        self._release(partial_file.PartialFile(path, lambda *counts: None))
    if not os.listdir(self.partial('')):
      os.rmdir(self.partial(''))
    self._store.__exit__(None, None, None)

  def is_done(self, name: str) -> bool:
    """See the base class."""
    return self._store.has(name, None)

  def take(
    self,
    file: layout.FilePlan,
    partial: partial_file.PartialFile,
    advance: Callable[[int], None],
  ) -> bool:
    """See the base class."""
    complete = partial.size() > 0 and partial.size() == file.size
    if not complete or partial.is_noted():
      return False
    self._import(file, advance)
    return True

  def accept(
    self,
    file: layout.FilePlan,
    partial: partial_file.PartialFile,
    hashes: Mapping[str, str],
    advance: Callable[[int], None],
  ) -> None:
    """See the base class."""
    path = self.partial(file.name)
    compared = digests.Digests(hashes)
    if compared.has_expected:
      compared.read(path)
      compared.check(path)
    self._import(file, advance)
    self._release(partial)

  def _import(
    self, file: layout.FilePlan, advance: Callable[[int], None]
  ) -> None:
    """Adds a raw file to the store; raises ValueError if it is damaged."""
    with self._importing:
      advance(0)
      raw = reader.UnpluggedReader(self.partial(file.name), self._game)
      self._store.add(raw, raw.parts[0], advance)

  def _release(self, partial: partial_file.PartialFile) -> None:
    """Removes a file that is in the store, unless it is to be kept."""
    if self._keep_raw:
      # The note of a kept file would say that it may be removed.
      partial.remove_note()
    else:
      partial.remove()

  def finish(
    self, title: str, files: Sequence[layout.FilePlan]
  ) -> tuple[list[str], list[str], dict[str, Any] | None]:
    """See the base class."""
    lacking = [file.suffix for file in files if not self.is_done(file.name)]
    if lacking:
      note = (
        f'{title} cannot be used yet: run the same command again, or without '
        f'checkpoints {number_ranges.brief(lacking)}'
      )
      return [], [note], None
    summary = self._store.finish()
    return [], stitching.find_missing(self._store.numbers), summary
