"""Stopping a run by SIGTERM or Ctrl-C, after a checkpoint."""

import contextlib
import os
import signal
import threading
from collections.abc import Iterator


class Interrupted(Exception):  # noqa: N818  (nothing went wrong)
  """Raised when a run stops on request; the message names the position.

  Args:
    message: Message for the user.
    number: Number of the signal.

  Attributes:
    exit_code: Exit code of the program, 128 + the number of the signal as in shells:
      143 for SIGTERM, 130 for Ctrl-C.
  """

  def __init__(self, message: str, number: int):
    super().__init__(message)
    # Not 0, which starts the jobs that wait for the end of this one.
    self.exit_code = 128 + number


class Interruption:
  """A request to stop.

  Attributes:
    number: Number of the first signal; 0 before.
  """

  number = 0


def exit_on_sigterm() -> None:
  """Makes SIGTERM end the program with exit code 143 until `listen` is entered.

  Until then there is nothing to save. The program ends at once: after an exception,
  Python's exit could wait forever for a thread that was just starting.
  """
  if threading.current_thread() is threading.main_thread():
    signal.signal(signal.SIGTERM, lambda number, _: os._exit(128 + number))


@contextlib.contextmanager
def listen(response: str = 'Saving before the stop') -> Iterator[Interruption]:
  """Treats SIGTERM and SIGINT as requests to stop; a second Ctrl-C stops at once.

  Python handles signals in the main thread only; in other threads this does
  nothing.

  Args:
    response: First words of the message for the user.
  """
  interruption = Interruption()

  def request(number, _):
    if interruption.number and number == signal.SIGINT:
      raise KeyboardInterrupt
    interruption.number = interruption.number or number
    name = signal.Signals(number).name
    # Unlike logging, `os.write` is safe in a signal handler.
    message = f'{response} ({name}). Ctrl-C now stops at once.\n'
    with contextlib.suppress(OSError):  # Ctrl-C has also ended `| tee`.
      os.write(2, message.encode())

  is_main = threading.current_thread() is threading.main_thread()
  numbers = (signal.SIGTERM, signal.SIGINT) if is_main else ()
  before = {number: signal.signal(number, request) for number in numbers}
  try:
    yield interruption
  finally:
    for number, handler in before.items():
      signal.signal(number, handler)
