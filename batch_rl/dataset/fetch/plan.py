"""Plan of a fetch: the remote's files of each run are compared with the local ones."""

import dataclasses
import functools
import os
import time
from collections.abc import Callable, Sequence
from typing import Any

from absl import logging

from batch_rl.dataset import game_names
from batch_rl.dataset.fetch import fetched_run, remotes
from batch_rl.dataset.shards import manifests, shard_files
from batch_rl.utils import choices, files, number_ranges, threads

_RETRIES = 3
# Some servers have an answer to every request.
_MOST_NUMBERS = 10_000


def make_plan(
  remote: remotes.Remote,
  runs: Sequence[fetched_run.FetchedRun],
  shards: Sequence[int] | None,
  jobs: int,
) -> None:
  """Plans the fetch of runs: sets their files, and what is missing.

  Args:
    remote: Remote root of a dataset, the folder above the games.
    runs: Runs in the layout of the remote.
    shards: Numbers of shards or checkpoints; None for all.
    jobs: Number of parallel requests.

  Raises:
    PermanentError: If the remote lacks or refuses all runs, or has no whole shard.
    TransientError: If the remote cannot be reached.
    ValueError: If a local file differs from the remote one.
  """
  reasons = set()
  for run in runs:
    try:
      _plan_run(remote, run, shards, jobs)
    except remotes.PermanentError as error:
      reasons.add(str(error))
      run.missing = [f'{run.title} is not available: {error}']
  if any(run.files for run in runs):
    return
  if reasons:
    titles = ', '.join(run.title for run in runs)
    if shards:
      titles += f', {runs[0].unit}s {number_ranges.brief(shards)}'
    known = game_names.names()
    unknown = dict.fromkeys(run.game for run in runs if run.game not in known)
    hints = [choices.hint(game, known) for game in unknown]
    raise remotes.PermanentError(
      f'{remote.name} has no {titles}, or refuses access: '
      f'{", ".join(sorted(reasons))}{"".join(hints)}. The source must be the folder '
      f'above the games, which has {runs[0].folder} (see --layout). {runs[0].advice}'
    )
  lines = [line for run in runs for line in run.missing]
  raise remotes.PermanentError(f'{remote.name}: {"; ".join(lines)}.')


@dataclasses.dataclass
class _Found:
  """The files of a shard or checkpoint at the remote.

  Attributes:
    number: Number of the shard or checkpoint.
    files: Files that the remote has.
    lacking: Names of the others.
    error: Error of the last request for one of these.
  """

  number: int
  files: list[fetched_run.FilePlan] = dataclasses.field(default_factory=list)
  lacking: list[str] = dataclasses.field(default_factory=list)
  error: remotes.PermanentError | None = None

  @property
  def is_refused(self) -> bool:
    """Whether a file may exist that the remote refuses."""
    return not isinstance(self.error, remotes.NotFound | None)


def _plan_run(
  remote: remotes.Remote,
  run: fetched_run.FetchedRun,
  numbers: Sequence[int] | None,
  jobs: int,
) -> None:
  """Sets a run's files, compared with those in its directory, and what is missing.

  Raises:
    PermanentError: If no file was found.
    TransientError: If the remote cannot be reached.
    ValueError: If a local file differs from the remote one.
  """
  run.manifest = _read_manifest(remote, run)
  numbered = map(shard_files.suffix_of, manifests.file_records(run.manifest))
  listed = {number for number in numbered if number is not None}
  wanted = numbers or run.all_numbers(listed)
  look_up = functools.partial(_look_up, remote, run)
  found = [look_up(number) for number in wanted[:2]]
  # Some remotes refuse everything: two numbers are enough to tell.
  if not all(entry.is_refused for entry in found):
    found += threads.parallel_map(look_up, wanted[2:], jobs)
    more, is_known = found, numbers or listed
    while not is_known and more[-1].files and more[-1].number < _MOST_NUMBERS:
      after = more[-1].number + 1
      more = threads.parallel_map(look_up, range(after, after + jobs), jobs)
      found += [entry for entry in more if entry.files]
  with_files = {entry.number for entry in found if entry.files}
  if not with_files:
    raise found[-1].error or remotes.NotFound('not found')
  run.files = [file for e in found if not e.lacking for file in e.files]
  expected = numbers or run.all_numbers(listed or range(max(with_files) + 1))
  absent, refused, incomplete = [], [], []
  for entry in found:
    if entry.is_refused:
      refused.append(entry)
    elif entry.lacking and entry.files:
      incomplete.append(entry)
    elif entry.lacking and entry.number in expected:
      absent.append(entry.number)
  if incomplete:
    brief = number_ranges.brief([entry.number for entry in incomplete])
    run.missing.append(
      f'{run.title}: incomplete at the source: {run.unit}s {brief} (e.g. '
      f'{", ".join(incomplete[0].lacking)} missing)'
    )
  if absent:
    run.missing.append(
      f'{run.title}: the source has no {run.unit}s {number_ranges.brief(absent)} '
      f'(found: {number_ranges.brief(sorted(listed | with_files))})'
    )
  if refused:
    brief = number_ranges.brief([entry.number for entry in refused])
    run.missing.append(
      f'{run.title}: the source refuses {run.unit}s {brief} ({refused[0].error})'
    )


def _request(function: Callable[[], Any]) -> Any:
  return remotes.with_retries(function, _RETRIES, time.sleep)


def _look_up(
  remote: remotes.Remote, run: fetched_run.FetchedRun, number: int
) -> _Found:
  """Finds the files of a shard or checkpoint at the remote."""
  found = _Found(number)
  records = manifests.file_records(run.manifest)
  for name in run.names(number):
    path, partial = f'{run.folder}/{name}', run.partial(name)
    try:
      size = _request(functools.partial(remote.stat, path)).size
    except remotes.PermanentError as error:
      found.lacking.append(name)
      found.error = error
      # Without the first two files, or access, there is hardly another.
      if not found.files and (found.is_refused or len(found.lacking) > 1):
        break
      continue
    size = records.get(name, {}).get('bytes', size)
    begun = os.path.getsize(partial) if os.path.exists(partial) else 0
    there = run.has(name, size)
    found.files.append(
      fetched_run.FilePlan(name, number, path, size, there, begun)
    )
  return found


def _read_manifest(
  remote: remotes.Remote, run: fetched_run.FetchedRun
) -> dict[str, Any]:
  """Returns the remote's manifest; empty if there is no valid one."""
  path = f'{run.folder}/{manifests.FILE_NAME}'
  try:
    content = _request(lambda: remotes.join(remote.open(path)[2]))
    manifest = files.parse_json(
      manifests.FILE_NAME, content, manifests.FILE_SCHEMA
    )
    return manifests.check_hash(manifests.FILE_NAME, manifest)
  except remotes.PermanentError:
    return {}
  except ValueError as error:
    text = '%s: files are not compared, and truncated episodes count as terminated: %s'
    logging.warning(text, run.title, error)
    return {}
