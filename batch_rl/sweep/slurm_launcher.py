"""Runs the cells of a sweep as jobs of SLURM, through submitit."""

import concurrent.futures
import math
import os
import signal
import threading
import time
from collections.abc import Callable, Sequence

import submitit

from batch_rl.sweep import cells as cell_lib
from batch_rl.sweep import plan
from batch_rl.utils import files

_SUBMITTED = 'submitted.json'
_POLL = 2.0  # seconds
_IN_QUEUE = (
  'PENDING',
  'CONFIGURING',
  'RUNNING',
  'COMPLETING',
  'REQUEUED',
  'SUSPENDED',
)
_MAX_TIMEOUTS = 1000  # a run may take many times a job's limit
_GRACE = 600.0  # seconds; that of clusters is shorter
# What a job gets, unless the sweep says otherwise; by submitit's names.
_DEFAULTS = {'name': 'batch_rl', 'timeout_min': 24 * 60}


class Job:
  """A job of SLURM: cells that share its processors and GPU.

  Out of time, pre-empted or cancelled, it asks them to save. It queues for the rest when
  it gets submitit's signal. Where there is only SIGTERM, and SIGKILL after a time of grace,
  SLURM queues a job that it pre-empts, if it finds it running then.

  Args:
    cells: that it runs side by side.
    sweep: that they are of.
  """

  def __init__(self, cells: Sequence[plan.Cell], sweep: plan.Sweep):
    self._cells = tuple(cells)
    self._settings = (sweep.retries, sweep.cpus, sweep.gpus)

  def __call__(self) -> list[str]:
    """Runs them; returns their states."""
    self._stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: self._stop.set())
    while True:
      with concurrent.futures.ThreadPoolExecutor(len(self._cells)) as pool:
        self._runs = [
          pool.submit(cell_lib.run, cell, *self._settings, self._stop)
          for cell in self._cells
        ]
        states = [run.result().state for run in self._runs]
      if not self._stop.is_set():
        return states
      time.sleep(_GRACE)
      self._stop.clear()  # it was not meant

  def __getstate__(self) -> dict:
    return {'_cells': self._cells, '_settings': self._settings}

  def checkpoint(self) -> submitit.helpers.DelayedSubmission:
    """Called by submitit when SLURM takes the job's machine away."""
    self._stop.set()
    concurrent.futures.wait(self._runs)
    return submitit.helpers.DelayedSubmission(self)


def run(
  sweep: plan.Sweep,
  cells: Sequence[plan.Cell],
  watch: Callable[[], bool],
) -> bool:
  """Submits the cells that are not in the queue yet, and watches all.

  Args:
    sweep: that they are of.
    cells: that are not done.
    watch: called every few seconds; returns whether to leave.

  Returns:
    Whether the jobs have ended; if not, they go on without this process.

  Raises:
    ValueError: if there is no SLURM, or a setting is none of submitit's.
  """
  folder = os.path.join(sweep.base_dir, 'slurm')
  executor = _executor(sweep, folder)
  jobs = _jobs_in_queue(folder)
  queued = {name for _, names in jobs for name in names}
  new = [cell for cell in cells if cell.name not in queued]
  if new:
    jobs += _submit(executor, sweep, new)
    files.write_json(
      os.path.join(folder, _SUBMITTED),
      [{'job': job.job_id, 'cells': names} for job, names in jobs],
    )
  print(
    f'{len(jobs)} jobs in the queue, with {len(new)} cells that were submitted now; '
    f'their logs: {folder}'
  )
  waiting = [job for job, _ in jobs]
  while waiting:
    if watch():
      return False
    time.sleep(_POLL)
    waiting = [job for job in waiting if not job.done()]
  return True


def cells_in_a_job(sweep: plan.Sweep) -> int:
  """As many as a GPU has room for: SLURM gives away whole ones."""
  return max(int(1 / sweep.gpus), 1) if sweep.gpus else 1


def _executor(sweep, folder):
  together = cells_in_a_job(sweep)
  parameters = {
    **_DEFAULTS,
    'cpus_per_task': max(1, round(sweep.cpus * together)),
    'gpus_per_node': math.ceil(sweep.gpus * together) or None,
    'mem_gb': (sweep.memory_gb or 0) * together or None,
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


def _submit(executor, sweep, cells):
  together = cells_in_a_job(sweep)
  groups = [cells[i : i + together] for i in range(0, len(cells), together)]
  with executor.batch():
    jobs = [executor.submit(Job(group, sweep)) for group in groups]
  return [
    (job, [cell.name for cell in group])
    for job, group in zip(jobs, groups, strict=True)
  ]


def _jobs_in_queue(folder):
  submitted = files.read_json(os.path.join(folder, _SUBMITTED)) or []
  jobs = [
    (submitit.SlurmJob(folder, entry['job']), entry['cells'])
    for entry in submitted
  ]
  # Of jobs that are long gone SLURM knows nothing. A cell that is submitted twice is
  # run once, as the second job waits for the first.
  return [(job, names) for job, names in jobs if job.state in _IN_QUEUE]
