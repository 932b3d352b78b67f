"""SLURM jobs, on a fake SLURM."""

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
      directory = tmp_path / f'cell{i}'
      directory.mkdir(exist_ok=True)
      the_cells.append(made_up_sweeps.program_cell(f'cell{i}', directory, body))
    return made_up_sweeps.make(
      *the_cells, **{'base_dir': tmp_path, 'retries': 1, **kwargs}
    )

  return sweep


@pytest.fixture
def slurm(tmp_path, monkeypatch):
  folder = tmp_path / 'fake'
  fake_slurm.install(folder)
  monkeypatch.setenv('FAKE_SLURM', str(folder))
  monkeypatch.setenv('PATH', f'{folder}{os.pathsep}{os.environ["PATH"]}')
  monkeypatch.setattr(slurm_launcher, '_POLL', 0.1)
  return folder


def keep_watching():
  return False


def states(sweep):
  return [cells.status(cell).state for cell in sweep.cells]


def starts(sweep):
  return [
    pathlib.Path(cell.directory, 'starts').read_text() for cell in sweep.cells
  ]


def test_jobs_run_the_cells(make, slurm, monkeypatch):
  """A long array is split. The job of a failed cell fails, too."""
  monkeypatch.setattr(slurm_launcher, '_MAX_ARRAY', 2)
  sweep = make('', "print('no'); sys.exit(2)", 'if starts < 2: sys.exit(1)')
  assert slurm_launcher.run(sweep, sweep.cells, keep_watching)
  assert states(sweep) == [cells.DONE, cells.FAILED, cells.DONE]
  jobs = fake_slurm.jobs(slurm)
  assert jobs == ['100_0', '100_1', '101']
  made_up_sweeps.wait_for(
    lambda: (
      [(slurm / f'state-{job}').read_text() for job in jobs]
      == ['COMPLETED', 'FAILED', 'COMPLETED']
    )
  )


def test_the_same_command_finds_its_jobs_again(make, slurm, monkeypatch):
  """It submits failed cells again, and no queued cell twice."""
  sweep = make('time.sleep(3)', 'if starts < 3: sys.exit(1)')
  assert not slurm_launcher.run(sweep, sweep.cells, lambda: True)
  made_up_sweeps.wait_for(lambda: states(sweep)[1] == cells.FAILED)
  made_up_sweeps.wait_for(
    lambda: (slurm / 'state-100_1').read_text() != 'RUNNING'
  )
  left = [
    cell for cell in sweep.cells if cells.status(cell).state != cells.DONE
  ]
  submitit.SlurmJob.watcher.clear()
  assert slurm_launcher.run(sweep, left, keep_watching)
  assert states(sweep) == [cells.DONE] * 2
  assert starts(sweep) == ['x', 'xxx']


def test_jobs_of_unknown_state_count_as_queued(make, slurm, capsys):
  """sacct may not answer; a result shows that a job has ended."""
  sweep = make('time.sleep(2)')
  assert not slurm_launcher.run(sweep, sweep.cells, lambda: True)
  fake_slurm.refuse(slurm, 'sacct', 'no accounting')
  submitit.SlurmJob.watcher.clear()
  capsys.readouterr()
  assert slurm_launcher.run(sweep, sweep.cells, keep_watching)
  output = capsys.readouterr().out
  assert '1 jobs in the queue, 0 cells submitted now' in output
  assert 'state of job 100: ' in output
  assert f'{sweep.base_dir}/slurm/submitted.json' in output
  assert (states(sweep), starts(sweep)) == ([cells.DONE], ['x'])
  assert slurm_launcher.run(sweep, sweep.cells, keep_watching)
  assert '1 cells submitted now' in capsys.readouterr().out
  assert fake_slurm.jobs(slurm) == ['100', '101']


def test_queued_cells_of_one_directory(make, slurm):
  """Other settings are refused; an evaluation is another cell."""
  training = make('time.sleep(2)')
  (cell,) = training.cells
  evaluation = dataclasses.replace(
    training, cells=(dataclasses.replace(cell, job='evaluate'),)
  )
  longer = make('time.sleep(1)')
  assert not slurm_launcher.run(training, training.cells, lambda: True)
  submitit.SlurmJob.watcher.clear()
  with pytest.raises(ValueError, match='cell0 .*cancel job 100 by scancel'):
    slurm_launcher.run(longer, longer.cells, keep_watching)
  assert not slurm_launcher.run(evaluation, evaluation.cells, lambda: True)
  submitit.SlurmJob.watcher.clear()
  assert slurm_launcher.run(training, training.cells, keep_watching)
  made_up_sweeps.wait_for(lambda: states(evaluation) == [cells.DONE])
  assert fake_slurm.jobs(slurm) == ['100', '101']


def test_a_refusal_of_sbatch_is_one_line(make, slurm, capsys):
  fake_slurm.refuse(slurm, 'sbatch', 'sbatch: error: invalid\npartition')
  sweep = make('')
  with pytest.raises(ValueError, match='1 jobs: .*invalid partition'):
    slurm_launcher.run(sweep, sweep.cells, keep_watching)
  assert not capsys.readouterr().err


def test_a_preempted_job_saves_and_resumes(make, slurm):
  sweep = make(
    made_up_sweeps.WAITS, made_up_sweeps.WAITS, gpus=0.5
  )  # They share a job.
  preempted = []

  def watch():
    ready = [os.path.exists(f'{cell.directory}/ready') for cell in sweep.cells]
    if all(ready) and not preempted:
      (job,) = fake_slurm.jobs(slurm)
      fake_slurm.preempt(slurm, job)
      preempted.append(job)
    return False

  assert slurm_launcher.run(sweep, sweep.cells, watch)
  assert preempted
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

  assert slurm_launcher.run(sweep, sweep.cells, watch)
  assert states(sweep) == [cells.DONE] * 2
  assert starts(sweep) == ['xx', 'x']


def test_settings_reach_slurm(make, slurm, tmp_path):
  sweep = make(
    '',
    cpus=3,
    gpus=0.25,
    memory_gb=5,
    slurm={'slurm_partition': 'long', 'timeout_min': 7},
  )
  assert slurm_launcher.run(sweep, sweep.cells, keep_watching)
  (file,) = slurm.glob('file-*')
  text = pathlib.Path(file.read_text()).read_text()
  for line in (
    '--cpus-per-task=12',
    '--gpus-per-node=1',
    '--mem=20GB',
    '--partition=long',
    '--time=7',
  ):
    assert f'#SBATCH {line}\n' in text


def test_an_unknown_slurm_setting(make, slurm):
  sweep = make('', slurm={'partitoin': 'gpu'})
  with pytest.raises(ValueError, match='slurm: .*partitoin'):
    slurm_launcher.run(sweep, sweep.cells, keep_watching)
  assert not fake_slurm.jobs(slurm)


def test_without_slurm(make, monkeypatch, tmp_path):
  monkeypatch.setenv('PATH', str(tmp_path))
  sweep = make('')
  with pytest.raises(ValueError, match='slurm cluster'):
    slurm_launcher.run(sweep, sweep.cells, keep_watching)
