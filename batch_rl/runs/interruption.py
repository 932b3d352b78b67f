"""Stopping a run by SIGTERM or Ctrl-C, after a checkpoint."""

import contextlib
import os
import signal
import threading
from collections.abc import Iterator


class Interrupted(Exception):  # noqa: N818  (nothing went wrong)
  """Raised when a run stops on request; the message names the position."""


class Interruption:
  """A request to stop.

  Attributes:
    requested: Whether a signal has arrived.
  """

  requested = False


def _write_line(text: str, stderr: int = 2) -> None:
  """Writes a line to stderr; unlike logging, it is safe in a signal handler."""
  os.write(stderr, f'{text}\n'.encode())


def exit_on_sigterm() -> None:
  """Makes SIGTERM end the program with exit code 0 until `listen` is entered.

  Until then there is nothing to save. The program ends at once: after an exception,
  Python's exit could wait forever for a thread that was just starting.
  """
  if threading.current_thread() is not threading.main_thread():
    return
  stderr = os.dup(2)  # fd 2 is redirected while TensorFlow is imported

  def leave(number, frame):
    del number, frame
    _write_line(
      'Stopped while starting; the same command starts again.', stderr
    )
    os._exit(0)

  signal.signal(signal.SIGTERM, leave)


@contextlib.contextmanager
def listen() -> Iterator[Interruption]:
  """Treats SIGTERM and SIGINT as requests to stop; a second Ctrl-C stops at once.

  Python handles signals in the main thread only; in other threads this does
  nothing.
  """
  interruption = Interruption()
  if threading.current_thread() is not threading.main_thread():
    yield interruption
    return

  def request(number, frame):
    del frame
    if interruption.requested and number == signal.SIGINT:
      raise KeyboardInterrupt
    interruption.requested = True
    _write_line(
      f'Asked to stop ({signal.Signals(number).name}): saving. Another Ctrl-C '
      'stops at once.'
    )

  before = {
    number: signal.signal(number, request)
    for number in (signal.SIGTERM, signal.SIGINT)
  }
  try:
    yield interruption
  finally:
    for number, handler in before.items():
      signal.signal(number, handler)
