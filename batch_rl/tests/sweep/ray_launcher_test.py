"""The parts of the Ray launcher that need no cluster; see `main_test` for the rest."""

import signal

import pytest

from batch_rl.sweep import ray_launcher
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
