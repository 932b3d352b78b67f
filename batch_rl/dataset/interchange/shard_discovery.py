"""Finds shards of Dopamine's format in any directory layout, by file contents.

File names change on their way to a user: `$store$_observation_ckpt.0.gz` becomes
`_store_observation_ckpt.0.gz` or `%24store%24_...`, a shell expands it to `.0.gz`,
files are renamed, sorted into folders or unzipped. The dtype and shape in the header
of a `.npy` still distinguish frames, actions, rewards, terminals and counters. So the
contents decide what a file is; its name must not contradict them. Ambiguous files are
an error. The shard number is in the name of the file or of its folder.
"""

import collections
import dataclasses
import math
import os
import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from isal import igzip

from batch_rl.dataset.shards import manifests as manifests_lib
from batch_rl.dataset.shards import shard_files as shard_files_lib
from batch_rl.dataset.shards import shard_reader
from batch_rl.utils import files, number_ranges

_GZIP, _NPY = b'\x1f\x8b', b'\x93NUMPY'
# File name endings of incomplete downloads.
_UNFINISHED = ('.gstmp', '.part', '.partial', '.crdownload', '.aria2', '.tmp')
_SENTINEL = re.compile(r'sentinel_checkpoint_complete\.(\d+)')
# Positions of the shard number in a name; the first match counts.
_NUMBERS = (
  re.compile(r'ckpt[._-]?(\d+)'),
  re.compile(r'(\d+)(?:\.npy)?\.(?:gz|npy)(?![a-z])'),
  re.compile(r'(\d+)$'),
)
_COLUMN_BY_DTYPE = {
  np.dtype(np.int32): 'action',
  np.dtype(np.float32): 'reward',
  np.dtype(np.uint8): 'terminal',
  np.dtype(np.int64): 'invalid_range',
}
# Around a cursor c, Dopamine's invalid_range covers c - update_horizon to
# c + stack_size - 1: these offsets with a horizon of 1 and stacks of 4.
_AROUND_CURSOR = np.arange(-1, 4)
_MAX_INVALID_RANGE = 100


@dataclasses.dataclass(frozen=True)
class ShardFile:
  """A recognised file of a shard.

  Attributes:
    path: Path of the file.
    name: Path below the input directory.
    column: Column or counter, one of `shard_files.FILES`.
    number: Shard number; None if no name contains one.
    pattern: `name` with N in place of the shard number.
    named: Whether the name contains the column.
    zipped: Whether the file is gzipped.
    dtype: Dtype of its array.
    shape: Shape of its array.
    value: The array, if it is a counter; None for columns.
  """

  path: str
  name: str
  column: str
  number: int | None
  pattern: str
  named: bool
  zipped: bool
  dtype: np.dtype
  shape: tuple[int, ...]
  value: np.ndarray | None = dataclasses.field(compare=False)

  def identity(self) -> list[int]:
    """Returns size and modification time, which change with the file."""
    stat = os.stat(self.path)
    return [stat.st_size, stat.st_mtime_ns]


@dataclasses.dataclass
class DiscoveredShards:
  """The shards below a directory.

  Attributes:
    input_dir: The directory, absolute.
    contents: Files by shard number and name in `shard_files.FILES`; an inferred
      counter is an array instead.
    ignored: Reason by name of each file that is ignored.
    left_out: Incomplete shards and their missing files, one line each.
    assumed: Assumptions about missing files or numbers, one line each.
    manifest: Contents of the manifest beside the shards, or empty.
  """

  input_dir: str
  contents: dict[int, dict[str, Any]]
  ignored: dict[str, str]
  left_out: list[str]
  assumed: list[str]
  manifest: dict[str, Any]

  def table(self) -> list[list[str]]:
    """Returns a table of the files: shard, column, file, contents.

    Shards whose files are named alike share a line; N stands for their number.
    """
    lines: dict[tuple, list[int]] = collections.defaultdict(list)
    for number, group in sorted(self.contents.items()):
      for column in shard_files_lib.FILES:
        file = group[column]
        pattern = getattr(file, 'pattern', '(assumed)')
        lines[column, pattern, f'{file.dtype} {file.shape}'].append(number)
    table = [['shard', 'column', 'file', 'contents']]
    for (column, pattern, array), numbers in sorted(
      lines.items(),
      key=lambda item: (item[1][0], shard_files_lib.FILES.index(item[0][0])),
    ):
      if len(numbers) == 1:
        pattern = getattr(self.contents[numbers[0]][column], 'name', pattern)
      table.append([number_ranges.brief(numbers), column, pattern, array])
    return table


