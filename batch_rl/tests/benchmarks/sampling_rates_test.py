"""Rates of threads, and the processors that follow from them."""

import threading

import pytest

from benchmarks import sampling_rates


@pytest.mark.parametrize('count', [1, 3])
def test_all_calls_of_all_threads_count(count):
  calls = []
  found = sampling_rates.rate(
    lambda: calls.append(threading.get_ident()), count, 0.01
  )
  assert len(set(calls)) == count
  assert found.batches > 0 and found.processor >= 0


def test_an_error_of_a_thread_is_raised():
  def draw():
    raise ValueError('damaged')

  with pytest.raises(ValueError, match='damaged'):
    sampling_rates.rate(draw, 2, 0.0)


def test_processors_are_rounded_up(capsys):
  found = sampling_rates.project({('Pong', 32): 0.0011}, 'windows')
  assert [found['Pong', 32, n] for n in sampling_rates.UPDATES] == [1, 1, 2, 3]
  assert '| Pong, 32 ' in capsys.readouterr().out
