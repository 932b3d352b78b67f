"""Fetches runs, or some of their shards, from where a copy of the dataset is.

First everything is looked up: what there is, how large, what is here already. Then
files are fetched side by side, each to the folder `partial` of its run; it goes on
where it was stopped if the source still has the same version of it. `arrivals.py`
verifies it and moves it into place.
"""

import contextlib
import dataclasses
import difflib
import json
import os
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import psutil
import tqdm.auto as tqdm

from batch_rl.atari import roms
from batch_rl.dataset import run_directories
from batch_rl.dataset.fetch import incoming_shards, remote_sources
from batch_rl.dataset.shards import manifests, shard_files
from batch_rl.utils import files, number_ranges

# The dataset's runs have shards 0 to 50 at most; probed where nothing is listed.
_MOST_SHARDS = 51
_LOOK_UP_RETRIES = 3
# A file that arrives damaged is fetched once more.
_TRIES_AT_DAMAGE = 2
_FIRST_WAIT = 1.0  # seconds, before the first retry

_INSTEAD = (
  "The dataset's public bucket, gs://atari-replay-datasets/dqn, has refused many "
  'users since 2025; instead there are local copies, in any layout (`python -m '
  'batch_rl.dataset import`), the RLDS copy, rlu_atari_checkpoints_ordered '
  '(`import --format rlds`), and data that you make (`python -um '
  'batch_rl.baselines.train`)'
)


@dataclasses.dataclass(frozen=True)
class File:
  """A file to fetch.

  Attributes:
    name: in the format.
    path: at the source, relative to its root.
    size: in bytes; None if the source does not say.
    there: whether it is in place already.
    begun: bytes of it that were fetched before.
  """

  name: str
  path: str
  size: int | None
  there: bool
  begun: int


@dataclasses.dataclass(frozen=True)
class Run:
  """What is to be fetched of a run.

  Attributes:
    game: its name at the source.
    number: of the run.
    logs: the local folder for its shards.
    files: all files of its shards that were asked for, shard by shard.
    missing: what was asked for and the source does not have, a line each.
    described: the source's manifest, or empty.
  """

  game: str
  number: int
  logs: str
  files: list[File]
  missing: list[str]
  described: dict[str, Any]

  @property
  def title(self) -> str:
    """`Pong/1`."""
    return f'{self.game}/{self.number}'

  @property
  def suffixes(self) -> list[int]:
    """Numbers of the shards."""
    found = {shard_files.suffix_of(file.name) for file in self.files}
    return sorted(s for s in found if s is not None)


@dataclasses.dataclass
class Result:
  """What became of it.

  Attributes:
    fetched: files that were.
    there: files that were there before.
    bytes: that were received, in this attempt.
    seconds: it took.
    wrong: what is missing or damaged, a line each.
    notes: what is odd about the shards, a line each.
  """

  fetched: int = 0
  there: int = 0
  bytes: int = 0
  seconds: float = 0.0
  wrong: list[str] = dataclasses.field(default_factory=list)
  notes: list[str] = dataclasses.field(default_factory=list)


def plan(
  source: remote_sources.Source,
  games: Sequence[str],
  numbers: Sequence[int],
  suffixes: Sequence[int] | None,
  data_dir: str,
  jobs: int,
) -> list[Run]:
  """Looks up what the source has, and what is here.

  Args:
    source: with `<Game>/<run>/replay_logs/` in it.
    games: names of folders at the source.
    numbers: of runs.
    suffixes: numbers of shards; None for all there are.
    data_dir: where `<Game>/<run>/replay_logs` is, or will be.
    jobs: requests at once.

  Raises:
    Refused: if the source has, or gives, none of it.
    Interrupted: if it fails.
    ValueError: if there is no such game or run at the source, or other files are
      where those to fetch would go.
  """
  found, reasons = [], []
  for game in games:
    for number in numbers:
      look_up = _LookUp(source, game, number, suffixes, data_dir, jobs)
      run = look_up.run()
      if run is None:
        _check_names(source, game, number)
        reasons.append(look_up.reason)
        run = Run(
          game,
          number,
          look_up.logs,
          [],
          [f'{game}/{number}: the source says {look_up.reason}'],
          {},
        )
      found.append(run)
  if not any(run.files for run in found):
    runs = ', '.join(run.title for run in found)
    if reasons:
      raise remote_sources.Refused(
        f'{source.name} has no {runs}, or does not give it: '
        f'{", ".join(sorted(set(reasons)))}{_hint(games)}. {_INSTEAD}.'
      )
    lines = [line for run in found for line in run.missing]
    raise ValueError(f'{source.name}: {"; ".join(lines)}.')
  return found


