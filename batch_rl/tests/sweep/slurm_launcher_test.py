import dataclasses
import os
import pathlib
import signal
import time

import pytest
import submitit

from batch_rl.sweep import cells, slurm_launcher
from batch_rl.tests.sweep import fake_slurm, made_up_sweeps


@pytest.fixture
def make(tmp_path):
  """Returns a function that makes a sweep of cells with the given programs."""

  def sweep(*bodies, **kwargs):
    the_cells = []
    for i, body in enumerate(bodies):
      path = tmp_path / f'cell{i}'
      path.mkdir(exist_ok=True)
      the_cells.append(made_up_sweeps.program_cell(path.name, path, body))
    options = {'base_dir': tmp_path, 'retries': 1, **kwargs}
    return made_up_sweeps.make(*the_cells, **options)

  return sweep


@pytest.fixture
def slurm(tmp_path, monkeypatch):
  folder = tmp_path / 'fake'
  fake_slurm.install(folder)
  monkeypatch.setenv('FAKE_SLURM', str(folder))
  monkeypatch.setenv('PATH', f'{folder}{os.pathsep}{os.environ["PATH"]}')
  monkeypatch.setattr(slurm_launcher, '_POLL', 0.1)
  return folder


def let_go(sweep):
  """Ends programs of `made_up_sweeps.HELD`, and keeps watching."""
  for cell in sweep.cells:
    pathlib.Path(cell.directory, 'go').touch()
  return False


def states(sweep):
  return [cells.status(cell).state for cell in sweep.cells]


def starts(sweep):
  paths = [pathlib.Path(cell.directory, 'starts') for cell in sweep.cells]
  return [path.read_text() for path in paths]


def submit(sweep):
  """Submits jobs and leaves, as a driver that is stopped."""
  slurm_launcher.run(sweep, sweep.cells, lambda: True)
  submitit.SlurmJob.watcher.clear()


def test_the_same_command_finds_its_jobs_again(make, slurm, monkeypatch):
  """It submits failed cells again, and no queued cell twice.
  A long array is split. The job of a failed cell fails, too.
  """
  monkeypatch.setattr(slurm_launcher, '_MAX_ARRAY', 2)
  sweep = make('', 'if starts < 3: sys.exit(1)', made_up_sweeps.HELD)
  submit(sweep)
  state = slurm / 'state-100_1'
  made_up_sweeps.wait_for(lambda: state.read_text() == 'FAILED')
  assert states(sweep)[1] == cells.FAILED
  slurm_launcher.run(sweep, sweep.cells[1:], lambda: let_go(sweep))
  assert states(sweep) == [cells.DONE] * 3
  assert starts(sweep) == ['x', 'xxx', 'x']
  assert fake_slurm.jobs(slurm) == ['100_0', '100_1', '101', '102']


def test_jobs_of_unknown_state_count_as_queued(make, slurm, capsys):
  """sacct may not answer; a result shows that a job has ended."""
  sweep = make(made_up_sweeps.HELD)
  submit(sweep)
  fake_slurm.refuse(slurm, 'sacct', 'no accounting')
  capsys.readouterr()
  slurm_launcher.run(sweep, sweep.cells, lambda: let_go(sweep))
  output = capsys.readouterr().out
  assert '0 cells submitted now' in output and 'state of 100: ' in output
  assert (states(sweep), starts(sweep)) == ([cells.DONE], ['x'])
  slurm_launcher.run(sweep, sweep.cells, lambda: False)
  assert '1 cells submitted now' in capsys.readouterr().out
  assert fake_slurm.jobs(slurm) == ['100', '101']


def test_queued_cells_of_one_directory(make, slurm):
  """Other settings are refused; an evaluation is another cell."""
  training = make(made_up_sweeps.HELD)
  (cell,) = training.cells
  evaluated = dataclasses.replace(cell, job='evaluate')
  evaluation = dataclasses.replace(training, cells=(evaluated,))
  longer = make('')
  submit(training)
  with pytest.raises(ValueError, match='cell0 .*job 100'):
    slurm_launcher.run(longer, longer.cells, lambda: False)
  # The evaluation waits for the training only if it has begun.
  made_up_sweeps.wait_for(lambda: os.path.exists(f'{cell.directory}/starts'))
  submit(evaluation)
  slurm_launcher.run(training, training.cells, lambda: let_go(training))
  made_up_sweeps.wait_for(lambda: states(evaluation) == [cells.DONE])
  assert fake_slurm.jobs(slurm) == ['100', '101']


def test_a_preempted_job_saves_and_resumes(make, slurm):
  sweep = make(*[made_up_sweeps.WAITS] * 2, gpus=0.5)  # They share a job.
  preempted = []

  def watch():
    ready = [os.path.exists(f'{cell.directory}/ready') for cell in sweep.cells]
    if all(ready) and not preempted:
      preempted.extend(fake_slurm.jobs(slurm))
      fake_slurm.preempt(slurm, *preempted)
    return False

  slurm_launcher.run(sweep, sweep.cells, watch)
  assert preempted == ['100']
  assert states(sweep) == [cells.DONE] * 2
  assert starts(sweep) == ['xx'] * 2
  for cell in sweep.cells:
    assert os.path.exists(f'{cell.directory}/saved')


def test_a_job_saves_at_sigterm(make, slurm):
  """Many clusters pre-empt with SIGTERM, which submitit alone ignores."""
  sweep = make(made_up_sweeps.WAITS, '')
  (first, _) = sweep.cells
  sent = []

  def watch():
    if not sent and os.path.exists(f'{first.directory}/ready'):
      fake_slurm.preempt(slurm, '100_0', signal.SIGTERM)
      sent.append(signal.SIGTERM)
    elif len(sent) == 1 and states(sweep) == [cells.STOPPED, cells.DONE]:
      assert os.path.exists(f'{first.directory}/saved')
      time.sleep(0.5)
      assert (slurm / 'state-100_0').read_text() == 'RUNNING'  # It waits.
      fake_slurm.requeue(slurm, '100_0')
      sent.append(signal.SIGKILL)
    return False

  slurm_launcher.run(sweep, sweep.cells, watch)
  assert states(sweep) == [cells.DONE] * 2
  assert starts(sweep) == ['xx', 'x']


def test_settings_reach_slurm(make, slurm):
  chosen = {'slurm_partition': 'long', 'timeout_min': 7}
  sweep = make('', cpus=3, gpus=0.25, memory_gb=5, slurm=chosen)
  slurm_launcher.run(sweep, sweep.cells, lambda: False)
  (file,) = slurm.glob('file-*')
  text = pathlib.Path(file.read_text()).read_text()
  lines = ['cpus-per-task=12', 'gpus-per-node=1', 'mem=20GB', 'time=7']
  for line in [*lines, 'partition=long']:
    assert f'#SBATCH --{line}\n' in text


def test_mistakes(make, slurm, monkeypatch, capsys):
  def check(message, **settings):
    sweep = make('', **settings)
    with pytest.raises(ValueError, match=message):
      slurm_launcher.run(sweep, sweep.cells, lambda: False)
    assert not fake_slurm.jobs(slurm)

  check('partitoin', slurm={'partitoin': 'gpu'})
  fake_slurm.refuse(slurm, 'sbatch', 'sbatch: error: invalid\npartition')
  check('1 jobs: .*invalid partition')  # One line.
  monkeypatch.setenv('PATH', str(slurm.parent))
  check('slurm cluster')
  assert not capsys.readouterr().err
