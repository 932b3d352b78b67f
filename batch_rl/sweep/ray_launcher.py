"""Runs the cells of a sweep on Ray: on this machine, or on a cluster."""

import contextlib
import re
import signal
import socket
import threading
from collections.abc import Callable, Sequence

import ray

from batch_rl.sweep import cells as cell_lib
from batch_rl.sweep import plan
from batch_rl.utils import machine as machine_lib

_STORE_BYTES = 100 << 20  # Ray's object store; the results of cells are small.
_POLL = 2.0  # Seconds.
_CONNECT_TIMEOUT = 5.0  # Seconds.


class DoesNotFitError(ValueError):
  """A cell that needs more than any machine has. The message says of what."""


def run(
  sweep: plan.Sweep,
  cells: Sequence[plan.Cell],
  address: str | None,
  watch: Callable[[], bool],
) -> None:
  """Runs as many cells at once as fit.

  A cell whose worker or machine is lost is started again elsewhere, and resumes. That
  is one of its `retries`, as is any other failure.

  Args:
    sweep: Sweep of the cells.
    cells: Cells to run, in this order.
    address: Address of a cluster; None for this machine.
    watch: Function to call every few seconds, which returns whether to stop.

  Raises:
    DoesNotFitError: If a cell fits on none of the machines.
    ValueError: If there is no cluster.
  """
  with _connected(sweep, address):
    _run(sweep, cells, watch)


def slots(sweep: plan.Sweep, address: str | None) -> int:
  """Returns the number of cells that run at once.

  Raises:
    DoesNotFitError: If a cell fits on none of the machines.
    ValueError: If there is no cluster.
  """
  with _connected(sweep, address) as capacities:
    return sum(capacities)


@contextlib.contextmanager
def _connected(sweep, address):
  """Connects to Ray; yields the number of cells that fit on each machine."""
  options = (
    {}
    if address
    else {
      'num_cpus': machine_lib.num_cpus(),
      'object_store_memory': _STORE_BYTES,
      'include_dashboard': False,
    }
  )
  _check_address(address)
  handler = signal.getsignal(signal.SIGTERM)
  try:
    # 'local' starts a new cluster, even if RAY_ADDRESS is set.
    ray.init(
      address or 'local', log_to_driver=False, logging_level='error', **options
    )
  except ConnectionError as error:
    raise ValueError(
      f'The Ray cluster at {address} does not answer: {" ".join(str(error).split())}. '
      'If it was started with a token, set RAY_AUTH_MODE=token here.'
    ) from error
  if threading.current_thread() is threading.main_thread():
    signal.signal(signal.SIGTERM, handler)  # ray.init installs its own.
  try:
    yield _capacities(sweep)
  finally:
    ray.shutdown()


def _check_address(address):
  """Raises a ValueError if the port is closed: Ray would retry for a minute."""
  match = re.fullmatch(r'(?:ray://)?([^:/]+):(\d+)', address or '')
  if match is None:
    return
  try:
    socket.create_connection(
      (match[1], int(match[2])), _CONNECT_TIMEOUT
    ).close()
  except OSError as error:
    raise ValueError(
      f'There is no Ray cluster at {address}: {error}.'
    ) from error


def _capacities(sweep) -> list[int]:
  needs = {
    'cpus': sweep.cpus,
    'gpus': sweep.gpus,
    'memory_gb': sweep.memory_gb or 0,
  }
  machines = [
    {
      'cpus': resources.get('CPU', 0),
      'gpus': resources.get('GPU', 0),
      'memory_gb': resources.get('memory', 0) / 1e9,
    }
    for resources in (n['Resources'] for n in ray.nodes() if n['Alive'])
  ]
  capacities = [
    min(int(machine[name] / need) for name, need in needs.items() if need)
    for machine in machines
  ]
  if not any(capacities):
    lack, *available = (
      ', '.join(f'{k}={v:.4g}' for k, v in amounts.items() if needs[k])
      for amounts in (needs, *machines)
    )
    raise DoesNotFitError(
      f'A cell needs {lack}, more than any machine has '
      f'({"; ".join(available)}): reduce what is too much.'
    )
  return capacities


def _run(sweep, cells, watch):
  # Ray's retries, after the loss of a worker, are not added to those of the cell: both
  # count the same attempts.
  task = ray.remote(
    num_cpus=sweep.cpus,
    num_gpus=sweep.gpus,
    memory=(sweep.memory_gb or 0) * 1e9 or None,
    max_retries=sweep.retries,
  )(cell_lib.run)
  waiting = {
    task.options(name=cell.name).remote(
      cell,
      sweep.retries,
      sweep.cpus,
      sweep.gpus,
      earlier=cell_lib.status(cell).attempts,
    ): cell
    for cell in cells
  }
  stopping = False
  while waiting:
    ended, _ = ray.wait(list(waiting), timeout=_POLL)
    for reference in ended:
      cell = waiting.pop(reference)
      try:
        ray.get(reference)
      except ray.exceptions.TaskCancelledError:
        pass
      except ray.exceptions.RayError as error:
        lines = str(error).strip().split('\n')
        cell_lib.record_failure(cell, lines[-1] or type(error).__name__)
    if watch() and not stopping:
      stopping = True
      for reference in waiting:
        ray.cancel(reference)
