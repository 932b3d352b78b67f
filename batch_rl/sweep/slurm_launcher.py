"""Runs the cells of a sweep as SLURM jobs, through submitit."""

import concurrent.futures
import contextlib
import io
import math
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import submitit
from submitit.core import utils as submitit_utils

from batch_rl.sweep import cells as cell_lib
from batch_rl.sweep import plan
from batch_rl.utils import files, json_schema

_SUBMITTED = 'submitted.json'
_POLL = 2.0  # Seconds.
# submitit's state of a job that sacct does not list, or if sacct does not answer.
_UNKNOWN = 'UNKNOWN'
_IN_QUEUE = (
  *'PENDING CONFIGURING RUNNING COMPLETING REQUEUED SUSPENDED'.split(),
  _UNKNOWN,
)
_MAX_ARRAY = 1000  # jobs; SLURM's MaxArraySize is 1001 by default.
_MAX_TIMEOUTS = 1000  # A run may take many times the time limit of a job.
_GRACE = 600.0  # Seconds; clusters send SIGKILL sooner.
# Parameters of submitit, overridden by the sweep.
_DEFAULTS = {'name': 'batch_rl', 'timeout_min': 24 * 60}


class Job:
  """SLURM job: one or more cells that share processors and a GPU.

  When the job runs out of time or is pre-empted or cancelled, its cells save. On
  submitit's signal the job queues again for the rest. Some clusters only send SIGTERM,
  and SIGKILL after a grace time: SLURM requeues a pre-empted job, provided that it is
  still running then.

  Args:
    cells: Cells to run side by side.
    sweep: Sweep of the cells.
  """

  def __init__(self, cells: Sequence[plan.Cell], sweep: plan.Sweep):
    self._cells = tuple(cells)
    self._settings = (sweep.retries, sweep.cpus, sweep.gpus)

  def __call__(self) -> None:
    """Runs the cells.

    Raises:
      RuntimeError: If a cell is not done. The job then fails, so that SLURM does not
        start the jobs that depend on it.
    """
    self._stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: self._stop.set())
    with concurrent.futures.ThreadPoolExecutor(len(self._cells)) as pool:
      self._runs = [
        pool.submit(cell_lib.run, cell, *self._settings, self._stop)
        for cell in self._cells
      ]
      states = [run.result().state for run in self._runs]
    if self._stop.is_set():
      # Until SIGKILL, after which SLURM may requeue the job.
      time.sleep(_GRACE)
    if any(state != cell_lib.DONE for state in states):
      raise RuntimeError(f'Not all cells are done: {", ".join(states)}.')

  def __getstate__(self) -> dict:
    return {'_cells': self._cells, '_settings': self._settings}

  def checkpoint(self) -> submitit.helpers.DelayedSubmission:
    """Saves and queues again; submitit calls it when SLURM ends the job."""
    self._stop.set()
    concurrent.futures.wait(self._runs)
    return submitit.helpers.DelayedSubmission(self)


def run(
  sweep: plan.Sweep, cells: Sequence[plan.Cell], watch: Callable[[], bool]
) -> None:
  """Submits the cells that are not in the queue yet, and watches all cells.

  Args:
    sweep: Sweep of the cells.
    cells: Cells that are not done.
    watch: Function to call every few seconds, which returns whether to leave.

  Raises:
    ValueError: If there is no SLURM, submitit does not know a setting, sbatch refuses
      the jobs, or a cell is in the queue with different settings.
  """
  folder = os.path.join(sweep.base_dir, 'slurm')
  path = os.path.join(folder, _SUBMITTED)
  executor = _executor(sweep, folder)
  queue = _jobs_in_queue(folder)
  ours = {cell_lib.record_path(cell): cell for cell in cells}
  waiting = [job for job, commands in queue if commands.keys() & ours.keys()]
  if unknown := [job.job_id for job in waiting if job.state == _UNKNOWN]:
    print(
      f'SLURM reports no state of {files.format_names(unknown)}: they count as queued. A '
      f'job that squeue does not list has ended: remove it from {path}.'
    )
  _check_settings(ours, queue)
  queued = {key for _, commands in queue for key in commands}
  new = [cell for key, cell in ours.items() if key not in queued]
  for array in _submit(executor, sweep, new):
    queue += array
    waiting += [job for job, _ in array]
    entries = [{'job': job.job_id, 'cells': cells} for job, cells in queue]
    files.write_json(path, entries)
  print(
    f'{len(waiting)} jobs in the queue, {len(new)} cells submitted now; logs: {folder}'
  )
  while waiting:
    if watch():
      print('The jobs continue. The same command watches them again.')
      return
    time.sleep(_POLL)
    waiting = [job for job in waiting if _is_queued(job)]


