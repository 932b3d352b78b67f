"""The table of `benchmarks.gpu`: its rows, failures, and a plan of known parameters."""

import sys

import gin
import pytest

from batch_rl.fixed_replay import run_experiment as _offline  # noqa: F401
from batch_rl.runs.bindings import settings
from batch_rl.tests import shipped_agents
from benchmarks import gpu

ANSWERS = """
import sys
print('ready', flush=True)
seconds = float(sys.stdin.readline())
print('{"rate": 20.0, "processors": 0.5}', flush=True)
"""
LATE = 'print("ready", flush=True); raise OSError("late")'


@pytest.mark.parametrize(
  ('code', 'slowest_start', 'reason'),
  [
    (ANSWERS, 20.0, None),
    ('raise SystemExit("no memory")', 20.0, 'no memory'),
    ('print(\'{"failed": "ValueError: no"}\')', 20.0, 'ValueError: no'),
    (LATE, 20.0, 'late'),
    ('input()', 0.01, 'no answer'),
  ],
)
def test_cells_are_measured_or_fail(monkeypatch, code, slowest_start, reason):
  monkeypatch.setattr(gpu, '_PROGRAM', [sys.executable, '-c', code])
  monkeypatch.setattr(gpu, '_SLOWEST_START', slowest_start)
  wanted = gpu.Measurement('dqn', cells=2)
  rows = gpu.rows(wanted, gpu.measure(wanted, 'data', 0.0, 4), 40.0)
  if reason is None:
    shown = [row[1:3] for row in rows]
    assert shown == [['20.0', '0.50 x'], ['40.0', '1.00 x']]
  else:
    ((name, *cells, note),) = rows
    assert name == 'dqn' and set(cells) == {''} and reason in note


def test_the_plan_has_the_shipped_agents_and_known_parameters():
  plan = gpu.plan(has_gpu=True, processors=8)
  assert {wanted.agent for wanted in plan} == {*shipped_agents.OFFLINE}
  checked = set()
  for wanted in plan:
    for name, value in wanted.bindings.items():
      gin.bind_parameter(name, value)
      parameter = name.rpartition('.')[2]
      if parameter in settings.SETTINGS:  # otherwise the row says so
        assert settings.SETTINGS[parameter].accepts(value)
        checked.add(parameter)
  assert 'prefetch' in checked
