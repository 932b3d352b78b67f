"""Where runs are: a run or a store, a game with its runs, or a dataset's root."""

import concurrent.futures
import contextlib
import dataclasses
import os
from typing import Any

from batch_rl.dataset.shards import manifests, shard_files, stitching
from batch_rl.dataset.store import store_directory
from batch_rl.utils import files, machine, number_ranges

LOGS = 'replay_logs'


@dataclasses.dataclass(frozen=True)
class RunDirectory:
  """A run on disk.

  Attributes:
    directory: where it is, `<root>/<Game>/<run>` (or the folder of its shards, or
      a store).
    logs: the folder of its shards, or the store.
    source: of a store, the folder of the shards that it was made from.
  """

  directory: str
  logs: str
  source: str | None = None

  @property
  def is_store(self) -> bool:
    """Whether it is a store, rather than shards."""
    return self.source is not None

  @property
  def game(self) -> str:
    """The name of the folder above the run."""
    return os.path.basename(os.path.dirname(self._run_folder()))

  @property
  def name(self) -> str:
    """The name of the run's folder."""
    return os.path.basename(self._run_folder())

  def _run_folder(self) -> str:
    path = _absolute(self.source or self.directory)
    is_logs = os.path.basename(path) == LOGS
    return os.path.dirname(path) if is_logs else path


def _absolute(path: str) -> str:
  return path.rstrip('/') if files.is_remote(path) else os.path.abspath(path)


def as_run(directory: str) -> RunDirectory | None:
  """The run that a directory is, if it is one.

  Args:
    directory: of a run, or its `replay_logs`, local or remote; or a store.

  Raises:
    ValueError: if it cannot be listed, or is a store that cannot be used.
  """
  return _as_run(directory, files.list_directory(directory))


def find_runs(directory: str) -> list[RunDirectory]:
  """The run that a directory is, or the runs up to two levels below it.

  Args:
    directory: a run, its `replay_logs`, a store, a game or the root of a dataset;
      local or remote.

  Raises:
    ValueError: if there is none.
  """
  names = files.list_directory(directory)
  level = {directory: names}
  for depth in range(3):
    runs = [_as_run(path, names) for path, names in level.items()]
    found = [run for run in runs if run is not None]
    if found:
      return found
    if depth < 2:
      level = _one_level_down(level)
  listing = ', '.join(sorted(names)[:8]) + (', ...' if len(names) > 8 else '')
  raise ValueError(
    f'{directory} holds no run (found: {listing or "nothing"}); give a run, '
    '<root>/<Game>/<run>, with its shards in a replay_logs folder.'
  )


def _as_run(path: str, names: list[str]) -> RunDirectory | None:
  if store_directory.is_store(path):
    source = store_directory.StoreDirectory(path).source
    return RunDirectory(path, path, source)
  if LOGS in names:
    return RunDirectory(path, os.path.join(path, LOGS))
  holds_shards = any('_ckpt.' in n and n.endswith('.gz') for n in names)
  if holds_shards or os.path.basename(_absolute(path)) == LOGS:
    return RunDirectory(path, path)
  return None


def _one_level_down(level: dict[str, list[str]]) -> dict[str, list[str]]:
  below = {}
  for path, names in level.items():
    for name in sorted(names, key=number_ranges.natural_key):
      with contextlib.suppress(ValueError):  # files, and what may not be read
        child = os.path.join(path, name)
        below[child] = files.list_directory(child)
  return below


def describe_runs(runs: list[RunDirectory]) -> list[dict[str, Any]]:
  """What can be said of runs without reading their rows.

  Returns:
    For each: game, run, directory, shards, rows, bytes and agent; None for what
    cannot be told cheaply, as the rows of a remote run without a manifest.
  """
  with concurrent.futures.ThreadPoolExecutor(machine.num_cpus()) as pool:
    return list(pool.map(_describe, runs))


def _describe(run: RunDirectory) -> dict[str, Any]:
  suffixes: list[int] | None = None
  if not run.is_store:
    suffixes = shard_files.list_suffixes(run.logs, complete=False)
  else:
    with contextlib.suppress(ValueError):  # one that is being made
      suffixes = store_directory.StoreDirectory(run.logs).shards()
  manifest: dict[str, Any] = {}
  with contextlib.suppress(ValueError):  # `verify` says what is wrong with it
    manifest = manifests.read(run.logs)
  rows = manifests.look_up(manifest, 'rows', kind=int)
  size = None
  if not files.is_remote(run.logs):
    with os.scandir(run.logs) as entries:
      size = sum(entry.stat().st_size for entry in entries if entry.is_file())
    if suffixes is not None and not run.is_store:
      with contextlib.suppress(ValueError):
        placements, _ = stitching.place(run.logs, suffixes)
        rows = sum(placement.rows for placement in placements)
  return {
    'game': manifests.look_up(manifest, 'environment', 'game', kind=str)
    or run.game,
    'run': run.name,
    'directory': run.directory,
    'shards': None if suffixes is None else len(suffixes),
    'rows': rows,
    'bytes': size,
    'agent': manifests.look_up(manifest, 'agent', kind=str),
  }
