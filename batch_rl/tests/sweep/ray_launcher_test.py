"""The parts of the Ray launcher that need no cluster; see `main_test` for the rest."""

import signal
import types

import pytest

from batch_rl.sweep import cells, plan, ray_launcher
from batch_rl.tests.sweep import made_up_sweeps


@pytest.fixture
def machines(monkeypatch):
  nodes = [
    {'Alive': True, 'Resources': {'CPU': 16.0, 'GPU': 2.0, 'memory': 60e9}},
    {'Alive': True, 'Resources': {'CPU': 7.0, 'memory': 30e9}},
    {'Alive': False, 'Resources': {'CPU': 99.0, 'GPU': 9.0, 'memory': 1e12}},
  ]
  monkeypatch.setattr(ray_launcher.ray, 'nodes', lambda: nodes)
  return nodes


@pytest.mark.parametrize(
  ('needs', 'capacities'),
  [
    (dict(cpus=1), [16, 7]),
    (dict(cpus=1, gpus=0.25), [8, 0]),
    (dict(cpus=1, memory_gb=20), [3, 1]),
  ],
)
def test_capacities_of_a_cluster(machines, needs, capacities):
  assert ray_launcher._capacities(made_up_sweeps.make(**needs)) == capacities


def test_a_cell_too_large_for_the_cluster(machines):
  needs = made_up_sweeps.make(cpus=8, gpus=3, memory_gb=5)
  with pytest.raises(ray_launcher.DoesNotFitError) as error:
    ray_launcher._capacities(needs)
  assert 'needs cpus=8, gpus=3, memory_gb=5,' in str(error.value)
  assert 'cpus=7, gpus=0, memory_gb=30' in str(error.value)


def test_a_missing_cluster():
  with pytest.raises(
    ValueError, match='no Ray cluster at 127.0.0.1:1: .*refused'
  ):
    ray_launcher.slots(made_up_sweeps.make(), '127.0.0.1:1')


def test_the_sweep_keeps_its_sigterm_handler(tmp_path, monkeypatch):
  """`ray.init` installs a handler that ends the process."""
  ray = ray_launcher.ray
  monkeypatch.setattr(
    ray, 'init', lambda *_, **__: signal.signal(signal.SIGTERM, signal.SIG_DFL)
  )
  monkeypatch.setattr(ray, 'shutdown', lambda: None)
  machine = {'Alive': True, 'Resources': {'CPU': 4.0, 'memory': 1e12}}
  monkeypatch.setattr(ray, 'nodes', lambda: [machine])
  received = []
  before = signal.signal(signal.SIGTERM, lambda *_: received.append(True))
  try:
    assert ray_launcher.slots(made_up_sweeps.make(base_dir=tmp_path), None) > 0
    signal.raise_signal(signal.SIGTERM)
  finally:
    signal.signal(signal.SIGTERM, before)
  assert received == [True]


def test_a_failing_cell_is_tried_retries_plus_one_times(tmp_path, monkeypatch):
  """Whether its program ends, or its worker: Ray's retries are not added."""

  def remote(max_retries, **_):
    def make_task(function):
      def call(*arguments, **names):
        for _ in range(max_retries + 1):
          try:
            return [function(*arguments, **names)]
          except WorkerLost:
            pass
        return []

      task = types.SimpleNamespace(remote=lambda *a, **k: id(call(*a, **k)))
      return types.SimpleNamespace(options=lambda **_: task)

    return make_task

  def execute(*_):
    executions.append(1)
    if len(executions) % 2:
      raise WorkerLost
    return 1

  executions = []
  ray = ray_launcher.ray
  monkeypatch.setattr(ray, 'remote', remote)
  monkeypatch.setattr(ray, 'wait', lambda waiting, **_: (waiting, []))
  monkeypatch.setattr(ray, 'get', lambda _: None)
  monkeypatch.setattr(cells, '_execute', execute)
  monkeypatch.setattr(cells, '_describe_exit', lambda *_: 'exit code 1')
  cell = plan.Cell('one', 'offline', str(tmp_path), ())
  sweep = made_up_sweeps.make(cell, base_dir=tmp_path, retries=3)
  for sweeps in (1, 2):
    ray_launcher._run(sweep, [cell], lambda: False)
    assert len(executions) == 4 * sweeps
    assert cells.status(cell).state == cells.FAILED


class WorkerLost(Exception):
  """Stands for the end of a worker's process."""
