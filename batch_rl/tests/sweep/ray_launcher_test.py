"""The Ray launcher without a cluster; see `main_test` for one with real workers."""

import signal
import types

import pytest
import ray

from batch_rl.sweep import cells, plan, ray_launcher
from batch_rl.tests.sweep import made_up_sweeps
from batch_rl.utils import files


@pytest.fixture
def no_cluster(monkeypatch):
  """Replaces the cluster by three machines, of which the last is lost."""
  nodes = [
    {'Alive': True, 'Resources': {'CPU': 16.0, 'GPU': 2.0, 'memory': 60e9}},
    {'Alive': True, 'Resources': {'CPU': 7.0, 'memory': 30e9}},
    {'Alive': False, 'Resources': {'CPU': 99.0, 'GPU': 9.0, 'memory': 1e12}},
  ]
  monkeypatch.setattr(ray, 'nodes', lambda: nodes)
  # `ray.init` installs a handler that ends the process.
  monkeypatch.setattr(
    ray, 'init', lambda *_, **__: signal.signal(signal.SIGTERM, signal.SIG_DFL)
  )
  monkeypatch.setattr(ray, 'shutdown', lambda: None)


@pytest.mark.parametrize(
  ('needs', 'number'),
  [
    (dict(cpus=1), 16 + 7),
    (dict(cpus=1, gpus=0.25), 8),
    (dict(cpus=1, memory_gb=20), 3 + 1),
  ],
)
def test_slots_of_a_cluster(no_cluster, needs, number):
  """The sweep keeps its handler of SIGTERM."""
  before = signal.signal(signal.SIGTERM, handler := lambda *_: None)
  try:
    assert ray_launcher.slots(made_up_sweeps.make(**needs), None) == number
    assert signal.getsignal(signal.SIGTERM) is handler
  finally:
    signal.signal(signal.SIGTERM, before)


def test_a_cell_too_large_for_the_cluster(no_cluster):
  needs = made_up_sweeps.make(cpus=8, gpus=3, memory_gb=5)
  with pytest.raises(ray_launcher.DoesNotFitError) as error:
    ray_launcher.slots(needs, None)
  assert 'cpus=8, gpus=3, memory_gb=5,' in str(error.value)
  assert 'cpus=7, gpus=0, memory_gb=30' in str(error.value)


def test_a_missing_cluster():
  with pytest.raises(ValueError, match='127.0.0.1:1: .*refused'):
    ray_launcher.slots(made_up_sweeps.make(), '127.0.0.1:1')


def test_attempts_of_cells(no_cluster, monkeypatch, tmp_path):
  """Ray's retries are those of the cell, and a lost cell is a failed one."""
  ends = {
    'done': None,
    'lost': ray.exceptions.WorkerCrashedError(),
    'stopped': ray.exceptions.TaskCancelledError(),
  }
  options, submitted, cancelled = {}, [], []

  def submit(cell, *arguments, **more):
    submitted.append((cell.name, arguments, more))
    return cell.name

  def get(name):
    if ends[name]:
      raise ends[name]

  def remote(**chosen):
    options.update(chosen)
    task = types.SimpleNamespace(remote=submit)
    return lambda run: types.SimpleNamespace(options=lambda **_: task)

  monkeypatch.setattr(ray, 'remote', remote)
  monkeypatch.setattr(ray, 'wait', lambda names, **_: (names[:1], names[1:]))
  monkeypatch.setattr(ray, 'get', get)
  monkeypatch.setattr(ray, 'cancel', cancelled.append)
  planned = [
    plan.Cell(name, 'offline', str(tmp_path / name), ()) for name in ends
  ]
  for cell in planned:
    (tmp_path / cell.name).mkdir()
  earlier = {'arguments': [], 'state': cells.STOPPED, 'attempts': 3}
  files.write_json(plan.record_path(planned[1].directory, 'offline'), earlier)
  sweep = made_up_sweeps.make(*planned, cpus=2, gpus=0.5, retries=4)
  ray_launcher.run(sweep, planned, None, lambda: True)
  assert options == dict(num_cpus=2, num_gpus=0.5, memory=None, max_retries=4)
  assert [name for name, _, _ in submitted] == list(ends)
  assert submitted[1][1:] == ((4, 2, 0.5), {'earlier': 3})
  assert cancelled == ['lost', 'stopped']  # Once each.
  states = [cells.status(cell).state for cell in planned]
  assert states == [cells.WAITING, cells.FAILED, cells.WAITING]
