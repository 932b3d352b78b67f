"""Finds a run's data: a directory of shards, or a store in its place."""

from batch_rl.dataset.shards import shard_files
from batch_rl.dataset.store import store_directory


def find_data(run_dir: str) -> str:
  """Returns the directory of a run's shards, or its store.

  Args:
    run_dir: Run directory, i.e. the one above `replay_logs`, or a store.

  Raises:
    ValueError: If the directory is neither; the message names the likely mistake.
  """
  if store_directory.is_store(run_dir):
    list_shards(run_dir)
    return run_dir
  return shard_files.replay_logs_dir(run_dir)


def list_shards(data_dir: str, skip_incomplete: bool = False) -> list[int]:
  """Returns the shard numbers in a directory of shards or a store, ascending.

  Args:
    data_dir: Directory of the shards, or a store.
    skip_incomplete: Whether to skip shards without all files, with a warning,
      rather than fail.

  Raises:
    ValueError: If there is no shard, or one is incomplete.
  """
  if not store_directory.is_store(data_dir):
    return shard_files.list_suffixes(data_dir, skip_incomplete=skip_incomplete)
  return store_directory.StoreDirectory(data_dir).shards()
