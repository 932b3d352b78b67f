"""Fetches planned files in parallel, with retries and a progress bar."""

import collections
import contextlib
import dataclasses
import os
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import tqdm.auto as tqdm

from batch_rl.dataset.fetch import incoming_shards, partial_file, plan, remotes
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
  """

  fetched: int = 0
  there: int = 0
  bytes: int = 0
  seconds: float = 0.0
  wrong: list[str] = dataclasses.field(default_factory=list)
  notes: list[str] = dataclasses.field(default_factory=list)


class Fetcher:
  """Fetches the files of a plan; used once.

  Args:
    remote: Remote of the plan.
    jobs: Number of files fetched in parallel.
    retries: Number of consecutive retries of a file without progress.
    log: Callback with a line of text for each complete shard.
  """

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
    self._lock = threading.Lock()  # guards the fields below
    self._result = Result()
    self._failures: dict[str, list[str]] = collections.defaultdict(list)
    self._waiting: collections.Counter[tuple[str, int]] = collections.Counter()
    self._bar: Any = None

  def fetch(self, plans: Sequence[plan.RunPlan]) -> Result:
    """Fetches all files that are not in place.

    Returns:
      The outcome, including files that the remote lacks or refuses.

    Raises:
      ValueError: If another process is writing to the same directory.
      OSError: If a file cannot be written, e.g. for lack of disk space.
    """
    started, result = time.monotonic(), self._result
    with contextlib.ExitStack() as stack:
      tasks, incoming = [], []
      for run in plans:
        result.wrong += run.missing
        if not run.files:
          continue
        origin = {'how': 'fetch', 'source': self._remote.name}
        shards = incoming_shards.IncomingShards(
          run.data_dir, origin, run.manifest
        )
        incoming.append(stack.enter_context(shards))
        waiting = [file for file in run.files if not file.there]
        result.there += len(run.files) - len(waiting)
        self._waiting.update((run.title, file.suffix) for file in waiting)
        tasks += [(run, shards, file) for file in waiting]
      self._bar = stack.enter_context(
        tqdm.tqdm(
          total=sum(file.size or 0 for _, _, file in tasks),
          initial=sum(file.begun for _, _, file in tasks),
          unit='B',
          unit_scale=True,
          disable=None,  # shown on a terminal only
          leave=False,
        )
      )
      self._show_waiting()
      threads.parallel_map(self._fetch, tasks, self._jobs, self._stopped.set)
      for shards in incoming:
        shards.finish()
        wrong, notes = incoming_shards.check_shards(
          shards.data_dir, shards.complete_suffixes()
        )
        result.wrong += wrong
        result.notes += notes
    for reason, names in self._failures.items():
      listing = ', '.join(names[:3]) + (', ...' if len(names) > 3 else '')
      count = f'{len(names)} files were' if len(names) > 1 else 'a file was'
      result.wrong.append(f'{count} not fetched ({listing}): {reason}')
    result.seconds = time.monotonic() - started
    return result

  def _fetch(
    self,
    task: tuple[plan.RunPlan, incoming_shards.IncomingShards, plan.FilePlan],
  ) -> None:
    """Fetches a file; records damage and failed requests in `_failures`."""
    run, shards, file = task
    path = shards.partial(file.name)
    partial = partial_file.PartialFile(path, self._count)
    try:
      for attempt in (1, 2):  # a damaged file is fetched again once
        try:
          self._obtain(shards, file, partial)
          break
        except ValueError:
          partial.discard()
          if attempt == 2:
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
        f'{run.data_dir} cannot be written: {files.reason(error)}; fetched data '
        'is kept, and the same command resumes.'
      ) from error
    with self._lock:
      self._result.fetched += 1
      self._waiting[run.title, file.suffix] -= 1
      if not self._waiting[run.title, file.suffix]:
        self._log(f'{run.title}: shard {file.suffix} is complete')
      self._show_waiting()

  def _obtain(
    self,
    shards: incoming_shards.IncomingShards,
    file: plan.FilePlan,
    partial: partial_file.PartialFile,
  ) -> None:
    """Fetches, verifies and moves a file; raises ValueError if it is damaged."""
    final = os.path.join(shards.data_dir, file.name)
    if os.path.exists(final):
      try:
        shards.accept(file.name, path=final)
      except ValueError as error:
        raise ValueError(f'{error} Move it away and fetch again.') from None
      return
    stat = remotes.with_retries(
      lambda: partial.download(self._remote, file.path, self._stopped),
      self._retries,
      self._stopped.wait,
      partial.size,
    )
    partial.remove_note()  # before the move: later fetches skip a file in place
    shards.accept(file.name, stat.hashes)

  def _count(self, change: int, received: int) -> None:
    with self._lock:
      self._result.bytes += received
      self._bar.update(change)

  def _show_waiting(self) -> None:
    self._bar.set_postfix_str(
      f'{self._waiting.total()} files to go', refresh=False
    )
