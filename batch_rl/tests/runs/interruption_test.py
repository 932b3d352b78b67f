import concurrent.futures
import os
import signal
import sys
from unittest import mock

import pytest

from batch_rl.runs import interruption
from batch_rl.tests import programs


@pytest.mark.parametrize('number', [signal.SIGTERM, signal.SIGINT])
def test_a_signal_requests_a_stop(number, monkeypatch):
  monkeypatch.setattr(os, 'write', mock.Mock(side_effect=BrokenPipeError))
  before = signal.getsignal(number)
  with interruption.listen() as listening:
    assert listening.number == 0
    os.kill(os.getpid(), number)
    assert listening.number == number
  assert signal.getsignal(number) == before


def test_a_second_ctrl_c_stops_at_once():
  with pytest.raises(KeyboardInterrupt), interruption.listen():
    os.kill(os.getpid(), signal.SIGINT)
    os.kill(os.getpid(), signal.SIGINT)
  with interruption.listen():  # A scheduler may repeat it.
    os.kill(os.getpid(), signal.SIGTERM)
    os.kill(os.getpid(), signal.SIGTERM)


def test_other_threads_install_no_handler():
  def work():
    with interruption.listen() as listening:
      return listening.number, signal.getsignal(signal.SIGTERM)

  with concurrent.futures.ThreadPoolExecutor(1) as thread:
    found = thread.submit(work).result()
  assert found == (0, signal.getsignal(signal.SIGTERM))


# The signal arrives after a pool has started a thread, but before it has recorded
# the start.
_STARTS_A_THREAD = """
import concurrent.futures, os, signal, threading
from batch_rl.runs import interruption
class Thread(threading.Thread):
  def start(self):
    super().start()
    os.kill(os.getpid(), signal.SIGTERM)
threading.Thread = Thread
interruption.exit_on_sigterm()
pool = concurrent.futures.ThreadPoolExecutor(1)
pool.submit(print, 'running').result()
print('not stopped')
"""


def test_sigterm_ends_a_program_that_is_starting():
  left = programs.run([sys.executable, '-c', _STARTS_A_THREAD])
  assert left.returncode == 143
  assert 'not stopped' not in left.stdout
