"""A logged run, opened by its folder."""

import os
from collections.abc import Sequence
from typing import Any

from batch_rl.dataset import run_directories
from batch_rl.dataset.sampling import episodes, sampler, sequences
from batch_rl.dataset.shards import manifests
from batch_rl.dataset.store import store as store_lib
from batch_rl.dataset.store import store_directory


def open(  # noqa: A001  (used as `dataset.open`)
  directory: str | os.PathLike[str],
  *,
  cache_dir: str | os.PathLike[str] | None = None,
  shards: int | Sequence[int] | None = None,
  skip_damaged: bool = False,
  preload: bool = False,
  show_progress: bool = True,
) -> 'LoggedRun':
  """Opens a run, and compresses its frames unless that was done before.

  Args:
    directory: Directory of a run, with or without `replay_logs`, or a store.
    cache_dir: Directory for compressed runs, memory-mapped and shared with other
      processes and later runs. None to keep this run in memory only. A store needs
      none.
    shards: Number or numbers of the shards to use, ascending; None for all.
    skip_damaged: Whether to skip damaged shards, with a warning, rather than fail.
    preload: Whether to read a cached run or store into memory in advance, for disks
      with slow random access.
    show_progress: Whether to show a progress bar in a terminal.

  Raises:
    ValueError: If the directory is not a run, a shard is missing or damaged, or
      memory does not suffice.
    OSError: If a file cannot be read at the moment; it may be intact.
  """
  directory = os.fspath(directory)
  run = run_directories.only_run(directory)
  cached = None
  if cache_dir:
    cached = store_directory.in_cache(os.fspath(cache_dir), run.data_dir)
  store = store_lib.Store(
    run.data_dir,
    shards,
    cached,
    preload=preload,
    skip_damaged=skip_damaged,
    pack=False,
  )
  store.pack(f'packing {directory}', show_progress)
  return LoggedRun(store)


class LoggedRun:
  """The data of a run, ready to be sampled.

  Args:
    store: Store of the run, with all shards packed.

  Attributes:
    store: The store.
  """

  def __init__(self, store: store_lib.Store):
    self.store = store

  def transitions(
    self, stack_size: int | None = None, *args: Any, **kwargs: Any
  ) -> sampler.Sampler:
    """Returns a sampler of transitions; its arguments are those of `Sampler`.

    Args:
      stack_size: Number of frames in a state; None for that of the log, or 4 if it has
        no manifest.
      *args: Further arguments of `Sampler`.
      **kwargs: Those given by name.
    """
    return sampler.Sampler(self.store, self._size(stack_size), *args, **kwargs)

  def sequences(
    self, length: int, stack_size: int | None = None, *args: Any, **kwargs: Any
  ) -> sequences.SequenceSampler:
    """Returns a sampler of sequences of `length` agent steps with returns to go.

    The arguments are those of `SequenceSampler`; for `stack_size`, see `transitions`.
    """
    return sequences.SequenceSampler(
      self.store, length, self._size(stack_size), *args, **kwargs
    )

  def trajectories(self, subset: str | None = None) -> episodes.Reader:
    """Returns an iterable of trajectories in time order (`episodes.Episode`).

    The end of the log and a missing or damaged shard cut trajectories: `ended` or
    `begins_at_reset` is False. Where packing finds damage, they are left out instead.

    Args:
      subset: Selection of complete trajectories, e.g. 'best_trajectories(0.1)'; None
        for the whole run.

    Raises:
      ValueError: If the subset is invalid, splits trajectories or is empty.
    """
    run = run_directories.find_runs(self.store.data_dir)[0]
    return episodes.Reader(run, subset, self.store)

  def _size(self, stack_size: int | None) -> int:
    """Returns a stack size; see `transitions`."""
    if stack_size is None:
      padding = self.store.logged_padding
      stack_size = (manifests.PADDING if padding is None else padding) + 1
    return stack_size
