"""Asking a run to stop: SIGTERM, or Ctrl-C, and it saves its state first."""

import contextlib
import os
import signal
import threading
from collections.abc import Iterator


class Interrupted(Exception):  # noqa: N818  (nothing went wrong)
  """A run has stopped because it was asked to; the message says where."""


class Interruption:
  """Whether a run has been asked to stop."""

  requested = False


def _say(text: str, stderr: int = 2) -> None:
  """Not by logging: what is interrupted may be just that."""
  os.write(stderr, f'{text}\n'.encode())


def leave_at_sigterm() -> None:
  """Until a run listens, there is nothing to save: SIGTERM ends the program, with 0.

  At once, and whatever it does: an exception may meet a thread that is just
  starting, for which Python's exit would then wait for ever.
  """
  if threading.current_thread() is not threading.main_thread():
    return
  stderr = os.dup(2)  # which is caught while TensorFlow is imported

  def leave(number, frame):
    del number, frame
    _say('Stopped while starting; the same command starts again.', stderr)
    os._exit(0)

  signal.signal(signal.SIGTERM, leave)


@contextlib.contextmanager
def listen() -> Iterator[Interruption]:
  """Takes SIGTERM and SIGINT as requests; a second Ctrl-C stops at once.

  Python leaves signals to the main thread: in others nothing is changed.
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
