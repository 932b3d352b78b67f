"""Finds the shards of Dopamine's format below a directory.

The file of a column is named `<prefix>_<column>_ckpt.<N>.gz`. The prefix does not count,
because it changes on the way to a user: `$store$_observation_ckpt.0.gz` becomes
`_store_observation_ckpt.0.gz`, `%24store%24_...`, or `_observation_ckpt.0.gz`. All shards
are in one folder, or each has a folder of its own.
"""

import collections
import dataclasses
import os
import re
from typing import Any

from batch_rl.dataset.shards import manifests, shard_files
from batch_rl.utils import files

# Files of macOS that begin with `._` hold no rows.
_NAME = re.compile(
  rf'(?!\._)(?:.*[^a-z])?({"|".join(shard_files.FILES)})_ckpt\.([0-9]{{1,9}})\.gz'
)


@dataclasses.dataclass
class DiscoveredShards:
  """The shards below a directory.

  Attributes:
    input_dir: The directory, absolute.
    contents: Path below `input_dir` of each file, by shard number and name in
      `shard_files.FILES`.
    ignored: Files with similar names, which are not read.
    left_out: Incomplete shards and their missing files, one line each.
    manifest: Contents of the manifest beside or above the shards, or empty.
  """

  input_dir: str
  contents: dict[int, dict[str, str]]
  ignored: list[str]
  left_out: list[str]
  manifest: dict[str, Any]

  def path(self, number: int, column: str) -> str:
    """Returns the path of a file."""
    return os.path.join(self.input_dir, self.contents[number][column])


def discover(input_dir: str) -> DiscoveredShards:
  """Finds the shards below a directory.

  Args:
    input_dir: Directory to search; local.

  Raises:
    ValueError: If there is no complete shard, or the shards may be of several runs.
  """
  if files.is_remote(input_dir):
    raise ValueError(
      f'{input_dir} is remote: `fetch` it first, or copy it to a local directory.'
    )
  if not os.path.isdir(input_dir):
    raise ValueError(f'{input_dir} is not a directory.')
  found: dict[int, dict[str, str]] = collections.defaultdict(dict)
  ignored: list[str] = []
  described: set[str] = set()  # Folders with a manifest, below `input_dir`.
  visited: dict[str, str] = {}  # Links may form a loop.
  for folder, folders, names in os.walk(input_dir, followlinks=True):
    if visited.setdefault(os.path.realpath(folder), folder) != folder:
      folders.clear()
      continue
    folders[:] = sorted(set(folders) - {shard_files.PARTIAL})
    for name in sorted(names):
      path = os.path.relpath(os.path.join(folder, name), input_dir)
      if name == manifests.FILE_NAME:
        described.add(os.path.dirname(path))
      elif match := _NAME.fullmatch(name):
        column, number = match[1], int(match[2])
        if column in found[number]:
          raise _two_runs(input_dir, found[number][column], path)
        found[number][column] = path
      elif '_ckpt.' in name and shard_files.OPTIONAL not in name:
        ignored.append(path)
  complete, left_out = {}, []
  for number, group in sorted(found.items()):
    if missing := [name for name in shard_files.FILES if name not in group]:
      left_out.append(
        f'shard {number} is left out: it has no {", ".join(missing)}'
      )
    else:
      complete[number] = group
  if not complete:
    reason = '; '.join(left_out) or (
      f'found {files.format_names(os.listdir(input_dir))}, but no file such as '
      '$store$_observation_ckpt.0.gz'
    )
    raise ValueError(
      f'There is no complete shard in {input_dir}: {reason}. (For a TFDS dataset, '
      'give the directory of dataset_info.json.)'
    )
  _check_one_run(input_dir, complete)
  return DiscoveredShards(
    os.path.abspath(input_dir),
    complete,
    ignored,
    left_out,
    _read_manifest(input_dir, complete, described),
  )


def _read_manifest(
  input_dir: str, shards: dict[int, dict[str, str]], described: set[str]
) -> dict[str, Any]:
  """Reads the manifest beside the shards, or the nearest one above them."""
  found = set()
  for group in shards.values():
    for folder in map(os.path.dirname, group.values()):
      while folder and folder not in described:
        folder = os.path.dirname(folder)
      found |= {folder} & described
  if len(found) > 1:
    folders = [os.path.join(input_dir, folder) for folder in sorted(found)]
    raise ValueError(
      f'{folders[0]} and {folders[1]} each have a manifest.json: keep only that of '
      'the run.'
    )
  return manifests.read(os.path.join(input_dir, *found)) if found else {}


def _check_one_run(input_dir: str, shards: dict[int, dict[str, str]]) -> None:
  """Raises a ValueError if files are neither in one folder nor in one for each shard."""
  # Paths by folder, and for each the folders with N in place of the shard's number.
  folders, patterns = {}, []
  for number, group in shards.items():
    for path in group.values():
      folder = os.path.dirname(path)
      folders[folder] = path
      parent, leaf = os.path.split(folder)
      found = [n for n in re.finditer(r'\d+', leaf) if int(n[0]) == number]
      patterns.append(
        {(parent, leaf[: n.start()], leaf[n.end() :]) for n in found}
      )
  if len(folders) > 1 and not set.intersection(*patterns):
    raise _two_runs(input_dir, *[*folders.values()][:2])


def _two_runs(input_dir: str, first: str, other: str) -> ValueError:
  return ValueError(
    f'{os.path.join(input_dir, first)} and {other} may belong to different runs: import '
    'one run at a time, or put its shards into one folder.'
  )
