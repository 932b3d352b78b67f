"""The speed of training on a GPU, as a table for the docs.

  python -um benchmarks.gpu

Measures in twenty minutes (`--minutes`): each agent beside the same graph with a constant
batch; batches of several sizes; settings of TensorFlow and the package; several cells of
a sweep on one GPU. Each measurement has processes of its own, and an equal part of the
time, which includes their start. If one fails, its row has the reason, and the others
go on. The first row is measured again at the end: the two differ by as much as the
machine's speed does. The data are the sample, `data/Pong/1`. Without a GPU it measures
the CPU.

| column       |                                                                      |
| ------------ | -------------------------------------------------------------------- |
| updates/s    | with batches of the data                                             |
| x dqn        | updates/s, relative to the first row                                 |
| constant     | updates/s with a constant batch: the bound, with free data           |
| share        | of the rate with a constant batch                                    |
| waiting      | share of the time without a batch ready, an upper bound on a GPU     |
| processors   | busy processors, all threads together                                |
| GPU memory   | peak of the tensors, MB                                              |
"""

import argparse
import contextlib
import dataclasses
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any

import tqdm

from batch_rl.dataset.shards import shard_files
from batch_rl.dataset.store import store
from batch_rl.fixed_replay.agents import REGISTRY
from batch_rl.utils import machine

READY = 'ready'
FAILED = 'failed'  # key of the reason in a result
DATA_DIR = 'data/Pong/1/replay_logs'
REFERENCE = 'dqn'
SIZES = (1, 128, 512)
CELLS = (2, 4, 8)
_BATCH_SIZE = 32  # of the configs
_LEAST_SECONDS = 1.0  # of a measurement, after the start
_SLOWEST_START = 90.0  # seconds, or three times the time of a measurement
_PROGRAM = [sys.executable, '-m', 'benchmarks.gpu_updates']
_COLUMNS = (
  'updates/s',
  'x dqn',
  'constant',
  'share',
  'waiting',
  'processors',
  'GPU memory',
  'note',
)  # fmt: skip


@dataclasses.dataclass(frozen=True)
class Measurement:
  """Rows of the table, measured together.

  Attributes:
    name: First cell of the row.
    agent: Name of the agent's config.
    bindings: gin parameters, `{'Class.name': value}`.
    options: Further arguments of `gpu_updates.prepare`.
    cells: Number of processes that train at once.
  """

  name: str
  agent: str = REFERENCE
  bindings: Mapping[str, Any] = dataclasses.field(default_factory=dict)
  options: Mapping[str, Any] = dataclasses.field(default_factory=dict)
  cells: int = 1

  def arguments(self, data_dir: str) -> str:
    """Returns the arguments of `gpu_updates.prepare` as JSON."""
    return json.dumps(
      {
        'agent': self.agent,
        'data_dir': data_dir,
        'bindings': self.bindings,
        'constant': self.cells == 1,
        **self.options,
      }
    )


def plan(has_gpu: bool, processors: int) -> list[Measurement]:
  """Returns all measurements, in the order of the table."""
  memory = 'WrappedFixedReplayBuffer'
  agent = 'FixedReplayDQNAgent'
  names = REGISTRY.configs
  return [
    *(
      Measurement(name, name)
      for name in sorted(names, key=lambda n: n != REFERENCE)
    ),
    *(
      Measurement(f'batch_size = {n}', bindings={f'{memory}.batch_size': n})
      for n in SIZES
    ),
    Measurement('tensor_float_32 = True', options={'tensor_float_32': True}),
    *(
      Measurement(
        f'{name} = {value}', bindings={f'{owner}.{name}': value}
      )
      for owner, name, value in (
        ('run_seed', 'deterministic_ops', True),
        (agent, 'jit_compile', True),
        (agent, 'updates_per_run', 1),
        (memory, 'stack_on_device', not has_gpu),
        (memory, 'frames_on_device', True),
        (memory, 'prefetch', 0),
        (memory, 'prefetch_threads', 1),
        (memory, 'prefetch_threads', 4),
      )
    ),
    *(
      Measurement(f'{cells} cells at once, each', cells=cells)
      for cells in CELLS
      if cells <= max(2, processors)
    ),
    Measurement(f'{REFERENCE}, again'),
  ]  # fmt: skip


