"""Fetches planned files in parallel, with retries and a progress bar."""

import collections
import contextlib
import dataclasses
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

from batch_rl.dataset.fetch import fetched_run, partial_file, remotes
from batch_rl.dataset.imports import episode_import
from batch_rl.dataset.shards import shard_reader
from batch_rl.utils import files, progress_bars, threads


@dataclasses.dataclass
class Result:
  """Outcome of a fetch; `--json` prints its fields.

  Attributes:
    fetched: Number of files fetched.
    there: Number of files that were already in place.
    bytes: Bytes received.
    seconds: Wall time.
    wrong: Missing and damaged files, one line each.
    notes: Gaps and repetitions between shards, one line each.
    stores: Summaries of complete stores.
  """

  fetched: int = 0
  there: int = 0
  bytes: int = 0
  seconds: float = 0.0
  wrong: list[str] = dataclasses.field(default_factory=list)
  notes: list[str] = dataclasses.field(default_factory=list)
  stores: list[dict[str, Any]] = dataclasses.field(default_factory=list)


@dataclasses.dataclass(eq=False)
class Fetcher:
  """Fetches the files of a plan; used once.

  Args:
    remote: Remote of the runs.
    jobs: Number of shards or checkpoints fetched in parallel.
    retries: Number of consecutive retries of a file without progress.
    log: Callback with a line of text for each complete shard.
  """

  remote: remotes.Remote
  jobs: int
  retries: int
  log: Callable[[str], None]

  def __post_init__(self):
    self._stopped = threading.Event()
    self._connections = threading.Semaphore(self.jobs)
    self._lock = threading.Lock()  # guards the fields below
    self._result = Result()
    self._failures: dict[str, list[str]] = collections.defaultdict(list)
    self._bar: Any = None

  def fetch(self, runs: Sequence[fetched_run.FetchedRun]) -> Result:
    """Fetches files that are not in place, and verifies others without a record.

    Returns:
      The outcome, including files that the remote lacks or refuses.

    Raises:
      ValueError: If another process is writing to the same directory.
      OSError: If a file cannot be written, e.g. for lack of disk space.
    """
    started, result = time.monotonic(), self._result
    result.wrong = [line for run in runs for line in run.missing]
    runs = [run for run in runs if run.files]
    with contextlib.ExitStack() as stack:
      tasks = []
      for run in runs:
        run.open(stack)
        tasks += [
          (run, [file for file in run.files if file.suffix == number])
          for number in run.suffixes
        ]
      # Those that were begun come first.
      tasks.sort(key=lambda task: not any(file.begun for file in task[1]))
      absent = fetched_run.waiting(runs)
      size = sum(file.size or 0 for file in absent)
      begun = sum(file.begun for file in absent)
      bar = progress_bars.meter(size, 'B', initial=begun)
      self._bar = stack.enter_context(bar)
      jobs = self.jobs + max((run.max_waiting for run in runs), default=0)
      threads.parallel_map(self._fetch, tasks, jobs, self._stopped.set)
      for run in runs:
        wrong, notes, summary = run.finish()
        result.wrong += wrong
        result.notes += notes
        result.stores += [summary] if summary else []
    for reason, names in self._failures.items():
      listing = ', '.join(names[:3]) + (', ...' if len(names) > 3 else '')
      count = f'{len(names)} files were' if len(names) > 1 else 'a file was'
      result.wrong.append(f'{count} not fetched ({listing}): {reason}')
    result.seconds = time.monotonic() - started
    return result

  def _fetch(
    self, task: tuple[fetched_run.FetchedRun, list[fetched_run.FilePlan]]
  ) -> None:
    """Fetches the files of a shard or checkpoint."""
    run, planned = task
    complete = all([self._fetch_file(run, file) for file in planned])
    if complete and not all(file.there for file in planned):
      self.log(f'{run.title}: {run.unit} {planned[0].suffix} is complete')

  def _fetch_file(
    self, run: fetched_run.FetchedRun, file: fetched_run.FilePlan
  ) -> bool:
    """Fetches a file; records damage and failed requests in `_failures`.

    Returns:
      Whether the file is in place.
    """
    path = run.partial(file.name)
    partial = partial_file.PartialFile(path, self._count, self._stopped)

    def obtain() -> None:
      """Fetches and accepts the file; raises ValueError if it is damaged."""
      if not file.there:
        with self._connections:
          remotes.with_retries(
            lambda: partial.download(self.remote, file.path, file.size),
            self.retries,
            self._stopped.wait,
            partial.size,
          )
      run.accept(file, partial)

    try:
      try:
        obtain()
      except ValueError as error:
        if isinstance(error, episode_import.LastStepError):
          raise
        partial.discard()  # A damaged file is fetched again once.
        obtain()
    except (episode_import.LastStepError, shard_reader.ReadError):
      raise  # The file may be intact.
    except (remotes.RemoteError, ValueError) as error:
      reason = str(error).replace(path, file.name)
      if isinstance(error, remotes.TransientError):
        reason += f', after {self.retries} retries'
      if isinstance(error, ValueError):
        partial.discard()
      with self._lock:
        self._failures[reason].append(f'{run.title} {file.name}')
      return False
    except OSError as error:
      raise OSError(
        f'{run.directory} cannot be written: {files.reason(error)}; fetched data '
        'is kept, and the same command resumes.'
      ) from error
    with self._lock:
      self._result.there += file.there
      self._result.fetched += not file.there
    return True

  def _count(self, change: int, received: int) -> None:
    with self._lock:
      self._result.bytes += received
      self._bar.update(change)
