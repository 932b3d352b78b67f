"""Fetches planned files in parallel, with retries and a progress bar."""

import abc
import collections
import contextlib
import dataclasses
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import tqdm.auto as tqdm

from batch_rl.dataset.fetch import partial_file, plan, remotes
from batch_rl.utils import files, threads


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


class DamagedSourceError(ValueError):
  """A file that is damaged at the remote: fetching it again is of no use."""


class Fetcher(abc.ABC):
  """Fetches the files of a plan; used once. Layouts have a subclass each.

  Args:
    remote: Remote of the plan.
    jobs: Number of files fetched in parallel.
    retries: Number of consecutive retries of a file without progress.
    log: Callback with a line of text for each complete shard.
  """

  # Name of a number in the layout.
  unit = 'shard'
  # ValueErrors that concern all files, and end the fetch.
  fatal: tuple[type[ValueError], ...] = ()
  # Number of fetched files that may wait to be accepted while `jobs` others are
  # fetched.
  max_waiting = 0

  def __init__(
    self,
    remote: remotes.Remote,
    jobs: int,
    retries: int,
    log: Callable[[str], None] = lambda line: None,
  ):
    self._remote = remote
    self._jobs = jobs
    self._retries = retries
    self._log = log
    self._stopped = threading.Event()
    self._connections = threading.Semaphore(jobs)
    self._lock = threading.Lock()  # guards the fields below
    self._result = Result()
    self._failures: dict[str, list[str]] = collections.defaultdict(list)
    self._waiting: collections.Counter[tuple[str, int]] = collections.Counter()
    self._bar: Any = None

  def fetch(self, plans: Sequence[plan.RunPlan]) -> Result:
    """Fetches files that are not in place, and verifies others without a record.

    Returns:
      The outcome, including files that the remote lacks or refuses.

    Raises:
      ValueError: If another process is writing to the same directory.
      OSError: If a file cannot be written, e.g. for lack of disk space.
    """
    started, result = time.monotonic(), self._result
    with contextlib.ExitStack() as stack:
      tasks, destinations = [], []
      for run in plans:
        result.wrong += run.missing
        if not run.files:
          continue
        destination = self._open(run, stack)
        destinations.append((run, destination))
        waiting = [f for f in run.files if not self._is_done(destination, f)]
        result.there += len(run.files) - len(waiting)
        self._waiting.update((run.title, file.suffix) for file in waiting)
        waiting.sort(key=lambda file: not file.begun)
        tasks += [(run, destination, file) for file in waiting]
      absent = [file for _, _, file in tasks if not file.there]
      self._show_progress(absent, stack)
      self._show_waiting()
      threads.parallel_map(
        self._fetch, tasks, self._jobs + self.max_waiting, self._stopped.set
      )
      for run, destination in destinations:
        wrong, notes = self._finish(run, destination)
        result.wrong += wrong
        result.notes += notes
    for reason, names in self._failures.items():
      listing = ', '.join(names[:3]) + (', ...' if len(names) > 3 else '')
      count = f'{len(names)} files were' if len(names) > 1 else 'a file was'
      result.wrong.append(f'{count} not fetched ({listing}): {reason}')
    result.seconds = time.monotonic() - started
    return result

  # --- methods of the layouts -------------------------------------------------

  @abc.abstractmethod
  def _open(self, run: plan.RunPlan, stack: contextlib.ExitStack) -> Any:
    """Prepares the local directory of a run, called its destination below.

    Args:
      run: Plan of the run.
      stack: Stack that closes the destination.

    Raises:
      ValueError: If the directory cannot be used.
    """

  def _is_done(self, destination: Any, file: plan.FilePlan) -> bool:
    """Returns whether a file is in place and verified."""
    return file.there

  @abc.abstractmethod
  def _path(self, destination: Any, file: plan.FilePlan) -> str:
    """Returns the path at which a file is fetched."""

  @abc.abstractmethod
  def _accept(
    self,
    run: plan.RunPlan,
    destination: Any,
    file: plan.FilePlan,
    partial: partial_file.PartialFile,
    stat: remotes.RemoteStat,
  ) -> None:
    """Verifies a fetched file and puts it in place.

    Raises:
      ValueError: If the file is damaged.
      OSError: If the destination cannot be written.
    """

  @abc.abstractmethod
  def _finish(
    self, run: plan.RunPlan, destination: Any
  ) -> tuple[list[str], list[str]]:
    """Completes a run; returns errors and notes, one line each."""

  # --- one file ---------------------------------------------------------------

  def _fetch(self, task: tuple[plan.RunPlan, Any, plan.FilePlan]) -> None:
    """Fetches a file; records damage and failed requests in `_failures`."""
    run, destination, file = task
    path = self._path(destination, file)
    partial = partial_file.PartialFile(path, self._count)
    try:
      for attempt in (1, 2):  # a damaged file is fetched again once
        try:
          self._obtain(run, destination, file, partial)
          break
        except ValueError as error:
          if isinstance(error, self.fatal):
            raise
          partial.discard()
          if attempt == 2 or isinstance(error, DamagedSourceError):
            raise
    except self.fatal:
      raise
    except (remotes.RemoteError, ValueError) as error:
      reason = str(error).replace(path, file.name)
      if isinstance(error, remotes.TransientError):
        reason += f', after {self._retries} retries'
      with self._lock:
        self._failures[reason].append(f'{run.title} {file.name}')
      return
    except OSError as error:
      raise OSError(
        f'{run.directory} cannot be written: {files.reason(error)}; fetched data '
        'is kept, and the same command resumes.'
      ) from error
    with self._lock:
      if file.there:
        self._result.there += 1
      else:
        self._result.fetched += 1
      self._waiting[run.title, file.suffix] -= 1
      if not self._waiting[run.title, file.suffix]:
        self._log(f'{run.title}: {self.unit} {file.suffix} is complete')
      self._show_waiting()

  def _obtain(
    self,
    run: plan.RunPlan,
    destination: Any,
    file: plan.FilePlan,
    partial: partial_file.PartialFile,
  ) -> None:
    """Fetches and accepts a file; raises ValueError if it is damaged."""
    with self._connections:
      stat = remotes.with_retries(
        lambda: partial.download(self._remote, file.path, self._stopped),
        self._retries,
        self._stopped.wait,
        partial.size,
      )
    self._accept(run, destination, file, partial, stat)

  # --- progress ---------------------------------------------------------------

  def _show_progress(
    self, waiting: Sequence[plan.FilePlan], stack: contextlib.ExitStack
  ) -> None:
    """Shows the progress of the files to fetch until the stack is closed."""
    self._bar = stack.enter_context(
      progress_bar(
        sum(file.size or 0 for file in waiting),
        initial=sum(file.begun for file in waiting),
      )
    )

  def _count(self, change: int, received: int) -> None:
    with self._lock:
      self._result.bytes += received
      self._bar.update(change)

  def _show_waiting(self) -> None:
    self._bar.set_postfix_str(
      f'{self._waiting.total()} files to go', refresh=False
    )


def progress_bar(total: int, **options: Any) -> Any:
  """Returns a bar of bytes with their rate and the time to go."""
  return tqdm.tqdm(
    total=total,
    unit='B',
    unit_scale=True,
    disable=None,  # shown on a terminal only
    leave=False,
    **options,
  )
