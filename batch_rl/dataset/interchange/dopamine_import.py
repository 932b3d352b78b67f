"""Imports shards of Dopamine's format from wherever people keep them.

Names get lost: `$store$_observation_ckpt.0.gz` becomes `_store_observation_ckpt.0.gz`
or `%24store%24_...`, a shell makes `.0.gz` of it, downloads are renamed, sorted into
folders, unzipped. Contents do not: dtype and shape in the header of a `.npy` tell
frames, actions, rewards, terminals and counters apart. So a file is what its contents
say, a name may only agree, and where two files could be the same thing nothing is
guessed. The number of a shard is in the name of its files, or of their folder.
"""

import collections
import dataclasses
import gzip
import os
import re
import shutil
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from isal import igzip

from batch_rl.dataset import run_directories
from batch_rl.dataset.fetch import incoming_shards
from batch_rl.dataset.shards import manifests as manifests_lib
from batch_rl.dataset.shards import shard_files as shard_files_lib
from batch_rl.dataset.shards import shard_reader
from batch_rl.dataset.store import store, store_directory
from batch_rl.utils import files, machine, number_ranges

_GZIP, _NPY = b'\x1f\x8b', b'\x93NUMPY'
# Endings of what download tools have not finished.
_UNFINISHED = ('.gstmp', '.part', '.partial', '.crdownload', '.aria2', '.tmp')
_SENTINEL = re.compile(r'sentinel_checkpoint_complete\.(\d+)')
# Where the number of a shard is in a name; the first that fits.
_NUMBERS = (
  re.compile(r'ckpt[._-]?(\d+)'),
  re.compile(r'(\d+)(?:\.npy)?\.(?:gz|npy)(?![a-z])'),
  re.compile(r'(\d+)$'),
)
# Around a cursor c, Dopamine's invalid_range has c - update_horizon to
# c + stack_size - 1: these with a horizon of 1 and stacks of 4.
_LONGEST_RANGE = 100
_AROUND_CURSOR = np.arange(-1, 4)


@dataclasses.dataclass(frozen=True)
class Found:
  """A file, and what it was taken for.

  Attributes:
    path: of the file.
    name: its path below the source.
    what: one of `shard.FILES`.
    number: of the shard; None if no name has one.
    pattern: `name` with N for that number.
    named: whether its name says what it is, too.
    zipped: whether it is gzipped.
    dtype: of the array in it.
    shape: of the array in it.
  """

  path: str
  name: str
  what: str
  number: int | None
  pattern: str
  named: bool
  zipped: bool
  dtype: np.dtype
  shape: tuple[int, ...]

  def identity(self) -> list[int]:
    """Bytes and time of change: another file has others."""
    found = os.stat(self.path)
    return [found.st_size, found.st_mtime_ns]


@dataclasses.dataclass
class Layout:
  """What was found below a folder.

  Attributes:
    source: the folder.
    shards: by number, a file or an array of a counter for each of `shard.FILES`.
    ignored: names of files that were not taken, and why.
    left_out: shards that lack something, and what, a line each.
    assumed: what was not there and is supposed, a line each.
    described: the manifest that was with the shards, or empty.
  """

  source: str
  shards: dict[int, dict[str, Any]]
  ignored: dict[str, str]
  left_out: list[str]
  assumed: list[str]
  described: dict[str, Any]

  def table(self) -> list[list[str]]:
    """Which files were taken for what: shard, column, file, contents.

    Shards whose files are named alike share a line; N is their number.
    """
    lines: dict[tuple, list[int]] = collections.defaultdict(list)
    for number, shard_files in sorted(self.shards.items()):
      for what in shard_files_lib.FILES:
        found = shard_files[what]
        if isinstance(found, Found):
          pattern = found.pattern
          holds = f'{found.dtype} {found.shape}'
        else:
          pattern, holds = '(assumed)', f'{found.dtype} {found.shape}'
        lines[what, pattern, holds].append(number)
    table = [['shard', 'is', 'file', 'holds']]
    for (what, pattern, holds), numbers in sorted(
      lines.items(),
      key=lambda item: (item[1][0], shard_files_lib.FILES.index(item[0][0])),
    ):
      if len(numbers) == 1:
        shown = self.shards[numbers[0]][what]
        pattern = shown.name if isinstance(shown, Found) else pattern
      table.append([number_ranges.brief(numbers), what, pattern, holds])
    return table


