"""RL Unplugged's files, one for each checkpoint of a run.

Their folder is `atari_episodes_ordered/<Game>`; see `unplugged.file_names`. The run's
directory, `<Game>/<run>`, becomes a store, and shard k holds checkpoint k.
"""

import contextlib
import os
import threading
from collections.abc import Collection, Sequence
from typing import Any

from batch_rl.dataset.fetch import fetched_run, partial_file
from batch_rl.dataset.imports import store_import
from batch_rl.dataset.shards import digests, shard_files, stitching
from batch_rl.dataset.store import store_directory
from batch_rl.dataset.unplugged import file_names, reader
from batch_rl.utils import choices, number_ranges

# Folder of the fetched files in a run's directory.
RAW = 'raw'
# Assumed bytes of a store for each byte of raw files. Files written from the sample,
# with PNGs by OpenCV, give 0.35; files of the bucket itself were not seen.
STORE_RATIO = 0.4
# An import uses all cores.
_IMPORTING = threading.Lock()


class UnpluggedRun(fetched_run.FetchedRun):
  """Files of episodes. Each is imported while others are fetched, then removed.

  At most `jobs + max_waiting` of them are on the disk.

  Args:
    source: See the base class.
    game: See the base class.
    number: See the base class.
    directory: See the base class.
    last_step: Content of terminal steps; see `StoreImport`.

  Raises:
    ValueError: If RL Unplugged has no such game, or the directory holds anything but
      a store of the same run.
  """

  unit = 'checkpoint'
  max_waiting = 2
  advice = (
    'Files that you have already become a store with `python -m batch_rl.dataset '
    'import`, and so does the RLDS copy of the same runs, '
    'rlu_atari_checkpoints_ordered.'
  )

  def __init__(
    self,
    source: str,
    game: str,
    number: int,
    directory: str,
    last_step: str | None = None,
  ):
    super().__init__(source, game, number, directory)
    if game not in file_names.GAMES:
      raise ValueError(
        f'RL Unplugged has {len(file_names.GAMES)} games, and no {game}'
        f'{choices.hint(game, file_names.GAMES)}.'
      )
    is_above = source.rstrip('/').rpartition('/')[2] != file_names.FOLDER
    self.folder = f'{file_names.FOLDER}/{game}' if is_above else game
    if os.path.isdir(os.path.join(directory, shard_files.REPLAY_LOGS)):
      raise ValueError(
        f'{directory} holds shards, and RL Unplugged is fetched as a store; choose '
        'another --data_dir.'
      )
    identity = store_import.Identity(game, str(number), file_names.NAME, source)
    self._store = store_import.StoreImport(
      directory, identity, 'fetch', last_step or 'auto', own_names=(RAW,)
    )

  def names(self, number: int) -> list[str]:
    """See the base class."""
    count = file_names.count_of(self.game)
    return [file_names.format(self.number, number, count)]

  def all_numbers(self, found: Collection[int]) -> Sequence[int]:
    """See the base class."""
    return range(file_names.count_of(self.game))

  def has(self, name: str, size: int | None) -> bool:
    """See the base class."""
    return self._store.has(name, size)

  def partial(self, name: str) -> str:
    """See the base class."""
    return os.path.join(self.directory, RAW, name)

  def open(self, stack: contextlib.ExitStack) -> None:
    """See the base class."""
    stack.enter_context(self._store.opened(self.suffixes))
    os.makedirs(self.partial(''), exist_ok=True)
    stack.callback(self._remove_rest)

  def _remove_rest(self) -> None:
    """Removes what a killed process has left in the folder of raw files."""
    for note in os.listdir(self.partial('')):
      name = note.removesuffix(partial_file.NOTE)
      if name != note and self.has(name, None):
        partial_file.remove(self.partial(name))
    if not os.listdir(self.partial('')):
      os.rmdir(self.partial(''))

  def accept(
    self, file: fetched_run.FilePlan, partial: partial_file.PartialFile
  ) -> None:
    """See the base class."""
    if file.there:
      return
    path = self.partial(file.name)
    if partial.hashes:
      digests.check_file(path, partial.hashes)
    with _IMPORTING:
      partial.check_stopped()
      raw = reader.UnpluggedReader(path, self.game)
      self._store.add(raw, raw.parts[0], partial.check_stopped)
    partial_file.remove(path)

  def finish(self) -> tuple[list[str], list[str], dict[str, Any] | None]:
    """See the base class."""
    lacking = [f.suffix for f in self.files if not self.has(f.name, None)]
    if lacking:
      note = (
        f'{self.title} cannot be used yet: run the same command again, or without '
        f'checkpoints {number_ranges.brief(lacking)}'
      )
      return [], [note], None
    summary = self._store.finish()
    gaps = stitching.find_missing(store_directory.list_shards(self.directory))
    return [], [f'{self.title}: {gap}' for gap in gaps], summary


def disk_need(
  runs: Sequence[fetched_run.FetchedRun], jobs: int
) -> dict[str, int]:
  """Returns the disk space that a fetch will take; `--json` prints it.

  Returns:
    `raw_files`, most raw files on the disk at a time; `raw_bytes`, their bytes without
    those fetched earlier; `store_bytes`, the estimated growth of the stores.
  """
  absent = fetched_run.waiting(runs)
  sizes = sorted((file.size or 0 for file in absent), reverse=True)
  held = sizes[: jobs + UnpluggedRun.max_waiting]
  begun = sum(file.begun for file in absent)
  return {
    'raw_files': len(held),
    'raw_bytes': max(sum(held) - begun, 0),
    'store_bytes': round(STORE_RATIO * sum(sizes)),
  }
