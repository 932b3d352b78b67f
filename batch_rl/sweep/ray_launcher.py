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

_STORE_BYTES = 100 << 20  # of Ray's object store: cells give nothing back
_POLL = 2.0  # seconds
_TIMEOUT = 5.0  # seconds


def run(
  sweep: plan.Sweep,
  cells: Sequence[plan.Cell],
  address: str | None,
  watch: Callable[[], bool],
) -> None:
  """Runs cells, as many at once as there is room for.

  A cell whose worker or machine is lost is started again elsewhere, and goes on.

  Args:
    sweep: that they are of.
    cells: to run, in this order.
    address: of a cluster; None for this machine.
    watch: called every few seconds; returns whether to stop.

  Raises:
    ValueError: if there is no cluster, or it has no machine for a cell.
  """
  with _connected(sweep, address):
    _run(sweep, cells, watch)


def slots(sweep: plan.Sweep, address: str | None) -> int:
  """Cells that run at once.

  Raises:
    ValueError: if there is no cluster, or it has no machine for a cell.
  """
  with _connected(sweep, address) as machines:
    return sum(machines)


@contextlib.contextmanager
def _connected(sweep, address):
  """Yields how many cells each machine has room for."""
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
    # 'local' starts one, whatever the environment says of others.
    ray.init(
      address or 'local', log_to_driver=False, logging_level='error', **options
    )
  except ConnectionError as error:
    raise ValueError(
      f'The Ray cluster at {address} does not answer: {" ".join(str(error).split())}. '
      'One that was started with a token needs RAY_AUTH_MODE=token here.'
    ) from error
  if threading.current_thread() is threading.main_thread():
    signal.signal(signal.SIGTERM, handler)  # Ray has put its own there
  try:
    yield _room(sweep)
  finally:
    ray.shutdown()


def _check_address(address):
  """Raises a ValueError if nobody listens there: Ray would try for a minute."""
  match = re.fullmatch(r'(?:ray://)?([^:/]+):(\d+)', address or '')
  if match is None:
    return
  try:
    socket.create_connection((match[1], int(match[2])), _TIMEOUT).close()
  except OSError as error:
    raise ValueError(
      f'There is no Ray cluster at {address}: {error}.'
    ) from error


def _room(sweep) -> list[int]:
  needs = {'CPU': sweep.cpus, 'GPU': sweep.gpus, 'memory': _memory(sweep)}
  needs = {kind: amount for kind, amount in needs.items() if amount}
  machines = [node['Resources'] for node in ray.nodes() if node['Alive']]
  room = [
    min(int(machine.get(kind, 0) / amount) for kind, amount in needs.items())
    for machine in machines
  ]
  if not any(room):
    has = '; '.join(_resources(machine, needs) for machine in machines)
    raise ValueError(
      f'A cell needs {_resources(needs, needs)}, and no machine has that: {has}.'
    )
  return room


def _resources(amounts, kinds) -> str:
  return ', '.join(f'{amounts.get(kind, 0):g} {kind}' for kind in kinds)


def _memory(sweep) -> float:
  return (sweep.memory_gb or 0) * 1e9


def _run(sweep, cells, watch):
  task = ray.remote(
    num_cpus=sweep.cpus,
    num_gpus=sweep.gpus,
    memory=_memory(sweep) or None,
    max_retries=sweep.retries,
  )(cell_lib.run)
  waiting = {
    task.options(name=cell.name).remote(
      cell, sweep.retries, sweep.cpus, sweep.gpus
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
        cell_lib.note_failure(cell, _last_line(error))
    if watch() and not stopping:
      stopping = True
      for reference in waiting:
        ray.cancel(reference)


def _last_line(error) -> str:
  lines = [line.strip() for line in str(error).split('\n') if line.strip()]
  return lines[-1] if lines else type(error).__name__
