"""Outcomes of reading a damaged file."""

import contextlib
import dataclasses
import io
import logging as std_logging
import os
import traceback
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
from absl import logging

# From best to worst; a case has the worst outcome of its readers.
HARMLESS, DETECTED, SILENT, CRASHED = VERDICTS = (
  'harmless',
  'detected',
  'silent',
  'crashed',
)


@dataclasses.dataclass(frozen=True)
class Outcome:
  """Outcome of reading a damaged file.

  Attributes:
    verdict: One of `VERDICTS`.
    message: Error or difference, in one line.
  """

  verdict: str
  message: str = ''


@dataclasses.dataclass(frozen=True)
class Case:
  """A damaged file and its readers.

  Attributes:
    description: File and mutation.
    check: Function that damages the file, reads it, and restores it.
  """

  description: str
  check: Callable[[], Outcome]


def worst(outcomes: list[Outcome]) -> Outcome:
  """Returns the worst outcome."""
  return max(outcomes, key=lambda outcome: VERDICTS.index(outcome.verdict))


def read(
  name: str,
  reader: Callable[[], Mapping[str, Any]],
  expected: Mapping[str, Any],
  errors: tuple[type[Exception], ...] = (ValueError, OSError),
) -> Outcome:
  """Calls a reader and compares what it returns.

  Args:
    name: Name of the reader, for the message.
    reader: Function that returns named values and arrays.
    expected: Result of the reader for the intact file.
    errors: Errors with which the reader may report damage.
  """
  try:
    found = reader()
  except errors as error:
    return Outcome(DETECTED, f'{name}: {_line(error)}')
  except Exception as error:
    return crash(name, error)
  wrong = differences(found, expected)
  if wrong:
    return Outcome(SILENT, f'{name}: {", ".join(wrong[:4])} differ')
  return Outcome(HARMLESS)


def crash(name: str, error: BaseException) -> Outcome:
  """Returns the outcome of an error that is no user error."""
  frames = traceback.extract_tb(error.__traceback__)
  at = [f'{os.path.basename(f.filename)}:{f.lineno}' for f in frames[-3:]]
  kind = type(error).__name__
  return Outcome(
    CRASHED, f'{name}: {kind}: {_line(error)} ({" < ".join(at[::-1])})'
  )


def run_program(
  name: str, program: Callable[[], Any]
) -> tuple[Outcome, str, str]:
  """Runs a program's `main`, which must end with results or a one-line error.

  Returns:
    The outcome (harmless for exit code 0), stdout, and stderr with all warnings.
  """
  out, err = io.StringIO(), io.StringIO()
  with (
    contextlib.redirect_stdout(out),
    contextlib.redirect_stderr(err),
    warnings() as logged,
  ):
    try:
      code = program()
    except SystemExit as error:
      code = error.code
    except Exception as error:
      return crash(name, error), out.getvalue(), err.getvalue()
  printed = err.getvalue().strip()
  texts = out.getvalue(), '\n'.join([printed, *logged])
  lines = [line for line in printed.split('\n') if line]
  if code in (0, None):
    return Outcome(HARMLESS), *texts
  if code == 2 and sum('error:' in line for line in lines) != 1:
    message = f'{name}: exit code 2 and {len(lines)} lines: {printed[-200:]!r}'
    return Outcome(CRASHED, message), *texts
  said = (lines or texts[0].strip().split('\n'))[-1]
  return Outcome(DETECTED, f'{name}: {said[:300]}'), *texts


@contextlib.contextmanager
def warnings() -> Iterator[list[str]]:
  """Collects the warnings that the package logs."""
  logged: list[str] = []
  handler = std_logging.Handler(std_logging.WARNING)
  handler.emit = lambda record: logged.append(record.getMessage())
  logger, verbosity = logging.get_absl_logger(), logging.get_verbosity()
  logging.set_verbosity(logging.WARNING)
  logger.addHandler(handler)
  try:
    yield logged
  finally:
    logger.removeHandler(handler)
    logging.set_verbosity(verbosity)


def differences(
  found: Mapping[str, Any], expected: Mapping[str, Any]
) -> list[str]:
  """Returns the names of values that are missing, unexpected or different."""
  names = sorted(found.keys() | expected.keys())
  return [n for n in names if not _same(found.get(n), expected.get(n))]


def _same(left: Any, right: Any) -> bool:
  if isinstance(left, np.ndarray) and isinstance(right, np.ndarray):
    return (left.dtype, left.shape) == (right.dtype, right.shape) and (
      left.tobytes() == right.tobytes()
    )
  return type(left) is type(right) and left == right


def _line(error: BaseException) -> str:
  return ' '.join(str(error).split())[:200]