def _check_names(source: remote_sources.Source, game: str, number: int) -> None:
  """Says which games or runs there are, if the source tells."""
  parts = source.name.rstrip('/').split('/')[-3:]
  if run_directories.LOGS in parts or game in parts:
    raise ValueError(
      f'{source.name} has no {game}/{number}/{run_directories.LOGS} in it: give the '
      "dataset's root, the folder above the games."
    )
  for folder, name, what in ((game, str(number), 'run'), ('', game, 'game')):
    names: Iterable[str] | None = None
    with contextlib.suppress(
      remote_sources.Refused, remote_sources.Interrupted
    ):
      names = source.list(folder)
    if names and name not in names:
      listed = sorted(names, key=number_ranges.natural_key)[:20]
      raise ValueError(
        f'{source.name} has no {what} {name}'
        f'{f" of {game}" if what == "run" else ""}; it has {", ".join(listed)}.'
      )


def _hint(games: Sequence[str]) -> str:
  """A correction of names that are not the dataset's."""
  known = {name.lower(): name for name in roms.games()}
  hints = []
  for game in games:
    key = game.lower().replace('_', '')
    near = difflib.get_close_matches(key, known, 1)
    if near and known[near[0]] != game:
      hints.append(known[near[0]])
  return f' (is {" or ".join(hints)} meant?)' if hints else ''


