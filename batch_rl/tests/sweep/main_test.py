"""Sweeps as typed: real runs, on a Ray of their own, that lose workers and drivers."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest

from batch_rl.sweep import __main__ as sweep_main
from batch_rl.tests import cartpole

GIN_FILE = 'batch_rl/tests/sweep/configs/cartpole.gin'
LONG = {
  'FixedReplayRunner.num_iterations': 3,
  'FixedReplayRunner.training_steps': 1200,
  'Checkpoints.every_steps': 100,
}
SWEEP = f"""
base_dir: out
data_dir: data
games: CartPole
agents:
  dqn: {GIN_FILE}
  broken:
    gin_files: {GIN_FILE}
    # The loss is infinite at once.
    gin_bindings: tf.train.AdamOptimizer.learning_rate = 1e30
gin_bindings:
  - run_seed.deterministic_ops = False
"""


def sweep(*flags):
  return [sys.executable, '-m', 'batch_rl.sweep', 'sweep.yaml', *flags]


def run(line, cwd):
  return subprocess.run(
    line, cwd=cwd, capture_output=True, text=True, check=False, timeout=300
  )


@pytest.fixture
def directory(tmp_path):
  cartpole.write_log(tmp_path / 'data/CartPole/1/replay_logs')
  bindings = ''.join(f'  - {k} = {v}\n' for k, v in LONG.items())
  (tmp_path / 'sweep.yaml').write_text(SWEEP + bindings)
  return tmp_path


def read(path):
  """JSON that is being written again and again."""
  try:
    return json.loads(path.read_text())
  except (OSError, ValueError):
    return {}


def wait_for(condition, what):
  end = time.monotonic() + 120
  while not (found := condition()):
    assert time.monotonic() < end, what
    time.sleep(0.1)
  return found


def evaluations(base_dir):
  return {p.name: p.read_text() for p in (base_dir / 'evaluations').iterdir()}


@pytest.mark.waits
def test_workers_and_drivers_are_killed_and_nothing_is_lost(directory):
  cell = directory / 'out/dqn/CartPole/run-1/seed-1'

  def worker(attempt):
    record = read(cell / 'sweep-offline.json')
    training = read(cell / 'progress.json').get('done')
    if training and record['attempts'] == attempt:
      return int(record['where'].split()[-1])
    return None

  with subprocess.Popen(sweep(), cwd=directory) as driver:
    os.kill(wait_for(lambda: worker(1), 'first worker'), signal.SIGKILL)
    second = run(sweep(), directory)
    assert second.returncode == 2
    assert f'is swept by process {driver.pid}' in second.stderr
    wait_for(lambda: worker(2), 'second worker')
    driver.kill()
  ended = run(sweep(), directory)
  assert ended.returncode == 1
  broken = [line for line in ended.stderr.split('\n') if line[:6] == 'broken']
  assert len(broken) == 1
  assert 'exit code 2' in broken[0]
  assert 'The loss is nan at update' in broken[0]
  assert '1 failed, 1 done of 2' in ended.stdout
  # What it would have been without a sweep.
  alone = json.loads((cell / 'sweep-offline.json').read_text())['arguments']
  alone[2] = f'--base_dir={directory / "alone"}'
  assert run([sys.executable, *alone], directory).returncode == 0
  assert evaluations(cell) == evaluations(directory / 'alone')


@pytest.mark.parametrize(
  ('flags', 'said'),
  [
    (['--games', 'Pnog'], "'Pnog'"),
    (['--agents', 'rme'], 'did you mean rem'),
    (['--runs', '1-9'], '8 of 9 runs cannot be read'),
    (['--runs', '7-3'], 'runs=7-3'),
    (['--job', 'train'], "Unknown job 'train'"),
    (['--base_dir', 'gs://bucket/out'], 'all machines share'),
    (['--cpus', '0'], 'cpus=0'),
    (['--address', 'nowhere:1', '--launcher=slurm'], '--launcher=ray'),
  ],
)
def test_mistakes_are_told_in_a_line(
  directory, monkeypatch, capsys, flags, said
):
  monkeypatch.chdir(directory)
  assert sweep_main.main(['sweep.yaml', *flags]) == 2
  told = capsys.readouterr().err
  assert said in told
  assert told.count('\n') == 1, told
