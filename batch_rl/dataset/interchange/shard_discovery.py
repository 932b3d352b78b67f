"""Finds the shards of Dopamine's format below a directory.

The file of a column is named `<prefix>_<column>_ckpt.<N>.gz`. The prefix does not count,
because it changes on the way to a user: `$store$_observation_ckpt.0.gz` becomes
`_store_observation_ckpt.0.gz`, `%24store%24_...`, or `_observation_ckpt.0.gz`. All shards
are in one folder, or each has a folder of its own.
"""

import collections
import os
import re
from typing import Any

from batch_rl.dataset.shards import manifests, shard_files
from batch_rl.utils import files

_COLUMNS = '|'.join(shard_files.FILES)
# Files of macOS that begin with `._` hold no rows. A further column of a user, such as
# `$store$_my_reward`, is not one of the format's.
_NAME = re.compile(
  rf'(?!\._|(.*[^A-Za-z])?store[^A-Za-z]+[A-Za-z]\w*_({_COLUMNS})_ckpt)'
  rf'(.*[^a-z])?(?P<column>{_COLUMNS})_ckpt\.(?P<number>[0-9]{{1,9}})\.gz'
)


class DiscoveredShards:
  """The shards below a directory.

  Args:
    input_dir: Directory to search; local.

  Attributes:
    input_dir: The directory, absolute.
    contents: Path below `input_dir` of each file, by shard number and name in
      `shard_files.FILES`.
    ignored: Files with similar names, which are not read.
    left_out: Incomplete shards and their missing files, one line each.
    unfinished: Logs whose last rows are not in a shard, one line each.
    manifest: Contents of the manifest beside or above the shards, or empty.

  Raises:
    ValueError: If there is no complete shard, or the shards may be of several runs.
  """

  def __init__(self, input_dir: str):
    files.check_local(
      input_dir, '`fetch` it first, or copy it to a local directory'
    )
    if not os.path.isdir(input_dir):
      raise ValueError(f'{input_dir} is not a directory.')
    # `..` behind a link is not the folder above the link.
    is_indirect = '..' in input_dir.split(os.sep)
    absolute = os.path.realpath if is_indirect else os.path.abspath
    self.input_dir, self._given_dir = absolute(input_dir), input_dir
    self.contents: dict[int, dict[str, str]] = {}
    self.ignored: list[str] = []
    self.left_out: list[str] = []
    self.unfinished: list[str] = []
    # Folders with a manifest, below `input_dir`.
    self._described: set[str] = set()
    for number, group in sorted(self._find().items()):
      if missing := [name for name in shard_files.FILES if name not in group]:
        self.left_out.append(
          f'shard {number} is left out: it has no {", ".join(missing)}'
        )
      else:
        self.contents[number] = group
    if not self.contents:
      reason = '; '.join(self.left_out + self.unfinished) or (
        f'found {files.format_names(os.listdir(input_dir))}, but no file such as '
        '$store$_observation_ckpt.0.gz'
      )
      raise ValueError(
        f'There is no complete shard in {input_dir}: {reason}. (For a TFDS dataset, '
        'give the directory of dataset_info.json.)'
      )
    self._check_one_run()
    self.manifest = self._read_manifest()

  def path(self, number: int, column: str) -> str:
    """Returns the path of a file."""
    return os.path.join(self.input_dir, self.contents[number][column])

  def _find(self) -> dict[int, dict[str, str]]:
    """Returns the files of all shards, as in `contents`, and notes the others."""
    found: dict[int, dict[str, str]] = collections.defaultdict(dict)
    visited: dict[str, str] = {}  # Links may form a loop.
    for folder, folders, names in os.walk(self._given_dir, followlinks=True):
      if visited.setdefault(os.path.realpath(folder), folder) != folder:
        folders.clear()
        continue
      if shard_files.PARTIAL in folders:
        self.unfinished.append(f'{folder} {shard_files.UNFINISHED}')
      folders[:] = sorted(set(folders) - {shard_files.PARTIAL})
      for name in sorted(names):
        path = os.path.relpath(os.path.join(folder, name), self._given_dir)
        if name == manifests.FILE_NAME:
          self._described.add(os.path.dirname(path))
        elif match := _NAME.fullmatch(name):
          column, number = match['column'], int(match['number'])
          if column in found[number]:
            raise self._two_runs(found[number][column], path)
          found[number][column] = path
        elif '_ckpt.' in name and shard_files.OPTIONAL not in name:
          self.ignored.append(path)
    return found

  def _read_manifest(self) -> dict[str, Any]:
    """Reads the manifest beside the shards, or the nearest one above them."""
    found = set()
    for group in self.contents.values():
      for folder in map(os.path.dirname, group.values()):
        while folder and folder not in self._described:
          folder = os.path.dirname(folder)
        found |= {folder} & self._described
    paths = [os.path.join(self._given_dir, folder) for folder in sorted(found)]
    if len(paths) > 1:
      raise ValueError(
        f'{paths[0]} and {paths[1]} each have a manifest.json: keep only that of '
        'the run.'
      )
    return manifests.read(paths[0]) if paths else {}

  def _check_one_run(self) -> None:
    """Raises a ValueError if files are neither in one folder nor in one for each shard."""
    # Paths by folder, and for each the folders with N in place of the shard's number.
    folders, patterns = {}, []
    for number, group in self.contents.items():
      for path in group.values():
        folder = os.path.dirname(path)
        folders[folder] = path
        parent, leaf = os.path.split(folder)
        found = [n for n in re.finditer(r'\d+', leaf) if int(n[0]) == number]
        patterns.append(
          {(parent, leaf[: n.start()], leaf[n.end() :]) for n in found}
        )
    if len(folders) > 1 and not set.intersection(*patterns):
      raise self._two_runs(*[*folders.values()][:2])

  def _two_runs(self, first: str, other: str) -> ValueError:
    return ValueError(
      f'{os.path.join(self._given_dir, first)} and {other} may belong to different '
      'runs: import one run at a time, or put its shards into one folder.'
    )
