"""Finds the runs in a directory: a run, a store, a game, or a dataset's root."""

import concurrent.futures
import contextlib
import dataclasses
import os
from collections.abc import Mapping
from typing import Any

from batch_rl.dataset.shards import manifests, shard_files, stitching
from batch_rl.dataset.store import store_directory
from batch_rl.utils import files, machine, number_ranges

_MOST_LEVELS = 3  # <agent>/<Game>/<run>


@dataclasses.dataclass(frozen=True)
class RunDirectory:
  """A run on disk.

  Attributes:
    directory: Directory as given: `<root>/<Game>/<run>`, the directory of the
      shards, or the store.
    data_dir: Directory of the shards, or the store.
    shards_dir: Directory of the shards that a store was made from, or '' if the
      store is damaged; None for shards.
  """

  directory: str
  data_dir: str
  shards_dir: str | None = None

  @property
  def is_store(self) -> bool:
    """Whether the run is a store rather than shards."""
    return self.shards_dir is not None

  @property
  def game(self) -> str:
    """Name of the folder above the run."""
    return os.path.basename(os.path.dirname(self._run_folder()))

  def game_in(self, manifest: Mapping[str, Any]) -> str:
    """Returns the name of the game in the run's manifest, or else `game`."""
    named = manifests.look_up(manifest, 'environment', 'game', kind=str)
    return named or self.game

  @property
  def name(self) -> str:
    """Name of the run's folder."""
    return os.path.basename(self._run_folder())

  def _run_folder(self) -> str:
    path = _absolute(self.shards_dir or self.directory)
    inside = os.path.basename(path) == shard_files.REPLAY_LOGS
    return os.path.dirname(path) if inside else path


def _absolute(path: str) -> str:
  return path.rstrip('/') if files.is_remote(path) else os.path.abspath(path)


def as_run(directory: str) -> RunDirectory | None:
  """Returns the run in a directory, or None if there is none.

  Args:
    directory: Local or remote directory of a run, its `replay_logs`, or a store.

  Raises:
    ValueError: If the directory cannot be listed, or is an unusable store.
  """
  return _as_run(directory, files.list_directory(directory))


def find_runs(directory: str) -> list[RunDirectory]:
  """Returns the run in a directory, or the runs up to three levels below.

  Args:
    directory: Local or remote directory of a run, its `replay_logs`, a store, a
      game, a dataset's root, or a folder of such roots.

  Raises:
    ValueError: If there is no run.
  """
  names = files.list_directory(directory)
  run = _as_run(directory, names)
  runs = [run] if run else _find_below(directory, names, _MOST_LEVELS)
  if runs:
    return runs
  raise ValueError(
    f'{directory} holds no run (found: {files.format_names(names)}); give a run, '
    '<root>/<Game>/<run>, with its shards in a replay_logs folder.'
  )


def _find_below(
  directory: str, names: list[str], levels: int
) -> list[RunDirectory]:
  """Returns the runs in the folders with these names, down to some levels."""
  runs = []
  for name in sorted(names, key=number_ranges.natural_key):
    path = os.path.join(directory, name)
    with contextlib.suppress(ValueError):  # Files and unreadable directories.
      inside = files.list_directory(path)
      if run := _as_run(path, inside, damaged=True):
        runs.append(run)
      elif levels > 1:
        runs += _find_below(path, inside, levels - 1)
  return runs


def _as_run(
  path: str, names: list[str], damaged: bool = False
) -> RunDirectory | None:
  """Returns the run in a directory with these names; a damaged store on request."""
  if store_directory.is_store(path):
    shards_dir: str | None = ''
    try:
      shards_dir = store_directory.StoreDirectory(path).shards_dir
    except ValueError:  # `verify` reports it; other runs can be read.
      if not damaged:
        raise
    return RunDirectory(path, path, shards_dir)
  if shard_files.REPLAY_LOGS in names:
    return RunDirectory(path, os.path.join(path, shard_files.REPLAY_LOGS))
  has_shards = any('_ckpt.' in n and n.endswith('.gz') for n in names)
  # A log that is not closed yet.
  has_shards |= {shard_files.PARTIAL, manifests.FILE_NAME} <= set(names)
  if has_shards or os.path.basename(_absolute(path)) == shard_files.REPLAY_LOGS:
    return RunDirectory(path, path)
  return None


def describe_runs(runs: list[RunDirectory]) -> list[dict[str, Any]]:
  """Describes runs without reading their rows.

  Returns:
    The game, run, directory, shards, rows, bytes and agent of each run. A value
    is None if it is unknown or slow to determine, e.g. the rows of a remote run
    without a manifest.
  """
  with concurrent.futures.ThreadPoolExecutor(machine.num_cpus()) as pool:
    return list(pool.map(_describe, runs))


def _describe(run: RunDirectory) -> dict[str, Any]:
  suffixes, rows = None, None
  manifest: dict[str, Any] = {}
  with contextlib.suppress(ValueError):  # `verify` reports a damaged manifest.
    manifest = manifests.read(run.data_dir)
    rows = manifest.get('rows')
  with contextlib.suppress(ValueError):  # An incomplete store or shard.
    if run.is_store:
      suffixes = store_directory.StoreDirectory(run.data_dir).shards()
    else:
      suffixes = list(shard_files.missing_files(run.data_dir))
      placements, _ = stitching.place(run.data_dir, suffixes)
      rows = sum(placement.rows for placement in placements)
  with os.scandir(run.data_dir) as entries:
    size = sum(entry.stat().st_size for entry in entries if entry.is_file())
  return {
    'game': run.game_in(manifest),
    'run': run.name,
    'directory': run.directory,
    'shards': None if suffixes is None else len(suffixes),
    'rows': rows,
    'bytes': size,
    'agent': manifest.get('agent'),
  }
