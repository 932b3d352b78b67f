"""Sweeps from the command line, on a Ray of their own, with workers and drivers killed.

The cells run `stub_training`. `benchmarks/faults.py` kills real training.
"""

import copy
import datetime
import os
import pathlib
import signal
import subprocess
import sys

import gin
import pytest

from batch_rl.fixed_replay import run_experiment, train
from batch_rl.runs import run_record
from batch_rl.sweep import __main__ as sweep_main
from batch_rl.sweep import (
  cells,
  plan,
  ray_launcher,
  settings_check,
  slurm_launcher,
)
from batch_rl.tests import cartpole, gin_lines
from batch_rl.tests.sweep import made_up_sweeps, stub_training
from batch_rl.utils import files

GIN_FILE = 'batch_rl/tests/sweep/configs/cartpole.gin'
SWEEP = f"""
base_dir: out
data_dir: data
games: CartPole
agents:
  dqn: {GIN_FILE}
  broken:
    gin_files: {GIN_FILE}
    gin_bindings: tf.train.AdamOptimizer.learning_rate = 1e30
gin_bindings:
  - FixedReplayRunner.num_iterations = 3
  - FixedReplayRunner.training_steps = 1200
"""
LAUNCHERS = {'ray': ray_launcher, 'slurm': slurm_launcher}
# `python -m batch_rl.sweep` with another training program.
DRIVER = """
import sys
from batch_rl.sweep import __main__, plan, settings_check
from batch_rl.utils import machine
machine.num_cpus = lambda: 1  # Ray starts a worker for each.
plan._PROGRAMS['offline'] = 'batch_rl.tests.sweep.stub_training'
settings_check.run = lambda statuses: 0  # It takes seconds.
sys.exit(__main__.main(sys.argv[1:]))
"""