def discover(input_dir: str) -> DiscoveredShards:
  """Finds the shards below a directory.

  Args:
    input_dir: Directory to search; local.

  Raises:
    ValueError: If there is no complete shard, two files could be the same part of a
      shard, or a file's name contradicts its contents.
  """
  if files.is_remote(input_dir):
    raise ValueError(
      f'{input_dir} is remote: `fetch` it first, or copy it to a local directory.'
    )
  if not os.path.isdir(input_dir):
    raise ValueError(f'{input_dir} is not a directory.')
  ignored: dict[str, str] = {}
  assumed: list[str] = []
  left_out: list[str] = []
  recognised, manifest_paths = _scan(input_dir, ignored)
  shards = {}
  for number, group in _group(recognised, ignored, assumed):
    missing = [name for name in shard_files_lib.COLUMNS if name not in group]
    if missing:
      present = ', '.join(sorted(file.name for file in group.values()))
      left_out.append(
        f'shard {number} is left out: it has no {", ".join(missing)} (only '
        f'{present})'
      )
    else:
      _check_rows(group)
      shards[number] = group
  _infer_counters(shards, left_out, assumed)
  if not shards:
    reason = '; '.join(left_out) or (
      'no file is a .npy, gzipped or not, with frames, actions, rewards or '
      'terminals'
    )
    raise ValueError(
      f'There is no complete shard in {input_dir}: {reason}. (For a TFDS dataset, '
      'give the directory of dataset_info.json.)'
    )
  manifest: dict[str, Any] = {}
  if len(manifest_paths) == 1:
    manifest = manifests_lib.read(os.path.dirname(manifest_paths[0]))
  return DiscoveredShards(
    os.path.abspath(input_dir),
    shards,
    ignored,
    left_out,
    assumed,
    manifest,
  )


def _scan(
  input_dir: str, ignored: dict[str, str]
) -> tuple[list[ShardFile], list[str]]:
  """Returns all recognised files, and the paths of manifests."""
  recognised, manifests = [], []
  for folder, folders, names in os.walk(input_dir):
    if shard_files_lib.PARTIAL in folders:  # of a logger or `fetch`
      path = os.path.join(folder, shard_files_lib.PARTIAL)
      ignored[os.path.relpath(path, input_dir)] = 'files that are being written'
    folders[:] = sorted(set(folders) - {shard_files_lib.PARTIAL})
    complete = {int(m[1]) for name in names if (m := _SENTINEL.fullmatch(name))}
    for name in sorted(names):
      path = os.path.join(folder, name)
      relative = os.path.relpath(path, input_dir)
      if name == manifests_lib.FILE_NAME:
        manifests.append(path)
        continue
      try:
        file = _recognise(path, relative)
      except _NotAShardFile as error:
        if str(error):
          ignored[relative] = str(error)
        continue
      if complete and file.number is not None and file.number not in complete:
        ignored[relative] = 'its checkpoint was not finished (no sentinel)'
        continue
      recognised.append(file)
  return recognised, manifests


class _NotAShardFile(Exception):  # noqa: N818
  """Raised for a file of no shard; the message is empty for unrelated files."""


