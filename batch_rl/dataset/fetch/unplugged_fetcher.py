"""Fetches RL Unplugged's files, and imports each into the store of its run."""

import contextlib
import os
import threading
from collections.abc import Callable, Sequence
from typing import Any

from batch_rl.dataset.fetch import (
  fetcher,
  partial_file,
  plan,
  remotes,
  unplugged_plan,
)
from batch_rl.dataset.imports import episode_import, store_import
from batch_rl.dataset.shards import digests, stitching
from batch_rl.dataset.unplugged import reader
from batch_rl.utils import number_ranges


class UnpluggedFetcher(fetcher.Fetcher):
  """Fetches files and imports them, one at a time, while others are fetched.

  A raw file is removed once it is imported. At most `jobs + max_waiting` of them are
  on the disk.

  Args:
    remote: Remote of the plan.
    jobs: Number of files fetched in parallel.
    retries: Number of consecutive retries of a file without progress.
    log: Callback with a line of text for each complete checkpoint.
    last_step: Content of terminal steps; see `StoreImport`.
    keep_raw: Whether to keep the raw files.
  """

  unit = 'checkpoint'
  fatal = (episode_import.LastStepError,)
  max_waiting = 2

  def __init__(
    self,
    remote: remotes.Remote,
    jobs: int,
    retries: int,
    log: Callable[[str], None] = lambda line: None,
    last_step: str | None = None,
    keep_raw: bool = False,
  ):
    super().__init__(remote, jobs, retries, log)
    self._last_step = last_step
    self._keep_raw = keep_raw
    # An import uses all cores.
    self._importing = threading.Lock()
    self._import_bar: Any = None

  def _open(
    self, run: plan.RunPlan, stack: contextlib.ExitStack
  ) -> store_import.StoreImport:
    store = stack.enter_context(
      unplugged_plan.open_store(
        self._remote, run.game, run.number, run.directory, self._last_step
      )
    )
    store.plan(run.suffixes)
    os.makedirs(os.path.join(run.directory, unplugged_plan.RAW), exist_ok=True)
    stack.callback(self._tidy, store)
    return store

  def _path(
    self, destination: store_import.StoreImport, file: plan.FilePlan
  ) -> str:
    return os.path.join(destination.directory, unplugged_plan.RAW, file.name)

  def _obtain(
    self,
    run: plan.RunPlan,
    destination: store_import.StoreImport,
    file: plan.FilePlan,
    partial: partial_file.PartialFile,
  ) -> None:
    """Also imports raw files that were kept, or copied by another program."""
    size = partial.size()
    if size and size == file.size and not partial.is_noted():
      self._import(run, destination, file)
    else:
      super()._obtain(run, destination, file, partial)

  def _accept(
    self,
    run: plan.RunPlan,
    destination: store_import.StoreImport,
    file: plan.FilePlan,
    partial: partial_file.PartialFile,
    stat: remotes.RemoteStat,
  ) -> None:
    path = self._path(destination, file)
    compared = digests.Digests(stat.hashes)
    if compared.has_expected:
      compared.read(path)
      compared.check(path)
    try:
      self._import(run, destination, file)
    except self.fatal:
      raise
    except ValueError as error:
      if compared.has_expected:
        raise fetcher.DamagedSourceError(
          f'{error} The source has it like this.'
        ) from error
      raise
    self._release(partial)

  def _import(
    self,
    run: plan.RunPlan,
    destination: store_import.StoreImport,
    file: plan.FilePlan,
  ) -> None:
    """Adds a raw file to the store; raises ValueError if it is damaged."""
    with self._importing:
      if self._stopped.is_set():
        raise KeyboardInterrupt
      raw = reader.UnpluggedReader(self._path(destination, file), run.game)
      destination.add(raw, raw.parts[0], self._count_imported)

  def _release(self, partial: partial_file.PartialFile) -> None:
    """Removes a file that is in the store, unless it is to be kept."""
    if self._keep_raw:
      # The note of a kept file would say that it may be removed.
      partial.remove_note()
    else:
      partial.remove()

  def _tidy(self, store: store_import.StoreImport) -> None:
    """Removes what a killed process has left in the folder of raw files."""
    raw = os.path.join(store.directory, unplugged_plan.RAW)
    for note in os.listdir(raw):
      name = note.removesuffix(partial_file.NOTE)
      if name == note:
        continue
      path = os.path.join(raw, name)
      if store.has(name, None) or not os.path.exists(path):
        self._release(partial_file.PartialFile(path, self._count))
    if not os.listdir(raw):
      os.rmdir(raw)

  def _finish(
    self, run: plan.RunPlan, destination: store_import.StoreImport
  ) -> tuple[list[str], list[str]]:
    lacking = [f for f in run.files if not destination.has(f.name, None)]
    if lacking:
      numbers = number_ranges.brief([file.suffix for file in lacking])
      return [], [
        f'{run.title} cannot be used yet: run the same command again, or without '
        f'checkpoints {numbers}'
      ]
    self._result.stores.append(destination.finish())
    return [], stitching.find_missing(destination.numbers)

  def _show_progress(
    self, waiting: Sequence[plan.FilePlan], stack: contextlib.ExitStack
  ) -> None:
    super()._show_progress(waiting, stack)
    self._bar.set_description('fetch')
    self._import_bar = stack.enter_context(
      fetcher.progress_bar(
        sum(file.size or 0 for file in waiting), desc='import', position=1
      )
    )

  def _count_imported(self, count: int) -> None:
    if self._stopped.is_set():
      raise KeyboardInterrupt
    self._import_bar.update(count)
