"""The Ray launcher without a cluster; see `main_test` for one with real workers."""

import os
import signal
import types
from unittest import mock

import pytest
import ray

from batch_rl.sweep import cells, plan, ray_launcher
from batch_rl.tests.sweep import made_up_sweeps


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
  handler = signal.SIGTERM, signal.SIG_DFL
  monkeypatch.setattr(ray, 'init', lambda *_, **__: signal.signal(*handler))
  monkeypatch.setattr(ray, 'shutdown', lambda: None)


@pytest.mark.parametrize(
  ('needs', 'lack'),
  [
    (dict(cpus=16, gpus=0.25, memory_gb=60), None),
    (dict(cpus=8, gpus=3), "'CPU': 8, 'GPU': 3,.*'CPU': 7.0, 'GPU': 0,"),
    (dict(cpus=17), "'CPU': 17,"),  # The largest machine is lost.
    (dict(cpus=1, memory_gb=61), "'memory': 61"),
  ],
)
def test_a_cell_fits_on_a_machine(no_cluster, needs, lack):
  """Otherwise it would wait. The sweep keeps its handler of SIGTERM."""
  before = signal.signal(signal.SIGTERM, handler := lambda *_: None)
  sweep = made_up_sweeps.make(**needs)
  try:
    if lack:
      with pytest.raises(ValueError, match=lack):
        ray_launcher.run(sweep, [], lambda: False)
    else:
      ray_launcher.run(sweep, [], lambda: False)
    assert signal.getsignal(signal.SIGTERM) is handler
  finally:
    signal.signal(signal.SIGTERM, before)


def test_a_start_that_fails(monkeypatch):
  monkeypatch.setattr(ray, 'init', mock.Mock(side_effect=Exception('a\nb.')))
  with pytest.raises(ValueError, match='Ray did not start .*: a b. If'):
    ray_launcher.run(made_up_sweeps.make(), [], lambda: False)


def test_a_missing_cluster():
  with pytest.raises(ValueError, match='127.0.0.1:1: .*refused'):
    ray_launcher.run(made_up_sweeps.make(), [], lambda: False, '127.0.0.1:1')


def test_a_cell_runs_in_the_folder_of_the_sweep(tmp_path, monkeypatch):
  monkeypatch.chdir('/')
  cell = plan.Cell('a', 'offline', f'{tmp_path}/a', ('-c', 'open("x", "w")'))
  ray_launcher._run_cell(tmp_path, cell)
  assert (tmp_path / 'x').exists()


def test_attempts_of_cells(no_cluster, monkeypatch, tmp_path):
  """A cell whose worker is lost too often has failed."""
  ends = {
    'done': None,
    'lost': ray.exceptions.WorkerCrashedError(),
    'stopped': ray.exceptions.TaskCancelledError(),
  }
  options, submitted, cancelled = {}, [], []

  def submit(folder, cell, *arguments):
    submitted.append((folder, cell.name, arguments))
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
  planned = [plan.Cell(n, 'offline', str(tmp_path / n), ()) for n in ends]
  for cell in planned:
    (tmp_path / cell.name).mkdir()
  sweep = made_up_sweeps.make(*planned, cpus=2, gpus=0.5, retries=4)
  ray_launcher.run(sweep, planned, lambda: True)
  assert options == dict(num_cpus=2, num_gpus=0.5, memory=None, max_retries=4)
  assert submitted == [(os.getcwd(), name, (4, 2, 0.5)) for name in ends]
  assert cancelled == ['lost', 'stopped']  # Once each.
  states = [cells.status(cell).state for cell in planned]
  assert states == [cells.WAITING, cells.FAILED, cells.WAITING]