def _recognise(path: str, name: str) -> ShardFile:
  """Reads the header of a file and recognises its column or counter."""
  base = os.path.basename(name)
  mentioned = [c for c in shard_files_lib.FILES if c in base.lower()]
  named = mentioned[0] if len(mentioned) == 1 else None
  if base.lower().endswith(_UNFINISHED):
    raise _NotAShardFile('an incomplete download')
  if shard_files_lib.OPTIONAL in base:
    raise _NotAShardFile('readers do not need it')
  if not os.path.isfile(path):  # e.g. a pipe, which would block
    raise _NotAShardFile('not a file' if named else '')
  column = None
  try:
    with open(path, 'rb') as raw:
      start = raw.read(len(_NPY))
      raw.seek(0)
      zipped = start.startswith(_GZIP)
      if not zipped and start != _NPY:
        raise _NotAShardFile('neither gzip nor .npy' if named else '')
      stream = igzip.GzipFile(fileobj=raw) if zipped else raw
      dtype, fortran, shape = shard_reader.parse_header(stream)
      if fortran and len(shape) > 1:
        raise _NotAShardFile('it is in Fortran order')
      column = _column_of(dtype, shape)
      if named == 'invalid_range' and dtype.kind in 'iu' and len(shape) == 1:
        column = named  # int32 on Windows
      value = None
      if column in ('add_count', 'invalid_range'):
        value = _read_counter(stream, dtype, shape)
  except _NotAShardFile:
    raise
  except Exception as error:  # a damaged file raises errors of any kind
    if named or column:
      raise ValueError(f'{path} is damaged: {error}.') from error
    raise _NotAShardFile(f'holds no array: {error}') from error
  if named and column != named:
    raise ValueError(
      f'{path} is named {named}, but holds {dtype} {shape}, which is '
      f'{"an array of " + column if column else "no part of a shard"}: rename it, '
      'or move it away.'
    )
  if column is None:
    raise _NotAShardFile(f'holds {dtype} {shape}, which is no part of a shard')
  number, pattern = _number_in(name)
  return ShardFile(
    path,
    name,
    column,
    number,
    pattern,
    bool(named),
    zipped,
    dtype,
    shape,
    value,
  )


def _read_counter(
  stream: Any, dtype: np.dtype, shape: tuple[int, ...]
) -> np.ndarray:
  size = dtype.itemsize * math.prod(shape)
  if size > shard_reader.MAX_COUNTER_BYTES:
    raise ValueError(f'its header claims {size:,} B of counters')
  data = stream.read(size + 1)
  if len(data) != size:
    raise ValueError('it is not as long as its header says')
  return np.frombuffer(data, dtype).reshape(shape)


def _column_of(dtype: np.dtype, shape: tuple[int, ...]) -> str | None:
  """Returns the column or counter that an array is, or None."""
  if dtype.hasobject:
    return None
  if len(shape) > 1:
    return 'observation'
  if not shape:
    return 'add_count' if dtype.kind in 'iu' else None
  column = _COLUMN_BY_DTYPE.get(dtype)
  too_long = column == 'invalid_range' and shape[0] > _MAX_INVALID_RANGE
  return None if too_long else column


def _number_in(name: str) -> tuple[int | None, str]:
  """Finds the shard number in the name of the file or the nearest folder.

  Returns:
    The number, None if there is none; the name with N in its place.
  """
  folder, base = os.path.split(name)
  places = [(base, pattern) for pattern in _NUMBERS]
  places += [(f, _NUMBERS[-1]) for f in reversed(folder.split(os.sep))]
  end = len(name)
  for part, pattern in places:
    begin = name.rindex(part, 0, end)
    if match := pattern.search(part):
      start, stop = begin + match.start(1), begin + match.end(1)
      return int(match[1]), f'{name[:start]}N{name[stop:]}'
    if pattern is _NUMBERS[-1]:
      end = begin
  return None, name


def _group(
  recognised: Sequence[ShardFile], ignored: dict[str, str], assumed: list[str]
) -> list[tuple[int, dict[str, Any]]]:
  """Returns the files by shard number and column; a single shard is shard 0.

  Raises:
    ValueError: If two different files are the same part of a shard, a named file
      has no number while others do, or the shards may be of several runs.
  """
  numbered = [file for file in recognised if file.number is not None]
  if recognised and not numbered:
    assumed.append(
      'no name has a shard number: the shard is taken to be shard 0'
    )
  candidates = collections.defaultdict(list)
  for file in recognised:
    if file.number is not None or not numbered:
      candidates[file.number or 0, file.column].append(file)
    elif file.named:
      raise ValueError(
        f'{file.path} has no shard number in its name, but {numbered[0].name} '
        'has one: rename it, or move it away.'
      )
    else:
      ignored[file.name] = 'has no shard number in its name'
  groups: dict[int, dict[str, Any]] = collections.defaultdict(dict)
  for (number, column), several in candidates.items():
    named = [file for file in several if file.named] or several
    for file in several:
      if file not in named:
        ignored[file.name] = f'another file is named {column}'
    first, *others = sorted(named, key=lambda file: len(file.name))
    for other in others:
      same = first.shape == other.shape and (
        files.sha256(first.path) == files.sha256(other.path)
      )
      if not same:
        raise ValueError(
          f'{first.path} and {other.path} could both be the {column} of shard '
          f'{number}: are these two runs? Import one at a time, or move one away.'
        )
      ignored[other.name] = f'the same as {first.name}'
    groups[number][column] = first
  _check_one_run(groups)
  return sorted(groups.items())


