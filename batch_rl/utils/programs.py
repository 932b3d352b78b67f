"""Exit codes, one-line errors and standard streams of programs."""

import atexit
import gc
import io
import os
import sys
from collections.abc import Callable

USER_ERROR, INTERRUPTED, BROKEN_PIPE = 2, 130, 141
_NO_THREAD = "can't start new thread"  # Memory or processes are limited.


class MistakeError(ValueError):
  """An error after the program has started its work that one line explains."""


def run(program: Callable[[], int | None], prefix: str = '') -> int:
  """Runs a program, and reports a mistake of its user in one line.

  Args:
    program: Function that returns the exit code; None is 0.
    prefix: Start of an error's line, e.g. 'report: '.

  Returns:
    The exit code: 2 after a ValueError, an OSError, or without memory or threads;
    130 after Ctrl-C; 141 if the reader of the output has left, e.g. `| head`.
  """
  spare_garbage_collection()
  open_closed_streams()
  for stream in (sys.stdout, sys.stderr):
    if isinstance(stream, io.TextIOWrapper):
      # A name may have characters that the terminal has not.
      stream.reconfigure(errors='backslashreplace')
  try:
    try:
      return program() or 0
    finally:
      sys.stdout.flush()
  except BrokenPipeError:
    _discard_output()
    return BROKEN_PIPE
  except KeyboardInterrupt:
    return INTERRUPTED
  except (ValueError, OSError, MemoryError, RuntimeError) as error:
    if isinstance(error, RuntimeError) and str(error) != _NO_THREAD:
      raise
    print(f'{prefix}error: {one_line(error)}', file=sys.stderr)
    _discard_output()
    return USER_ERROR


def spare_garbage_collection() -> None:
  """Makes Python look for garbage less often in this process, and not at its end.

  Imports, and graphs of TensorFlow, make a million objects that stay. To look for garbage
  among them takes a part of the start, and a second at the end.
  """
  gc.set_threshold(50_000, 20)
  atexit.unregister(_freeze)
  atexit.register(_freeze)


def _freeze():
  """Leaves all garbage, unless a user's module is loaded: it may have an open file."""
  from batch_rl.utils.user_code import user_modules

  if not user_modules.loaded_folders():
    gc.freeze()


def one_line(error: BaseException) -> str:
  """Returns the message of an error in one line."""
  # gin appends the configurables that an exception passed through.
  text = str(error).split('\n  In call to configurable')[0]
  text = printable(' '.join(text.split()))
  if isinstance(error, MemoryError):
    return f'out of memory{text and f": {text}"}'
  if isinstance(error, OSError) and error.strerror:
    text = f'{error.filename}: {error.strerror}'.removeprefix('None: ')
    return printable(text)
  return text or type(error).__name__


def printable(text: str) -> str:
  """Returns text with escapes for control characters and for what is not Unicode."""
  return ''.join(
    c if c.isprintable() else c.encode('unicode_escape').decode() for c in text
  )


def _discard_output() -> None:
  """Discards output that cannot be written; Python would try again at exit."""
  try:
    sys.stdout.flush()
  except OSError:
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def open_closed_streams() -> None:
  """Connects standard streams that are closed to the null device.

  Otherwise the next file to be opened would take the place of stdout or stderr, and
  messages would be written into it.
  """
  for name, mode in (('stdin', 'r'), ('stdout', 'w'), ('stderr', 'w')):
    if getattr(sys, name) is None:
      # It gets the lowest free descriptor, that of the closed stream.
      stream = open(os.devnull, mode, encoding='utf-8')
      os.set_inheritable(stream.fileno(), True)
      setattr(sys, name, stream)