def _cells_per_job(sweep):
  """Returns the number of cells per job: SLURM grants whole GPUs, which they share."""
  return max(int(1 / sweep.gpus), 1) if sweep.gpus else 1


def _executor(sweep, folder):
  count = _cells_per_job(sweep)
  parameters = {
    **_DEFAULTS,
    'cpus_per_task': max(1, round(sweep.cpus * count)),
    'gpus_per_node': math.ceil(sweep.gpus * count) or None,
    'mem_gb': (sweep.memory_gb or 0) * count or None,
    **sweep.slurm,
  }
  try:
    executor = submitit.AutoExecutor(
      folder, cluster='slurm', slurm_max_num_timeout=_MAX_TIMEOUTS
    )
    executor.update_parameters(
      **{name: value for name, value in parameters.items() if value is not None}
    )
  except (RuntimeError, NameError, TypeError, AssertionError) as error:
    raise ValueError(f'slurm: {" ".join(str(error).split())}') from error
  return executor


def _submit(
  executor, sweep, cells
) -> Iterator[list[tuple[submitit.Job, dict[str, Sequence[str]]]]]:
  """Yields the jobs of each array, with the commands of their cells."""
  count = _cells_per_job(sweep)
  groups = [cells[i : i + count] for i in range(0, len(cells), count)]
  for start in range(0, len(groups), _MAX_ARRAY):
    array = groups[start : start + _MAX_ARRAY]
    try:
      with contextlib.redirect_stderr(io.StringIO()):  # sbatch's own message.
        jobs = executor.submit_array([Job(group, sweep) for group in array])
    except (
      submitit_utils.FailedJobError,
      submitit_utils.FailedSubmissionError,
    ) as error:
      raise ValueError(
        f'sbatch refuses {len(array)} jobs: {" ".join(str(error).split())}: change '
        '`slurm:`, or submit fewer cells, e.g. by --games.'
      ) from error
    yield [
      (job, {cell_lib.record_path(cell): cell.arguments for cell in group})
      for job, group in zip(jobs, array, strict=True)
    ]


def _jobs_in_queue(folder):
  required = json_schema.Required
  schema = [{'job': required(str), 'cells': required({str: [str]})}]
  submitted = files.read_json(os.path.join(folder, _SUBMITTED), schema) or []
  queue: list[tuple[Any, dict[str, list[str]]]] = [
    (submitit.SlurmJob(folder, entry['job']), entry['cells'])
    for entry in submitted
  ]
  return [(job, commands) for job, commands in queue if _is_queued(job)]


def _is_queued(job) -> bool:
  # sacct may not answer, or have forgotten an old job. A job with a result has ended.
  return job.state in _IN_QUEUE and not job.paths.result_pickle.exists()


def _check_settings(ours, queue):
  """Raises a ValueError if a cell is in the queue with different settings.

  Its new job would wait for the lock of the old one for ten minutes, and fail.
  """
  for job, commands in queue:
    for key, arguments in commands.items():
      if key in ours and list(ours[key].arguments) != arguments:
        raise ValueError(
          f'{ours[key].name} is in the queue with different settings: cancel job '
          f'{job.job_id} by scancel, or restore the settings.'
        )
