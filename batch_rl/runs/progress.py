"""`progress.json`: where a run is, for whoever watches it from outside."""

import contextlib
import os
import sys
import time
from typing import Any

import tqdm.auto as tqdm

from batch_rl.utils import files

FILE_NAME = 'progress.json'
FINISHED = 'finished'  # the phase of a run that has done all its iterations
_SECONDS = 10  # between writes


class Progress:
  """Shows the progress of a run, and keeps `progress.json` in its directory.

  The file has `iteration`, of how many `iterations`, `phase` ('train', 'eval' or
  'finished'), how much of it is `done`, of what `total`, in which `unit`; `rates`, of
  each phase the last, in units a second; `evaluation`, the mean return of the last one;
  and the `time` of writing, in seconds since 1970.

  Args:
    base_dir: of the run. Nothing is written to a remote one.
    iterations: of the whole run.

  Attributes:
    evaluation: the mean return of the last evaluation, once there is one.
  """

  def __init__(self, base_dir: str, iterations: int):
    self._path = os.path.join(base_dir, FILE_NAME)
    self._iterations = iterations
    before = read(base_dir) or {}
    self._rates: dict[str, float] = before.get('rates', {})
    self.evaluation: float | None = before.get('evaluation')

  def bar(
    self, iteration: int, phase: str, total: int, unit: str, done: int = 0
  ) -> 'Bar':
    """A bar with rate and ETA; in a log file, a line every half minute.

    Args:
      iteration: counted from 0.
      phase: of the iteration.
      total: units of the phase.
      unit: what is counted.
      done: units that were done before.
    """
    interactive = sys.stderr.isatty()
    return Bar(
      self,
      {'iteration': iteration, 'phase': phase, 'total': total, 'unit': unit},
      total=total,
      initial=done,
      desc=f'iteration {iteration} of {self._iterations}, {phase}',
      unit=unit,
      unit_scale=True,
      leave=not interactive,
      delay=0 if interactive else 30,
      mininterval=0.2 if interactive else 30,
    )

  def write(self, done: int, rate: float | None, about: dict[str, Any]) -> None:
    """Writes the file.

    Args:
      done: units of the phase.
      rate: units a second; None if that can't be told yet, and the last one stays.
      about: the phase.
    """
    if rate is not None:
      self._rates[about['phase']] = rate
    self._write({**about, 'done': done})

  def finish(self) -> None:
    """Says that all iterations are done."""
    self._write({'iteration': self._iterations, 'phase': FINISHED})

  def _write(self, content):
    if files.is_remote(self._path):
      return
    content |= {
      'iterations': self._iterations,
      'rates': self._rates,
      'evaluation': self.evaluation,
      'time': time.time(),
    }
    # A run does not end because nobody can watch it.
    with contextlib.suppress(OSError):
      # Nor does it wait for a slow disk.
      files.write_json(self._path, content, durable=False)


class Bar(tqdm.tqdm):
  """A bar of `Progress`.

  The rate that it tells leaves out the first seconds, in which TensorFlow gets ready.
  """

  def __init__(self, progress: Progress, about: dict[str, Any], **kwargs: Any):
    self._shared, self._about = progress, about
    self._count = kwargs['initial']
    self._begun = (time.monotonic(), self._count)
    self._warm: tuple[float, float] | None = None
    self._next = self._begun[0]
    super().__init__(**kwargs)

  def update(self, n: float | None = 1) -> bool | None:
    """Counts; shows and writes it if it is time."""
    self._count += n
    if (now := time.monotonic()) >= self._next:
      self._next = now + _SECONDS
      self._write(self._warm and self._rate_since(self._warm))
      if self._warm is None and now - self._begun[0] >= _SECONDS:
        self._warm = (now, self._count)
    return super().update(n)

  def close(self) -> None:
    """Writes the rate of the phase; all of it counts if it was short."""
    if self._count > self._begun[1] and self._next < float('inf'):
      self._next = float('inf')  # tqdm closes itself again
      short = not self._warm or time.monotonic() - self._warm[0] < _SECONDS
      self._write(self._rate_since(self._begun if short else self._warm))
    super().close()

  def _rate_since(self, since):
    start, count = since
    return (self._count - count) / max(time.monotonic() - start, 1e-9)

  def _write(self, rate):
    self._shared.write(int(self._count), rate, self._about)


def read(base_dir: str) -> dict[str, Any] | None:
  """What a run has last written of its progress; None if that can't be told."""
  try:
    found = files.read_json(os.path.join(base_dir, FILE_NAME))
  except ValueError:  # it is no record, and may be lost with a machine
    return None
  return found if isinstance(found, dict) else None