def find(source: str) -> Layout:
  """Finds shards below a folder, in any layout.

  Args:
    source: the folder; local.

  Raises:
    ValueError: if there is no whole shard, two files could be the same part of
      one, or a file's name says something else than its contents.
  """
  if files.is_remote(source):
    raise ValueError(
      f'{source} is remote: `fetch` it first, or copy it to a local folder.'
    )
  if not os.path.isdir(source):
    raise ValueError(f'{source} is not a folder.')
  ignored: dict[str, str] = {}
  found, manifests = _scan(source, ignored)
  assumed: list[str] = []
  numbered = _number(found, ignored, assumed)
  groups = _group(numbered, ignored)
  shards, left_out = {}, []
  for number, group in sorted(groups.items()):
    lacking = [name for name in shard_files_lib.COLUMNS if name not in group]
    if lacking:
      there = ', '.join(sorted(f.name for f in group.values()))
      left_out.append(
        f'shard {number} is left out, there is no {", ".join(lacking)} of it '
        f'(only {there})'
      )
    else:
      _check_rows(group)
      shards[number] = dict(group)
  _complete(shards, left_out, assumed)
  if not shards:
    why = '; '.join(left_out) or (
      'no file is a .npy, gzipped or not, with frames, actions, rewards or '
      'terminals'
    )
    raise ValueError(
      f'There is no whole shard in {source}: {why}. (A TFDS dataset is the folder '
      'with dataset_info.json.)'
    )
  described = {}
  if len(manifests) == 1:
    content = files.read_json(manifests[0])
    described = content if isinstance(content, dict) else {}
  return Layout(
    os.path.abspath(source), shards, ignored, left_out, assumed, described
  )


def _scan(
  source: str, ignored: dict[str, str]
) -> tuple[list[Found], list[str]]:
  """All files that may be part of a shard, and the manifests."""
  found, manifests = [], []
  for folder, folders, names in os.walk(source):
    if shard_files_lib.PARTIAL in folders:  # a logger or `fetch` is at work
      work = os.path.relpath(
        os.path.join(folder, shard_files_lib.PARTIAL), source
      )
      ignored[work] = 'files that are being written'
    folders[:] = sorted(set(folders) - {shard_files_lib.PARTIAL})
    complete = {int(m[1]) for name in names if (m := _SENTINEL.fullmatch(name))}
    for name in sorted(names):
      path = os.path.join(folder, name)
      relative = os.path.relpath(path, source)
      if name == manifests_lib.FILE_NAME:
        manifests.append(path)
        continue
      try:
        file = _identify(path, relative)
      except _NotOfAShard as error:
        if str(error):
          ignored[relative] = str(error)
        continue
      if complete and file.number is not None and file.number not in complete:
        ignored[relative] = 'its checkpoint was not finished (no sentinel)'
        continue
      found.append(file)
  return found, manifests


class _NotOfAShard(Exception):  # noqa: N818
  """A file that is of no shard; says why if that may surprise."""


def _identify(path: str, name: str) -> Found:
  base = os.path.basename(name)
  words = [what for what in shard_files_lib.FILES if what in base.lower()]
  said = words[0] if len(words) == 1 else None
  if base.lower().endswith(_UNFINISHED):
    raise _NotOfAShard('a download that was not finished')
  if shard_files_lib.OPTIONAL in base:
    raise _NotOfAShard('readers do not need it')
  try:
    with open(path, 'rb') as raw:
      start = raw.read(len(_NPY))
      raw.seek(0)
      zipped = start.startswith(_GZIP)
      if not zipped and start != _NPY:
        raise _NotOfAShard('neither gzip nor .npy' if said else '')
      stream = igzip.GzipFile(fileobj=raw) if zipped else raw
      dtype, fortran, shape = shard_reader.parse_header(stream)
  except _NotOfAShard:
    raise
  except Exception as error:  # of a damaged file: any
    if said:
      raise ValueError(f'{path} is damaged: {error}.') from error
    raise _NotOfAShard(f'holds no array: {error}') from error
  if fortran and len(shape) > 1:
    raise _NotOfAShard('it is stored column by column')
  what = _recognise(dtype, shape)
  if said == 'invalid_range' and dtype.kind in 'iu' and len(shape) == 1:
    what = said  # Windows wrote int32
  if said and what != said:
    raise ValueError(
      f'{path} is called {said}, but holds {dtype} {shape}, which is '
      f'{"an array of " + what if what else "nothing of a shard"}: rename it, or '
      'move it away.'
    )
  if what is None:
    raise _NotOfAShard(f'holds {dtype} {shape}, which is nothing of a shard')
  return Found(
    path, name, what, *_number_in(name), bool(said), zipped, dtype, shape
  )


