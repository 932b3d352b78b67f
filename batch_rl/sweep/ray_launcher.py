"""Runs the cells of a sweep on Ray: on this machine, or on a cluster."""

import contextlib
import logging
import os
import re
import signal
import socket
from collections.abc import Callable, Sequence
from typing import Any

import ray

from batch_rl.sweep import cells as cell_lib
from batch_rl.sweep import plan
from batch_rl.utils import machine as machine_lib

_STORE_BYTES = 100 << 20  # Ray's object store; the results of cells are small.
_POLL = 2.0  # Seconds.
_CONNECT_TIMEOUT = 5.0  # Seconds.


def run(
  sweep: plan.Sweep,
  cells: Sequence[plan.Cell],
  watch: Callable[[], bool],
  address: str | None = None,
) -> None:
  """Runs as many cells at once as fit.

  A cell whose worker or machine is lost is started again elsewhere, and resumes.

  Args:
    sweep: Sweep of the cells.
    cells: Cells to run, in this order.
    watch: Function to call every few seconds, which returns whether to stop.
    address: Address of a cluster; None for this machine.

  Raises:
    ValueError: If there is no cluster, or a cell fits on none of its machines.
  """
  options: Any = {'log_to_driver': False, 'logging_level': logging.ERROR}
  if not address:
    options |= {
      'num_cpus': machine_lib.num_cpus(),
      'object_store_memory': _STORE_BYTES,
      'include_dashboard': False,
    }
  _check_address(address)
  handler = signal.getsignal(signal.SIGTERM)
  try:
    # 'local' starts a new cluster, even if RAY_ADDRESS is set.
    ray.init(address or 'local', **options)
  except ConnectionError as error:
    raise ValueError(
      f'The Ray cluster at {address} does not answer: {" ".join(str(error).split())}. '
      'If it was started with a token, set RAY_AUTH_MODE=token here.'
    ) from error
  except Exception as error:  # The errors of a start have no common class.
    if address:
      raise
    raise ValueError(
      f'Ray did not start on this machine: {" ".join(str(error).split())} If the '
      'machine was busy, run the same command again.'
    ) from error
  signal.signal(signal.SIGTERM, handler)  # ray.init installs its own.
  try:
    _check_fit(sweep)
    _run(sweep, cells, watch)
  finally:
    ray.shutdown()


def _check_address(address):
  """Raises a ValueError if the port is closed: Ray would try again for minutes."""
  match = re.fullmatch(r'(?:ray://)?([^:/]+):(\d+)', address or '')
  if match is None:
    return
  server = match[1], int(match[2])
  try:
    socket.create_connection(server, _CONNECT_TIMEOUT).close()
  except OSError as error:
    raise ValueError(
      f'There is no Ray cluster at {address}: {error}.'
    ) from error


def _check_fit(sweep):
  """Raises a ValueError if a cell fits on none of the machines: it would wait."""
  memory = (sweep.memory_gb or 0) * 1e9
  needs = {'CPU': sweep.cpus, 'GPU': sweep.gpus, 'memory': memory}
  machines = [
    {name: node['Resources'].get(name, 0) for name in needs}
    for node in ray.nodes()
    if node['Alive']
  ]
  if not any(all(m[name] >= needs[name] for name in needs) for m in machines):
    raise ValueError(
      f'A cell needs {needs}, more than any machine has ({machines}; memory in bytes): '
      'reduce what is too much.'
    )


def _run_cell(folder, *arguments):
  """Runs a cell in the folder of the sweep, where modules of the user may be.

  The worker is in that of `ray start`.
  """
  with contextlib.suppress(OSError):  # Not on this machine.
    os.chdir(folder)
  return cell_lib.run(*arguments)


def _run(sweep, cells, watch):
  memory: Any = (sweep.memory_gb or 0) * 1e9 or None
  task: Any = ray.remote(
    num_cpus=sweep.cpus,
    num_gpus=sweep.gpus,
    memory=memory,
    max_retries=sweep.retries,  # After the loss of a worker.
  )(_run_cell)
  waiting = {
    task.options(name=cell.name).remote(
      os.getcwd(), cell, sweep.retries, sweep.cpus, sweep.gpus
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
        try:
          cell_lib.record_failure(cell, lines[-1] or type(error).__name__)
        except OSError as reason:  # The others go on.
          print(f'{cell.name}: {reason}', flush=True)
    if watch() and not stopping:
      stopping = True
      for reference in waiting:
        ray.cancel(reference)