class _LookUp:
  """Finds the files of one run at the source.

  Attributes:
    logs: the local folder for its shards.
    reason: why nothing was found.
  """

  def __init__(self, source, game, number, suffixes, data_dir, jobs):
    self._source = source
    self._game, self._number = game, number
    self._wanted = suffixes
    self._jobs = jobs
    self._folder = f'{game}/{number}/{run_directories.LOGS}'
    self.logs = os.path.join(data_dir, game, str(number), run_directories.LOGS)
    self.reason = 'not found'
    self._refused: dict[str, str] = {}  # why, by name

  def run(self) -> Run | None:
    """What there is; None if nothing."""
    try:
      names = self._ask(lambda: self._source.list(self._folder))
    except remote_sources.Absent as error:
      self.reason = str(error)
      return None
    shards = [n for n in names or () if shard_files.suffix_of(n) is not None]
    listed = bool(shards)
    described: dict[str, Any] = {}
    if not listed or manifests.FILE_NAME in names:
      described = self._manifest()
    promised = incoming_shards.files_of(described)
    if listed:
      sizes = {name: names[name] for name in shards}
    else:
      sizes = dict.fromkeys(promised) or self._probe()
    if not sizes:
      return None
    chosen, missing = self._choose(sizes)
    missing += self._refusals(sizes)
    for name in chosen:
      if chosen[name] is None:
        chosen[name] = manifests.look_up(promised, name, 'bytes', kind=int)
    self._fill_in_sizes(chosen)
    noted = incoming_shards.noted(self.logs) if os.path.isdir(self.logs) else {}
    found = [self._file(n, chosen[n], noted, promised) for n in chosen]
    return Run(self._game, self._number, self.logs, found, missing, described)

  def _ask(self, function: Callable[[], Any]) -> Any:
    return remote_sources.try_again(
      function, _LOOK_UP_RETRIES, time.sleep, _FIRST_WAIT
    )

  def _manifest(self) -> dict[str, Any]:
    """The source's, if it has one that can be read."""

    def read():
      _, _, chunks = self._source.open(f'{self._folder}/{manifests.FILE_NAME}')
      return b''.join(chunks)

    with contextlib.suppress(remote_sources.Refused, ValueError):
      content = json.loads(self._ask(read))
      if isinstance(content, dict):
        return content
    return {}

  def _stat(self, name: str) -> remote_sources.Stat | None:
    """None if it is not there, or not given: `reason` is why."""
    try:
      return self._ask(lambda: self._source.stat(f'{self._folder}/{name}'))
    except remote_sources.Refused as error:
      self.reason = str(error)
      if not isinstance(error, remote_sources.Absent):
        self._refused[name] = str(error)
      return None

  def _refusals(self, sizes: Mapping[str, int | None]) -> list[str]:
    """A line about the shards whose files are not given, be they there or not."""
    refused = {
      suffix: reason
      for name, reason in self._refused.items()
      if (suffix := _suffix(name)) >= 0
      and name == shard_files.file_name('observation', suffix)
      and (self._wanted is None or suffix in self._wanted)
    }
    if not refused or not sizes:
      return []
    shards = number_ranges.brief(sorted(refused))
    return [
      f'{self._game}/{self._number}: the source refuses shards {shards} '
      f'({next(iter(refused.values()))})'
    ]

  def _probe(self) -> dict[str, int | None]:
    """Sizes of files, by asking for the names that the format has."""
    wanted = self._wanted or range(_MOST_SHARDS)
    sizes: dict[str, int | None] = {}

    def probe(suffix: int) -> bool:
      names = [
        shard_files.file_name(n, suffix)
        for n in (*shard_files.FILES, shard_files.OPTIONAL)
      ]
      found = {name: self._stat(name) for name in names[:1]}
      if found[names[0]] is not None:
        found |= {name: self._stat(name) for name in names[1:]}
      sizes.update({n: stat.size for n, stat in found.items() if stat})
      return bool(found[names[0]])

    # One by one as long as nothing is there: it may be refused altogether.
    if not any([probe(suffix) for suffix in wanted[:2]]) and self._refused:
      return {}
    incoming_shards.on_each(probe, wanted[2:], self._jobs)
    if self._wanted is None and sizes:
      for suffix in range(_MOST_SHARDS, 10 * _MOST_SHARDS):
        before = shard_files.file_name('observation', suffix - 1)
        if before not in sizes or not probe(suffix):
          break
    return sizes

  def _choose(
    self, sizes: Mapping[str, int | None]
  ) -> tuple[dict[str, int | None], list[str]]:
    """The files of the shards that are wanted and whole; what is missing."""
    there = sorted({suffix for name in sizes if (suffix := _suffix(name)) >= 0})
    missing: list[str] = []
    chosen: dict[str, int | None] = {}
    title = f'{self._game}/{self._number}'
    for suffix in there if self._wanted is None else self._wanted:
      if suffix not in there:
        missing.append(
          f'{title}: the source has no shard {suffix} (it has {number_ranges.brief(there)})'
        )
        continue
      needed = [
        shard_files.file_name(name, suffix) for name in shard_files.FILES
      ]
      lacking = [name for name in needed if name not in sizes]
      if lacking:
        missing.append(
          f'{title}: shard {suffix} is incomplete at the source, it lacks '
          f'{", ".join(lacking)}'
        )
        continue
      chosen |= {name: sizes[name] for name in needed}
      optional = shard_files.file_name(shard_files.OPTIONAL, suffix)
      if optional in sizes:
        chosen[optional] = sizes[optional]
    return chosen, missing

  def _fill_in_sizes(self, chosen: dict[str, int | None]) -> None:
    unknown = [name for name, size in chosen.items() if size is None]
    for name, stat in zip(
      unknown,
      incoming_shards.on_each(self._stat, unknown, self._jobs),
      strict=True,
    ):
      chosen[name] = stat.size if stat else None

  def _file(self, name, size, noted, promised) -> File:
    """Compares with what is here."""
    final = os.path.join(self.logs, name)
    about = noted.get(name)
    promise = manifests.look_up(promised, name, 'sha256', kind=str)
    there = False
    if os.path.exists(final):
      found = os.path.getsize(final)
      # One that is not noted is verified, as if it had just arrived.
      there = about is not None and about.get('bytes') == found
      other = about is not None and promise not in (None, about.get('sha256'))
      if other or size not in (None, found):
        raise ValueError(
          f'{final} ({found:,} B) is not the file that {self._source.name} has '
          f'({"?" if size is None else f"{size:,}"} B): is it of another run? '
          'Move it away, or choose another --data_dir.'
        )
    partial = os.path.join(self.logs, shard_files.PARTIAL, name)
    begun = os.path.getsize(partial) if os.path.exists(partial) else 0
    return File(name, f'{self._folder}/{name}', size, there, begun)


def _suffix(name: str) -> int:
  suffix = shard_files.suffix_of(name)
  return -1 if suffix is None else suffix


def bytes_to_fetch(runs: Sequence[Run]) -> int:
  """As far as sizes are known; what was begun is taken off."""
  return sum(
    max((file.size or 0) - file.begun, 0)
    for run in runs
    for file in run.files
    if not file.there
  )