def _recognise(dtype: np.dtype, shape: tuple[int, ...]) -> str | None:
  """What an array with this header is in a shard."""
  if dtype.hasobject:
    return None
  if len(shape) > 1:
    return 'observation'
  if not shape:
    return 'add_count' if dtype.kind in 'iu' else None
  by_dtype = {
    np.dtype(np.int32): 'action',
    np.dtype(np.float32): 'reward',
    np.dtype(np.uint8): 'terminal',
    np.dtype(np.int64): 'invalid_range',
  }
  what = by_dtype.get(dtype)
  too_long = what == 'invalid_range' and shape[0] > _LONGEST_RANGE
  return None if too_long else what


def _number_in(name: str) -> tuple[int | None, str]:
  """The number of the shard, in the file's name or the nearest folder's.

  Returns:
    It, None if there is none; and the name with N in its place.
  """
  folder, base = os.path.split(name)
  places = [(base, pattern) for pattern in _NUMBERS]
  places += [(f, _NUMBERS[-1]) for f in reversed(folder.split(os.sep))]
  end = len(name)
  for part, pattern in places:
    begin = name.rindex(part, 0, end)
    if match := pattern.search(part):
      at, stop = begin + match.start(1), begin + match.end(1)
      return int(match[1]), f'{name[:at]}N{name[stop:]}'
    if pattern is _NUMBERS[-1]:
      end = begin
  return None, name


def _number(
  found: Sequence[Found], ignored: dict[str, str], assumed: list[str]
) -> list[Found]:
  """Gives a number to files without: a single shard is shard 0."""
  without = [file for file in found if file.number is None]
  numbered = [file for file in found if file.number is not None]
  if numbered:
    for file in without:
      if file.named:
        raise ValueError(
          f'{file.path} has no number that tells its shard, but '
          f'{numbered[0].name} has one: rename it, or move it away.'
        )
      ignored[file.name] = 'has no number that tells its shard'
    return numbered
  if without:
    assumed.append('no name has the number of a shard: it is taken for shard 0')
  return [dataclasses.replace(file, number=0) for file in without]


def _group(
  found: Sequence[Found], ignored: dict[str, str]
) -> dict[int, dict[str, Found]]:
  """By number of the shard and by what it is.

  Raises:
    ValueError: if two different files are the same part of a shard.
  """
  candidates = collections.defaultdict(list)
  for file in found:
    candidates[file.number or 0, file.what].append(file)
  groups: dict[int, dict[str, Found]] = collections.defaultdict(dict)
  for (number, what), several in candidates.items():
    named = [file for file in several if file.named] or several
    for file in several:
      if file not in named:
        ignored[file.name] = f'another file is called {what}'
    first, *others = sorted(named, key=lambda file: len(file.name))
    for other in others:
      same = first.shape == other.shape and (
        files.sha256(first.path) == files.sha256(other.path)
      )
      if not same:
        raise ValueError(
          f'{first.path} and {other.path} could both be the {what} of shard '
          f'{number}: are these two runs? Import one at a time, or move one away.'
        )
      ignored[other.name] = f'the same as {first.name}'
    groups[number][what] = first
  _check_one_run(groups)
  return groups


