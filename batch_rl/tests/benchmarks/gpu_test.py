"""The table of `benchmarks.gpu`: its rows, failures, and a plan of known parameters."""

import sys
from unittest import mock

import gin
import pytest

from batch_rl.fixed_replay import run_experiment as _offline  # noqa: F401
from batch_rl.runs.bindings import settings
from benchmarks import gpu, gpu_updates

WANTED = gpu.Measurement('dqn', cells=2)
ANSWERS = """
import sys
print('ready', flush=True)
seconds = float(sys.stdin.readline())
print('{"rate": 20.0, "processors": 0.5}', flush=True)
"""


def measured(monkeypatch, code, slowest_start=20.0):
  monkeypatch.setattr(gpu, '_PROGRAM', [sys.executable, '-c', code])
  monkeypatch.setattr(gpu, '_SLOWEST_START', slowest_start)
  return gpu.measure(WANTED, 'data', 0.0, 4)


def test_cells_are_measured_at_once_and_summed(monkeypatch):
  found = measured(monkeypatch, ANSWERS)
  each, together = gpu.rows(WANTED, found, 40.0)
  assert len(found) == 2
  assert each[1:3] == ['20.0', '0.50 x'] and together[1:3] == ['40.0', '1.00 x']


@pytest.mark.parametrize(
  ('code', 'reason', 'slowest_start'),
  [
    ('raise SystemExit("no memory")', 'exit code 1: no memory', 20.0),
    ('print(\'{"failed": "ValueError: no"}\')', 'ValueError: no', 20.0),
    ('print("ready", flush=True); raise OSError("late")', 'late', 20.0),
    ('input()', 'no answer', 0.01),
  ],
)
def test_a_failure_is_a_row_with_its_reason(
  monkeypatch, code, reason, slowest_start
):
  found = measured(monkeypatch, code, slowest_start)
  ((name, *cells, note),) = gpu.rows(WANTED, found, 1.0)
  assert name == 'dqn' and set(cells) == {''}
  assert reason in note


def test_an_agent_is_measured():
  bindings = {
    'WrappedFixedReplayBuffer.batch_size': 2,
    'FixedReplayDQNAgent.updates_per_run': 2,
    'FixedReplayBuffer.num_buffers': 1,
  }
  with mock.patch.multiple(gpu_updates, _MOST=4):
    found = gpu_updates.prepare(
      'dqn', 'data/Pong/1/replay_logs', bindings, False, True
    )(0.0)
  names = {'rate', 'processors', 'waiting', 'constant'}
  assert names <= found.keys() <= names | {'memory'}
  assert all(value > 0 for value in found.values())
  [row] = gpu.rows(gpu.Measurement('dqn'), [found], found['rate'])
  assert row[2] == '1.00 x' and row[3]


def test_the_bindings_of_the_plan_are_parameters():
  for wanted in gpu.plan(has_gpu=True, processors=8):
    for name, value in wanted.bindings.items():
      parameter = name.rpartition('.')[2]
      if parameter in settings.SETTINGS:  # otherwise the row says so
        gin.bind_parameter(name, value)
        assert settings.SETTINGS[parameter].accepts(value)
