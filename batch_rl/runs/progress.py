"""Progress of a run: a console bar, and `progress.json` for other programs."""

import contextlib
import numbers
import os
import sys
import time
from typing import Any

import tqdm

from batch_rl.utils import files, json_schema

FILE_NAME = 'progress.json'
FINISHED = 'finished'  # phase of a run with all iterations done
_SECONDS = 10  # between writes
_SCHEMA = {
  'iteration': json_schema.Required(range(2**53)),
  'iterations': json_schema.Required(range(2**53)),
  'phase': json_schema.Required(str),
  'done': float,
  'total': float,
  'unit': str,
  'rates': {str: numbers.Real},
  'evaluation': numbers.Real,  # possibly NaN
  'time': json_schema.Required(float),
}


class Progress:
  """Writes the progress of a run to `progress.json` in its directory.

  Keys of the file:

  | key                  | value                                              |
  | -------------------- | -------------------------------------------------- |
  | iteration            | number of the iteration                            |
  | iterations           | number of iterations in the run                    |
  | phase                | 'train', 'eval' or 'finished'                      |
  | done, total, unit    | progress of the phase                              |
  | rates                | last rate of each phase, in units a second         |
  | evaluation           | mean return of the last evaluation, or null        |
  | time                 | time of writing, in seconds since 1970             |

  Args:
    base_dir: Directory of the run. Nothing is written to a remote one.
    iterations: Number of iterations in the run.

  Attributes:
    iterations: Number of iterations in the run.
    evaluation: Mean return of the last evaluation; None before the first.
  """

  def __init__(self, base_dir: str, iterations: int):
    self._path = os.path.join(base_dir, FILE_NAME)
    self.iterations = iterations
    before = read(base_dir) or {}
    self._rates: dict[str, float] = before.get('rates', {})
    self.evaluation: float | None = before.get('evaluation')

  def write(self, done: int, rate: float, about: dict[str, Any]) -> None:
    """Writes the file.

    Args:
      done: Number of units done in the phase.
      rate: Units a second.
      about: Entries of the phase: iteration, phase, total and unit.
    """
    self._rates[about['phase']] = rate
    self._write({**about, 'done': done})

  def finish(self) -> None:
    """Records that all iterations are done."""
    self._write({'iteration': self.iterations, 'phase': FINISHED})

  def _write(self, content):
    if files.is_remote(self._path):
      return
    content |= {
      'iterations': self.iterations,
      'rates': self._rates,
      'evaluation': self.evaluation,
      'time': time.time(),
    }
    # Neither a full nor a slow disk may disturb the run here.
    with contextlib.suppress(OSError):
      files.write_json(self._path, content, durable=False)


def in_notebook() -> bool:
  """Returns whether output goes to a notebook, which shows bars of text."""
  return type(sys.stdout).__module__ == 'ipykernel.iostream'


class Bar(tqdm.tqdm):
  """A bar with rate and ETA, which keeps the progress file up to date.

  In a log file it is a line every half minute. In a notebook, that of an evaluation
  stays.

  Args:
    progress: Progress of the run.
    iteration: Number of the iteration, from 0.
    phase: Phase of the iteration.
    total: Number of units in the phase.
    unit: Name of the unit.
    done: Number of units already done.
  """

  def __init__(
    self,
    progress: Progress,
    iteration: int,
    phase: str,
    total: int,
    unit: str,
    done: int = 0,
  ):
    self._progress = progress
    self._about = dict(iteration=iteration, phase=phase, total=total, unit=unit)
    self._count: float = done
    self._begun = self._last = (time.monotonic(), float(done))
    notebook = in_notebook()
    interactive = notebook or sys.stderr.isatty()
    super().__init__(
      total=total,
      initial=done,
      desc=f'iteration {iteration} of {progress.iterations}, {phase}',
      unit=unit,
      unit_scale=True,
      file=sys.stdout if notebook else None,  # errors have another colour
      leave=not interactive or (notebook and phase == 'eval'),
      delay=0 if interactive else 30,
      mininterval=0.2 if interactive else 30,
    )

  def update(self, n: float | None = 1) -> bool | None:
    """Counts units; shows and writes the progress when due."""
    self._count += n or 0
    if time.monotonic() - self._last[0] >= _SECONDS:
      self._write(self._last)
    return super().update(n)

  def close(self) -> None:
    """Writes the rate of the phase."""
    if self._count > self._begun[1]:
      self._write(self._begun)
      self._begun = self._last  # tqdm closes itself again.
    super().close()

  def _write(self, since):
    self._last = (time.monotonic(), self._count)
    rate = (self._count - since[1]) / max(self._last[0] - since[0], 1e-9)
    self._progress.write(int(self._count), rate, self._about)


def read(base_dir: str) -> dict[str, Any] | None:
  """Returns the content of a run's progress file; None if unknown."""
  try:
    content = files.read_json(os.path.join(base_dir, FILE_NAME), _SCHEMA)
  except ValueError:  # not written durably, so a crash may damage it
    return None
  if content is not None:
    rates = content.get('rates') or {}
    content['rates'] = {k: v for k, v in rates.items() if v and v > 0}
  return content