def _check_one_run(groups: Mapping[int, Mapping[str, Found]]) -> None:
  """Refuses shards from here and there: they may well fit, and be two runs.

  They are in one folder, or in folders that differ in the number of the shard.
  """
  for what in shard_files_lib.COLUMNS:
    found = [(n, group[what]) for n, group in groups.items() if what in group]
    folders = [os.path.dirname(file.name) for _, file in found]
    alike = [
      re.sub(rf'(?<!\d){number}(?=/[^\d]*$|$)', 'N', folder)
      for (number, _), folder in zip(found, folders, strict=True)
    ]
    if len(set(folders)) > 1 and len(set(alike)) > 1:
      other = next(i for i, folder in enumerate(alike) if folder != alike[0])
      raise ValueError(
        f'{found[0][1].path} and {found[other][1].path} are in different folders: '
        'are these two runs? Import one at a time, or put the shards together.'
      )


def _check_rows(group: Mapping[str, Found]) -> None:
  rows = group['terminal'].shape[0]
  for what in shard_files_lib.COLUMNS:
    file = group[what]
    shard_reader.check_column(file.path, what, file.shape, file.dtype, rows)


def _load(file: Found) -> np.ndarray:
  """The array of a counter."""
  if file.zipped:
    return shard_reader.read_array(file.path)
  with open(file.path, 'rb') as raw:
    dtype, _, shape = shard_reader.parse_header(raw)
    data = raw.read()
  if len(data) != dtype.itemsize * int(np.prod(shape)):
    raise ValueError(
      f'{file.path} is damaged: it is not as long as it should be.'
    )
  return np.frombuffer(data, dtype).reshape(shape)


def _complete(
  shards: dict[int, dict[str, Any]], left_out: list[str], assumed: list[str]
) -> None:
  """Works out counters that are not there, where the format tells them."""
  counts = {
    number: shard_reader.check_add_count(
      group['add_count'].path, _load(group['add_count'])
    )
    for number, group in shards.items()
    if 'add_count' in group
  }
  capacity = {n: group['terminal'].shape[0] for n, group in shards.items()}
  last = max(shards, default=0)
  # So the dataset's logger dumps shards, but for the last one of a run.
  regular = all(
    counts[n] == (n + 1) * capacity[n] - 1 for n in counts if n != last
  )
  for number, group in list(shards.items()):
    if number not in counts:
      cursor = capacity[number] - 1
      told = False
      if 'invalid_range' in group:
        around = _load(group['invalid_range']).tolist()
        told = len(around) == len(_AROUND_CURSOR)
        cursor = around[1] if told else cursor
      count = number * capacity[number] + cursor
      if not regular or not 0 <= cursor < capacity[number]:
        left_out.append(
          f'shard {number} is left out: its add_count is missing, and those of '
          'the others do not tell it'
        )
        del shards[number]
        continue
      counts[number] = count
      group['add_count'] = np.array(count, np.int64)
      why = (
        'its invalid_range shows the cursor'
        if told
        else 'the ring was full when it was dumped (if it is the last of its run, '
        'rows of the lap before may be among its own)'
      )
      assumed.append(f'add_count of shard {number} is {count}: {why}')
    if 'invalid_range' not in group:
      cursor = counts[number] % capacity[number]
      group['invalid_range'] = (_AROUND_CURSOR + cursor) % capacity[number]
      assumed.append(
        f'invalid_range of shard {number} is around the cursor, {cursor}'
      )


