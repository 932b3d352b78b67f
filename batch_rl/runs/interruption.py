"""Stopping a run by SIGTERM or Ctrl-C, after a checkpoint."""

import contextlib
import os
import signal
import threading
from collections.abc import Iterator


class Interrupted(Exception):  # noqa: N818  (nothing went wrong)
  """Raised when a run stops on request; the message has the position."""


class Interruption:
  """A request to stop.

  Attributes:
    requested: Whether a signal has arrived.
  """

  requested = False


def _say(text: str, stderr: int = 2) -> None:
  """Writes a line to stderr; a logging call may be what the signal interrupts."""
  os.write(stderr, f'{text}\n'.encode())


def leave_at_sigterm() -> None:
  """Lets SIGTERM end the program with exit code 0 until `listen` is entered.

  There is nothing to save before. The program ends at once: after an exception,
  Python's exit could wait forever for a thread that was just starting.
  """
  if threading.current_thread() is not threading.main_thread():
    return
  stderr = os.dup(2)  # fd 2 is redirected while TensorFlow is imported

  def leave(number, frame):
    del number, frame
    _say('Stopped while starting; the same command starts again.', stderr)
    os._exit(0)

  signal.signal(signal.SIGTERM, leave)


@contextlib.contextmanager
def listen() -> Iterator[Interruption]:
  """Takes SIGTERM and SIGINT as requests to stop; a second Ctrl-C stops at once.

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
    _say(
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