def _check_one_run(groups: Mapping[int, Mapping[str, ShardFile]]) -> None:
  """Refuses shards from unrelated folders, which may belong to different runs.

  The files of a column must be in one folder, or in folders that differ in the
  shard number only.
  """
  for column in shard_files_lib.COLUMNS:
    numbered = [(n, g[column]) for n, g in groups.items() if column in g]
    folders = [os.path.dirname(file.name) for _, file in numbered]
    patterns = [
      re.sub(rf'(?<!\d){number}(?=/[^\d]*$|$)', 'N', folder)
      for (number, _), folder in zip(numbered, folders, strict=True)
    ]
    if len(set(folders)) > 1 and len(set(patterns)) > 1:
      other = next(i for i, p in enumerate(patterns) if p != patterns[0])
      raise ValueError(
        f'{numbered[0][1].path} and {numbered[other][1].path} are in different '
        'folders: are these two runs? Import one at a time, or put the shards '
        'together.'
      )


def _check_rows(group: Mapping[str, ShardFile]) -> None:
  rows = group['terminal'].shape[0]
  for column in shard_files_lib.COLUMNS:
    file = group[column]
    shard_reader.check_column(file.path, column, file.shape, file.dtype, rows)


def _infer_counters(
  shards: dict[int, dict[str, Any]], left_out: list[str], assumed: list[str]
) -> None:
  """Adds missing counters where the format determines them.

  `invalid_range` is around the cursor, so it replaces a missing `add_count`, and
  vice versa. Without either, the ring is taken to be full. The lap is the shard
  number, because the dataset's logger dumps one shard a lap.

  Args:
    shards: Files by shard number and column; completed in place.
    left_out: List to which shards without an inferable `add_count` are added.
    assumed: List to which the assumptions are added.
  """
  counts = {}
  for number, group in shards.items():
    if file := group.get('add_count'):
      counts[number] = shard_reader.check_add_count(file.path, file.value)
  capacity = {n: group['terminal'].shape[0] for n, group in shards.items()}
  last = max(shards, default=0)
  # The final shard may be partial.
  one_lap_each = all(
    counts[n] == (n + 1) * capacity[n] - 1 for n in counts if n != last
  )
  for number, group in list(shards.items()):
    rows = capacity[number]
    if number not in counts:
      cursor = rows - 1
      reason = (
        'the ring was full when it was dumped (if it is the last of its run, '
        'rows of the previous lap may be among its own)'
      )
      invalid_range: Any = getattr(group.get('invalid_range'), 'value', ())
      if len(invalid_range) == len(_AROUND_CURSOR):
        cursor = int(invalid_range[1])
        reason = 'its invalid_range shows the cursor'
      if not one_lap_each or not 0 <= cursor < rows:
        left_out.append(
          f'shard {number} is left out: its add_count is missing and cannot be '
          'inferred from those of the others'
        )
        del shards[number]
        continue
      counts[number] = number * rows + cursor
      group['add_count'] = np.array(counts[number], np.int64)
      assumed.append(
        f'add_count of shard {number} is {counts[number]}: {reason}'
      )
    if 'invalid_range' not in group:
      cursor = counts[number] % rows
      group['invalid_range'] = (_AROUND_CURSOR + cursor) % rows
      assumed.append(
        f'invalid_range of shard {number} is around the cursor, {cursor}'
      )