def check_room(runs: Sequence[Run], data_dir: str) -> None:
  """Refuses what would not fit.

  Raises:
    ValueError: if it would not.
  """
  folder = os.path.abspath(data_dir)
  while not os.path.exists(folder):
    folder = os.path.dirname(folder)
  free, needed = psutil.disk_usage(folder).free, bytes_to_fetch(runs)
  if needed > free:
    raise ValueError(
      f'{needed / 1e9:.3g} GB are to be fetched, and {free / 1e9:.3g} GB are free '
      f'in {folder}: choose fewer --shards, or another --data_dir.'
    )


class Fetcher:
  """Fetches what was planned.

  Args:
    source: of the plan.
    jobs: files at once.
    retries: how often in a row a file may be interrupted without a new byte.
    say: takes a line for each shard that is complete.
  """

  def __init__(
    self,
    source: remote_sources.Source,
    jobs: int,
    retries: int,
    say: Callable[[str], None] = lambda line: None,
  ):
    self._source = source
    self._jobs = jobs
    self._retries = retries
    self._say = say
    self._stopped = threading.Event()
    self._change = threading.Lock()
    self._result = Result()
    self._failures: dict[str, list[str]] = {}
    self._left: dict[tuple[str, int], int] = {}
    self._bar: Any = None

  def fetch(self, runs: Sequence[Run]) -> Result:
    """Fetches all files that are not there.

    Returns:
      What became of it; what the source does not have or give is in it.

    Raises:
      ValueError: if another process is fetching the same.
      OSError: if a file cannot be written, e.g. for want of room.
    """
    started, result = time.monotonic(), self._result
    with contextlib.ExitStack() as stack:
      tasks, places = [], {}
      for run in runs:
        if not run.files:
          continue
        origin = {'how': 'fetch', 'source': self._source.name}
        place = incoming_shards.Arrivals(run.logs, origin, run.described)
        places[run.title] = stack.enter_context(place)
        waiting = [file for file in run.files if not file.there]
        result.there += len(run.files) - len(waiting)
        for file in waiting:
          key = run.title, _suffix(file.name)
          self._left[key] = self._left.get(key, 0) + 1
        tasks += [(run, place, file) for file in waiting]
      files_here = [file for _, _, file in tasks]
      self._bar = stack.enter_context(
        tqdm.tqdm(
          total=sum(file.size or 0 for file in files_here),
          initial=sum(file.begun for file in files_here),
          unit='B',
          unit_scale=True,
          disable=None,  # unless on a terminal
          leave=False,
        )
      )
      self._show_files(len(tasks))
      incoming_shards.on_each(
        self._fetch_one, tasks, self._jobs, self._stopped.set
      )
      for run in runs:
        result.wrong += run.missing
        if run.title in places:
          places[run.title].finish()
      self._check(runs)
    for reason, names in self._failures.items():
      listing = ', '.join(names[:3]) + (', ...' if len(names) > 3 else '')
      count = f'{len(names)} files were' if len(names) > 1 else 'a file was'
      result.wrong.append(f'{count} not fetched ({listing}): {reason}')
    result.seconds = time.monotonic() - started
    return result

  def _check(self, runs: Sequence[Run]) -> None:
    """Compares the files of shards with one another."""
    for run in runs:
      if not run.files:
        continue
      whole = [
        suffix
        for suffix in shard_files.list_suffixes(run.logs, complete=False)
        if all(
          os.path.exists(
            os.path.join(run.logs, shard_files.file_name(n, suffix))
          )
          for n in shard_files.FILES
        )
      ]
      wrong, notes = incoming_shards.check_shards(run.logs, whole)
      self._result.wrong += wrong
      self._result.notes += notes

  def _fetch_one(
    self, task: tuple[Run, incoming_shards.Arrivals, File]
  ) -> None:
    run, place, file = task
    try:
      received = _Received(place, file, self._count)
      for last in range(_TRIES_AT_DAMAGE)[::-1]:
        try:
          self._obtain(place, file, received)
          break
        except remote_sources.Refused:
          raise
        except ValueError:
          received.discard()
          if not last:
            raise
    except (remote_sources.Interrupted, ValueError) as error:
      reason = str(error).replace(place.partial(file.name), file.name)
      if isinstance(error, remote_sources.Interrupted):
        reason += f', after {self._retries} retries'
      with self._change:
        self._failures.setdefault(reason, []).append(f'{run.title} {file.name}')
      return
    except OSError as error:
      raise OSError(
        f'{place.logs} cannot be written: {files.reason(error)}; what was fetched '
        'is kept, and the same command goes on.'
      ) from error
    with self._change:
      self._result.fetched += 1
      key = run.title, _suffix(file.name)
      self._left[key] -= 1
      if not self._left[key]:
        self._say(f'{key[0]}: shard {key[1]} is there')
      self._show_files(sum(self._left.values()))

  def _obtain(
    self, place: incoming_shards.Arrivals, file: File, received: '_Received'
  ) -> None:
    """Fetches a file and has it accepted; raises ValueError if it is damaged."""
    final = os.path.join(place.logs, file.name)
    if os.path.exists(final):
      try:
        place.accept(file.name, path=final)
      except ValueError as error:
        raise ValueError(f'{error} Move it away to have it fetched.') from None
      return
    stat = remote_sources.try_again(
      lambda: received.go_on(self._source, self._stopped),
      self._retries,
      self._stopped.wait,
      _FIRST_WAIT,
    )
    received.forget()  # first: nobody would look for it later
    place.accept(file.name, stat.hashes)

  def _count(self, change: int, received: int) -> None:
    with self._change:
      self._result.bytes += received
      self._bar.update(change)

  def _show_files(self, left: int) -> None:
    self._bar.set_postfix_str(f'{left} files to go', refresh=False)