class _Process:
  """A process of `gpu_updates`, which is killed at the end of the context."""

  def __init__(self, arguments: Sequence[str], threads: int | None):
    environment = {**os.environ, 'TF_FORCE_GPU_ALLOW_GROWTH': 'true'}
    environment.setdefault('TF_CPP_MIN_LOG_LEVEL', '2')
    if threads is not None:
      environment |= machine.thread_limits(threads)
    self._errors = tempfile.TemporaryFile('w+', errors='replace')
    self._process = subprocess.Popen(
      [*_PROGRAM, *arguments],
      stdin=subprocess.PIPE,
      stdout=subprocess.PIPE,
      stderr=self._errors,
      text=True,
      env=environment,
    )

  def __enter__(self):
    return self

  def __exit__(self, *_):
    self._process.kill()
    self._process.communicate()
    self._errors.close()

  def start(self, seconds: float) -> None:
    """Lets a ready process measure for some seconds."""
    with contextlib.suppress(BrokenPipeError):
      print(seconds, file=self._process.stdin, flush=True)

  def line(self, end: float) -> str | dict[str, Any]:
    """Returns `READY`, or a result, which may be a failure.

    Args:
      end: Time (`time.monotonic`) at which the process is killed.
    """
    begin = time.monotonic()
    late = threading.Timer(max(0.0, end - begin), self._process.kill)
    late.start()
    line = self._process.stdout.readline().strip()
    late.cancel()
    if line == READY:
      return line
    if line:
      return json.loads(line)
    if time.monotonic() >= end:
      return {FAILED: f'no answer within {end - begin:.0f} s'}
    code = self._process.wait()
    self._errors.seek(0)
    last = (self._errors.read().strip().split('\n') or [''])[-1]
    return {FAILED: f'exit code {code}: {last}'[:300]}