def import_shards(
  layout: Layout,
  logs: str,
  progress: Callable[[int], None] = lambda count: None,
  symlinks: bool = False,
) -> list[str]:
  """Puts shards into a folder, by the names of the format, with a manifest.

  The user's files stay where they are: they are linked, copied where that cannot
  be, or compressed if they were not. Each is verified. What a call before this one
  has done is not done again.

  Args:
    layout: what there is.
    logs: the folder, `<Game>/<run>/replay_logs`.
    progress: called with numbers of files that are done.
    symlinks: whether symbolic links will do where hard ones cannot be.

  Returns:
    Gaps and repetitions between the shards, a line each.

  Raises:
    ValueError: if a file is damaged, or the folder holds something else.
  """
  origin: dict[str, Any] = {'how': 'import', 'source': layout.source}
  if layout.assumed:
    origin['assumed'] = layout.assumed
  files.check_local(logs)
  _check_target(layout, logs)
  with incoming_shards.IncomingShards(
    logs, origin, _still_true(layout)
  ) as place:
    place.finish()  # the folder is this import's from now on

    def arrive(task: tuple[int, str]) -> None:
      number, what = task
      name, found = (
        shard_files_lib.file_name(what, number),
        layout.shards[number][what],
      )
      come_from = identity = None  # of a counter that is worked out
      if isinstance(found, Found):
        come_from, identity = found.name, found.identity()
      if identity is None or not place.has(name, identity):
        place.remove(name)
        _prepare(found, place.partial(name), symlinks)
        try:
          place.accept(name, come_from=come_from, identity=identity)
        except ValueError as error:
          path = found.path if isinstance(found, Found) else name
          place.remove(name)
          raise ValueError(
            str(error).replace(place.partial(name), path)
          ) from None
      progress(1)

    tasks = [
      (n, what) for n in sorted(layout.shards) for what in shard_files_lib.FILES
    ]
    incoming_shards.parallel_map(arrive, tasks, machine.num_cpus())
  wrong, notes = incoming_shards.check_shards(logs, sorted(layout.shards))
  if wrong:
    raise ValueError(f'{layout.source}: {"; ".join(wrong)}')
  return notes


def _still_true(layout: Layout) -> dict[str, Any]:
  """The manifest, but for shards some of whose files are not taken as they are."""
  kept = [
    entry
    for entry in manifests_lib.look_up(layout.described, 'shards', kind=list)
    or []
    if all(
      isinstance(found, Found) and found.zipped
      for found in layout.shards.get(
        manifests_lib.look_up(entry, 'suffix', kind=int), {'': None}
      ).values()
    )
  ]
  described = {**layout.described, 'shards': kept}
  for entry in (
    manifests_lib.look_up(layout.described, 'shards', kind=list) or []
  ):
    if manifests_lib.look_up(entry, 'suffix', kind=int) not in layout.shards:
      for key in incoming_shards.RUN_TOTALS:
        described.pop(key, None)
  return described


def _check_target(layout: Layout, logs: str) -> None:
  if not os.path.isdir(logs):
    return
  manifest = manifests_lib.read(logs)
  ours = manifests_lib.look_up(manifest, 'origin', 'source', kind=str)
  if ours != layout.source and set(os.listdir(logs)) - {
    shard_files_lib.PARTIAL
  }:
    raise ValueError(
      f'{logs} holds something else than shards of {layout.source}; choose '
      'another destination.'
    )


def _prepare(found: Any, path: str, symlinks: bool) -> None:
  if not isinstance(found, Found):
    with gzip.open(path, 'wb') as out:
      np.save(out, found, allow_pickle=False)
    return
  if not found.zipped:
    with open(found.path, 'rb') as raw, igzip.open(path, 'wb') as zipped:
      shutil.copyfileobj(raw, zipped, 1 << 20)
    return
  original = os.path.realpath(found.path)
  try:
    os.link(original, path)
  except OSError:  # another file system, or another's file
    if symlinks:
      os.symlink(original, path)
    else:
      shutil.copyfile(original, path)


def import_store(
  layout: Layout, directory: str, progress: Callable[[int], None]
) -> list[str]:
  """Makes a store of shards in any layout.

  Args:
    layout: what there is.
    directory: of the store.
    progress: called with numbers of rows that were packed.

  Returns:
    Gaps and repetitions between the shards, a line each.

  Raises:
    ValueError: if a file is damaged, or the directory holds something else.
  """
  parts = [
    part
    for part in layout.source.split(os.sep)
    if part not in ('', run_directories.LOGS, 'checkpoints')
  ]
  files.check_local(directory)
  # Links, for as long as it takes; named as the run is, for the store to know.
  work = f'{directory.rstrip(os.sep)}.import'
  logs = os.path.join(work, *parts[-2:], run_directories.LOGS)
  store_directory.StoreDirectory(directory).check_empty_or_of(logs)
  notes = import_shards(layout, logs, symlinks=True)
  store.convert(logs, directory, progress)
  shutil.rmtree(work)
  return notes
