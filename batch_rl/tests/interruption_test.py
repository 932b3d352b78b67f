import os
import signal
import threading

import pytest

from batch_rl import interruption


@pytest.mark.parametrize('number', [signal.SIGTERM, signal.SIGINT])
def test_a_signal_is_a_request(number):
  before = signal.getsignal(number)
  with interruption.listen() as listening:
    assert not listening.requested
    os.kill(os.getpid(), number)
    assert listening.requested
  assert signal.getsignal(number) == before


def test_a_second_ctrl_c_stops_at_once():
  with pytest.raises(KeyboardInterrupt), interruption.listen():
    os.kill(os.getpid(), signal.SIGINT)
    os.kill(os.getpid(), signal.SIGINT)
  with interruption.listen():  # as often as a scheduler likes
    os.kill(os.getpid(), signal.SIGTERM)
    os.kill(os.getpid(), signal.SIGTERM)


def test_other_threads_do_without():
  before = signal.getsignal(signal.SIGTERM)
  seen = []

  def work():
    with interruption.listen() as listening:
      seen.append((listening.requested, signal.getsignal(signal.SIGTERM)))

  thread = threading.Thread(target=work)
  thread.start()
  thread.join()
  assert seen == [(False, before)]


def test_sigterm_ends_what_has_not_begun():
  before = signal.getsignal(signal.SIGTERM)
  try:
    interruption.leave_at_sigterm()
    with pytest.raises(SystemExit) as left:
      os.kill(os.getpid(), signal.SIGTERM)
    assert left.value.code == 0
  finally:
    signal.signal(signal.SIGTERM, before)
