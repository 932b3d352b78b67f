"""Finds the runs in a directory: a run, a store, a game, or a dataset's root."""

import contextlib
import dataclasses
import os
from collections.abc import Mapping
from typing import Any

from batch_rl.dataset.shards import manifests, shard_files, shard_reader
from batch_rl.dataset.store import store_directory
from batch_rl.utils import (
  files,
  machine,
  number_ranges,
  staging_directory,
  threads,
)

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


def find_runs(directory: str | os.PathLike[str]) -> list[RunDirectory]:
  """Returns the run in a directory, or the runs up to three levels below.

  Args:
    directory: Local or remote directory of a run, its `replay_logs`, a store, a
      game, a dataset's root, or a folder of such roots.

  Raises:
    ValueError: If there is no run, the directory cannot be listed, or it is an unusable
      store.
    OSError: If the store cannot be read at the moment.
  """
  directory = os.fspath(directory)
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
      elif levels > 1 and not name.endswith(staging_directory.SUFFIXES):
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
    except (ValueError, shard_reader.ReadError):  # `verify` reports it.
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


def only_run(directory: str) -> RunDirectory:
  """Returns the run in a directory.

  Raises:
    ValueError: If the directory is not a run; the message has a run below it, if
      there is one.
  """
  if run := as_run(directory):
    return run
  example = find_runs(directory)[0].directory
  raise ValueError(
    f'{directory} is not a run; choose one in it, e.g. {example}.'
  )


def find_data(directory: str) -> str:
  """Returns the directory of a run's shards, or its store, to train on.

  Raises:
    ValueError: If the directory is remote or not a run, or the run has no shard or an
      incomplete one.
  """
  files.check_local(directory, 'fetch it first')
  data_dir = only_run(directory).data_dir
  store_directory.list_shards(data_dir)
  return data_dir


def describe_runs(runs: list[RunDirectory]) -> list[dict[str, Any]]:
  """Describes runs without reading their rows.

  Returns:
    The game, run, directory, shards, rows, bytes and agent of each run. A value is
    None if it is unknown: rows and agent of a run without a manifest, the size of a
    remote or unreadable one.
  """
  return threads.parallel_map(_describe, runs, machine.num_cpus())


def _describe(run: RunDirectory) -> dict[str, Any]:
  count, size = None, None
  manifest: dict[str, Any] = {}
  with contextlib.suppress(ValueError):  # `verify` reports a damaged manifest.
    manifest = manifests.read(run.data_dir)
  # Also an incomplete store.
  with contextlib.suppress(ValueError, shard_reader.ReadError):
    if run.is_store:
      count = len(store_directory.StoreDirectory(run.data_dir).shards())
    else:
      count = len(shard_files.missing_files(run.data_dir))
  if not files.is_remote(run.data_dir):
    with contextlib.suppress(OSError), os.scandir(run.data_dir) as entries:
      size = sum(entry.stat().st_size for entry in entries if entry.is_file())
  return {
    'game': run.game_in(manifest),
    'run': run.name,
    'directory': run.directory,
    'shards': count,
    'rows': manifest.get('rows'),
    'bytes': size,
    'agent': manifest.get('agent'),
  }