def start(directory):
  root = str(pathlib.Path(stub_training.__file__).parents[3])
  line = [sys.executable, '-c', DRIVER, 'sweep.yaml']
  environment = {**os.environ, 'PYTHONPATH': root}
  pipes = dict(stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
  return subprocess.Popen(line, cwd=directory, env=environment, **pipes)


@pytest.fixture
def directory(tmp_path, monkeypatch):
  cartpole.write_log(tmp_path / 'data/CartPole/1/replay_logs')
  (tmp_path / 'sweep.yaml').write_text(SWEEP)
  monkeypatch.chdir(tmp_path)
  return tmp_path


def read(path):
  """Returns the content of a JSON file that may be missing."""
  return files.read_json(str(path)) or {}


@pytest.mark.waits
def test_a_sweep_survives_the_death_of_a_worker_and_of_its_driver(directory):
  cell = directory / 'out/dqn/CartPole/run-1/seed-1'

  def worker(attempt):
    """Returns the process of an attempt once it trains."""

    def trains():
      record = read(cell / 'sweep-offline.json')
      training = read(cell / 'progress.json').get('done')
      return training and record['attempts'] == attempt

    made_up_sweeps.wait_for(trains)
    return int(read(cell / 'sweep-offline.json')['where'].split()[-1])

  hold = directory / 'data/CartPole/1' / stub_training.HOLD
  hold.touch()
  with start(directory) as driver:
    os.kill(worker(1), signal.SIGKILL)
    with start(directory) as second:
      _, errors = second.communicate(timeout=120)
    assert second.returncode == 2 and str(driver.pid) in errors
    worker(2)
    driver.kill()
  assert 0 < read(cell / 'state.json')['step'] < stub_training.STEPS
  hold.unlink()
  with start(directory) as resumed:
    output, errors = resumed.communicate(timeout=300)
  assert resumed.returncode == 1
  broken = [line for line in errors.split('\n') if line[:6] == 'broken']
  assert len(broken) == 1
  assert 'exit code 2' in broken[0] and 'The loss is nan' in broken[0]
  assert '1 failed, 1 done of 2' in output
  assert read(cell / 'state.json')['step'] == stub_training.STEPS


def test_the_training_program_accepts_a_cells_command(directory):
  cell, _ = plan.read('sweep.yaml', {}).cells
  assert cell.arguments[1] == train.__name__
  flags = copy.deepcopy(train.FLAGS)
  assert flags(['train', *cell.arguments[2:]]) == ['train']
  assert flags.base_dir == cell.directory
  assert flags.replay_dir == cell.replay_dir
  assert flags.seed == 1
  gin_lines.load(flags.gin_files, flags.gin_bindings)
  bound = gin.get_bindings(run_experiment.FixedReplayRunner)
  assert (bound['num_iterations'], bound['training_steps']) == (3, 1200)


def test_a_dry_run_shows_the_plan(directory, capsys, monkeypatch):
  monkeypatch.setitem(sys.modules, ray_launcher.__name__, None)  # without Ray
  assert sweep_main.main(['sweep.yaml', '--runs=1-2', '--dry_run']) == 0
  output = capsys.readouterr().out
  assert 'dqn CartPole 1 seed 1: waiting, in ' in output
  assert 'python -um batch_rl.fixed_replay.train --base_dir=' in output
  assert 'MISSING: ' in output  # Run 2.
  assert '4 waiting of 4' in output
  # Four cells of three iterations: 1,200 updates, 20 agent steps of evaluation.
  seconds = round(4 * 3 * (1200 / 28 + 20 / 1100))
  assert f'{datetime.timedelta(seconds=seconds)}, one cell after' in output
  assert '14,400 updates and 240 agent steps' in output
  assert not (directory / 'out').exists()
  assert sweep_main.main(['sweep.yaml', '--status']) == 0
  assert '2 waiting of 2' in ' '.join(capsys.readouterr().out.split())


@pytest.mark.parametrize(
  ('terminal', 'launcher', 'response'),
  [('', 'ray', b'Saving'), ('1', 'slurm', b'Leaving the jobs')],
)
def test_progress_is_shown_until_the_user_stops(
  directory, monkeypatch, capsys, terminal, launcher, response
):
  """A terminal shows a table, a log has lines. Changed code is named, not run."""

  def run(sweep, left, watch):
    assert [cell.name for cell in left] == ['broken CartPole 1 seed 1']
    assert not watch()
    made_up_sweeps.write_record(left[0], cells.FAILED)
    signal.raise_signal(signal.SIGINT)
    assert watch()

  monkeypatch.setattr(LAUNCHERS[launcher], 'run', run)
  monkeypatch.setattr(settings_check, 'run', lambda statuses: 0)
  written = []
  monkeypatch.setattr(os, 'write', lambda _, text: written.append(text))
  monkeypatch.setenv('FORCE_COLOR', terminal)
  done, _ = plan.read('sweep.yaml', {}).cells
  made_up_sweeps.write_record(done, cells.DONE, inputs={'mine.py': 'old'})
  with run_record.released_locks(), monkeypatch.context() as patch:
    patch.setattr(settings_check, 'run', lambda statuses: 3)
    assert sweep_main.main(['sweep.yaml', f'--launcher={launcher}']) == 3
  assert sweep_main.main(['sweep.yaml', f'--launcher={launcher}']) == 1
  output, errors = capsys.readouterr()
  assert written[0].startswith(response)
  assert output.rstrip().endswith('out: 1 failed, 1 changed of 2')
  assert 'broken CartPole 1 seed 1: failed' in errors and 'log: ' in errors
  assert ('last evaluation' in output) == bool(terminal)
  line = 'dqn CartPole 1 seed 1: mine.py has changed'
  assert (line in output) == (not terminal) and line in errors


@pytest.mark.parametrize(
  ('flags', 'message'),
  [
    (['--runs', '1-9'], '8 of 9 runs'),
    (['--runs', '7-3'], 'runs=7-3'),
    (['--job', 'train'], "'train'"),
    (['--base_dir', 'gs://bucket/out'], 'gs://bucket/out'),
    (['--address', 'nowhere:1', '--launcher=slurm'], '--launcher=ray'),
    (['--address', ''], '--address is empty'),
    (['--gin_bindings', 'A.b=1', '--job=evaluate'], 'A.b=1 has no effect'),
    (['--games=Pong', '--games', 'Pong'], 'Two cells'),
  ],
)
def test_a_mistake_is_reported_in_one_line(directory, capsys, flags, message):
  assert sweep_main.main(['sweep.yaml', *flags]) == 2
  errors = capsys.readouterr().err
  assert message in errors and errors.count('\n') == 1


def test_a_file_after_a_list_is_not_one_of_its_values(capsys):
  assert sweep_main.main(['--games', 'Pong', 'sweep.yaml']) == 2
  assert 'give the file before the flags' in capsys.readouterr().err