def measure(
  wanted: Measurement, data_dir: str, seconds: float, processors: int
) -> list[dict[str, Any]]:
  """Returns the result of each process of a measurement.

  Args:
    wanted: Measurement.
    data_dir: Directory of the data.
    seconds: Time for it, the start of the processes included.
    processors: Number of processors of this machine.
  """
  begin = time.monotonic()
  threads = max(1, processors // wanted.cells) if wanted.cells > 1 else None
  with contextlib.ExitStack() as stack:
    started = [
      stack.enter_context(_Process([wanted.arguments(data_dir)], threads))
      for _ in range(wanted.cells)
    ]
    latest = begin + max(_SLOWEST_START, 3 * seconds)
    ready = [process.line(latest) for process in started]
    if failed := [found for found in ready if isinstance(found, dict)]:
      return failed[:1]
    left = max(_LEAST_SECONDS, begin + seconds - time.monotonic())
    for process in started:
      process.start(left)
    latest = time.monotonic() + left + _SLOWEST_START
    return [process.line(latest) for process in started]  # type: ignore[misc]


def rows(
  wanted: Measurement, found: Sequence[Mapping[str, Any]], reference: float
) -> list[list[str]]:
  """Returns the rows of a measurement: its own, and that of all cells together."""
  if failed := [one[FAILED] for one in found if FAILED in one]:
    return [[wanted.name, *[''] * (len(_COLUMNS) - 1), failed[0]]]
  mean = {
    name: sum(one[name] for one in found) / len(found)
    for name in found[0]
    if all(name in one for one in found)
  }
  lines = [[wanted.name, *_cells(mean, reference)]]
  if wanted.cells > 1:
    together = {
      name: value * wanted.cells
      for name, value in mean.items()
      if name != 'waiting'
    }
    name = wanted.name.replace('each', 'together')
    lines.append([name, *_cells(together, reference)])
  return lines


def _cells(found: Mapping[str, float], reference: float) -> list[str]:
  rate, constant = found['rate'], found.get('constant')
  waiting, memory = found.get('waiting'), found.get('memory')
  return [
    f'{rate:,.1f}',
    f'{rate / reference:.2f} x' if reference else '',
    f'{constant:,.1f}' if constant else '',
    f'{100 * rate / constant:.0f} %' if constant else '',
    '' if waiting is None else f'{100 * waiting:.1f} %',
    f'{found["processors"]:.1f}',
    f'{memory / 1e6:,.0f}' if memory else '',
    '',
  ]


def head(about: Mapping[str, Any], minutes: float) -> None:
  """Prints the machine and the versions."""
  if about['gpus']:
    driver = f', driver {about["driver"]}' if about['driver'] else ''
    print(f'GPU: {", ".join(about["gpus"])}{driver}.')
  else:
    print('No GPU: these are the rates of the CPU.')
  versions = ', '.join(f'{k} {v}' for k, v in about['versions'].items())
  print(f'Processors: {about["processors"]}. {versions}.')
  print(
    f'`python -um benchmarks.gpu --minutes={minutes:g}`; Pong, batches of '
    f'{_BATCH_SIZE}, medians.\n',
    flush=True,
  )


def describe() -> dict[str, Any]:
  """Returns the description of `gpu_updates.describe`.

  It is of a new process, so that this one takes no memory of the GPU.

  Raises:
    RuntimeError: If TensorFlow cannot be started.
  """
  with _Process([], None) as process:
    found = process.line(time.monotonic() + 10 * _SLOWEST_START)
  if not isinstance(found, dict) or FAILED in found:
    raise RuntimeError(f'TensorFlow cannot be started: {found}')
  return found


def launch_bound(rates: Mapping[int, float]) -> str:
  """Returns the share of an update that does not depend on its batch, in words.

  Args:
    rates: Updates/s with a constant batch, by batch size.
  """
  if not {1, _BATCH_SIZE} <= rates.keys():
    return ''
  times = ', '.join(
    f'{1e3 / rate:.2f} ms with {size}' for size, rate in sorted(rates.items())
  )
  share = 100 * min(1.0, rates[_BATCH_SIZE] / rates[1])
  return (
    f'An update with a constant batch takes {times}. With {_BATCH_SIZE}, '
    f'{share:.0f} % of the time does not depend on the batch: launches of kernels, '
    'and the step of the optimiser.'
  )


def table(
  wanted: Sequence[Measurement], shards: str, processors: int, seconds: float
) -> bool:
  """Measures, and prints the rows of the table as they are found.

  Returns:
    Whether a measurement has failed, other than for lack of time.
  """
  width = max(len(one.name) for one in wanted) + 3  # 'together' for 'each'
  _row(width, '', _COLUMNS)
  _row(width, '---', ['---'] * len(_COLUMNS))
  end, reference = time.monotonic() + seconds, 0.0
  constants: dict[int, float] = {}
  has_failed = False
  with tempfile.TemporaryDirectory() as data_dir:
    store.convert(shards, data_dir)
    progress = tqdm.tqdm(wanted, 'measuring', unit='measurement')
    for i, one in enumerate(progress):
      left = end - time.monotonic()
      if left <= 0:
        found = [{FAILED: 'skipped: no time left, see --minutes'}]
      else:
        progress.set_postfix_str(one.name)
        part = left / (len(wanted) - i)
        found = measure(one, data_dir, part, processors)
        has_failed |= any(FAILED in process for process in found)
      if one == Measurement(REFERENCE) and 'rate' in found[0]:
        reference = found[0]['rate']
      if one.agent == REFERENCE and 'constant' in found[0]:
        size = one.bindings.get('WrappedFixedReplayBuffer.batch_size')
        if size or one.name == REFERENCE:
          constants[size or _BATCH_SIZE] = found[0]['constant']
      for name, *cells in rows(one, found, reference):
        progress.clear()
        _row(width, name, cells)
  print(f'\n{launch_bound(constants)}'.rstrip())
  _, legend = __doc__.split('\n\n| column', 1)
  print(f'\n| column{legend.rstrip()}')
  return has_failed


def _row(width: int, name: str, cells: Sequence[str]) -> None:
  sized = (f'{text:>10}' for text in cells)
  print(f'| {name:<{width}} | {" | ".join(sized)} |', flush=True)


def main() -> int:
  """Prints the table; returns 1 if a measurement has failed."""
  parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
  parser.add_argument(
    '--minutes', type=float, default=20.0, help='time for all measurements'
  )
  parser.add_argument(
    '--only', nargs='+', default=[], help='first words of the rows to measure'
  )
  parser.add_argument(
    'shards', nargs='?', default=DATA_DIR, help='default: %(default)s'
  )
  options = parser.parse_args()
  try:
    shard_files.list_suffixes(options.shards)
  except ValueError as error:
    parser.error(str(error))
  about = describe()
  wanted = [
    one
    for one in plan(bool(about['gpus']), about['processors'])
    if one.name.startswith(tuple(options.only) or '')
  ]
  if not wanted:
    parser.error(f'--only={" ".join(options.only)} names no row.')
  head(about, options.minutes)
  seconds = 60 * options.minutes
  return int(table(wanted, options.shards, about['processors'], seconds))


if __name__ == '__main__':
  sys.exit(main())