class _Received:
  """What there is of a file, and a note beside it of which version it is.

  Args:
    place: where it arrives.
    file: the file.
    count: called with the change of the file's length, and the bytes received.
  """

  def __init__(
    self,
    place: incoming_shards.Arrivals,
    file: File,
    count: Callable[[int, int], None],
  ):
    self._path = place.partial(file.name)
    self._note = f'{self._path}.json'
    self._file = file
    self._count = count
    self._length = file.begun  # as the progress bar has it
    self._longest = 0

  def go_on(
    self, source: remote_sources.Source, stopped: threading.Event
  ) -> remote_sources.Stat:
    """Reads on from the source to the end of the file.

    Raises:
      Interrupted: if it did not get there; its `progress` says whether the file
        is longer than ever.
      Refused: if the source does not give it.
      KeyboardInterrupt: if it was stopped.
    """
    if stopped.is_set():
      raise KeyboardInterrupt
    known = self._known()
    there = os.path.getsize(self._path) if known else 0
    if known and there == known.size:
      now = source.stat(self._file.path)
      if now.same(known):
        return now
      there = 0
    stat, start, chunks = source.open(self._file.path, there, known)
    end = start
    if start == 0:
      # What is there may be a link to a file of the user's (`import`).
      with contextlib.suppress(FileNotFoundError):
        os.remove(self._path)
    with open(self._path, 'r+b' if start else 'wb') as out:
      if start == 0:
        # Before there is anything that it could be wrong about.
        files.write_json(
          self._note, {'bytes': stat.size, 'version': stat.version}
        )
      out.seek(start)
      self._set_length(start, 0)
      try:
        for chunk in chunks:
          out.write(chunk)
          end += len(chunk)
          self._set_length(end, len(chunk))
          if stopped.is_set():
            raise KeyboardInterrupt
        if stat.size is not None and end < stat.size:
          raise remote_sources.Interrupted(remote_sources.DROPPED)
      except remote_sources.Interrupted as error:
        error.progress = end > self._longest
        self._longest = max(self._longest, end)
        raise
    if stat.size is not None and end > stat.size:
      raise ValueError(f'{self._path} is longer than {stat.size:,} B.')
    return stat

  def _known(self) -> remote_sources.Stat | None:
    """What the source said when the first bytes came; None without them."""
    if not os.path.exists(self._path):
      return None
    try:
      note = files.read_json(self._note) or {}
    except ValueError:
      return None
    size = manifests.look_up(note, 'bytes', kind=int)
    version = manifests.look_up(note, 'version', kind=str)
    return None if size is None else remote_sources.Stat(size, version)

  def _set_length(self, length: int, received: int) -> None:
    self._count(length - self._length, received)
    self._length = length

  def discard(self) -> None:
    """Removes it, to begin anew."""
    self._set_length(0, 0)
    for path in (self._path, self._note):
      with contextlib.suppress(FileNotFoundError):
        os.remove(path)

  def forget(self) -> None:
    """Removes the note of a file that is in place."""
    with contextlib.suppress(FileNotFoundError):
      os.remove(self._note)
