"""Work of cells, and the time it takes."""

import concurrent.futures
import dataclasses
import time

import pytest

from batch_rl.runs import games
from batch_rl.sweep import cells, plan, workload
from batch_rl.tests import user_code
from batch_rl.tests.sweep import made_up_sweeps

WORK = workload.Workload(iterations=10, train=100.0, eval=50.0)
NOW = 1000.0
RATES = {'train': 10.0, 'eval': 25.0}  # 12 s an iteration.


def status(state, iteration=0, phase='train', done=0, rates=None, seconds=0.0):
  progress = {
    'iteration': iteration,
    'iterations': 10,
    'phase': phase,
    'done': done,
    'rates': rates or {},
    'time': NOW - seconds,
  }
  return cells.Status(state, progress=progress)


@pytest.fixture
def in_process(monkeypatch):
  """Loads gin files in this process; `main_test` has a dry run with another."""
  monkeypatch.setattr(
    concurrent.futures,
    'ProcessPoolExecutor',
    lambda workers, context: concurrent.futures.ThreadPoolExecutor(workers),
  )


@pytest.mark.parametrize(
  ('state', 'seconds'),
  [
    (cells.Status(cells.WAITING), 120),
    (status(cells.STOPPED, 3, done=40), 80),
    (status(cells.RUNNING, 3, done=40, seconds=2), 78),
    (status(cells.STOPPED, 3, 'eval', 25), 73),
    # The last episode is played to its end.
    (status(cells.STOPPED, 9, 'eval', 75), 0),
    # The cell's own rates come first.
    (status(cells.STOPPED, 0, done=50, rates={'train': 50.0}), 39),
    (status(cells.CHANGED, 3), 0),
    # A longer run than before.
    (status(cells.WAITING, 5, 'finished'), 60),
  ],
)
def test_seconds_left(monkeypatch, state, seconds):
  monkeypatch.setattr(time, 'time', lambda: NOW)
  assert WORK.seconds_left(state, RATES) == pytest.approx(seconds)


def test_rates_are_measured_or_given_or_those_of_two_cores():
  statuses = [
    status(cells.RUNNING, rates={'train': rate}) for rate in (3.0, 9.0, 5.0)
  ]
  sweep = made_up_sweeps.make()
  assert workload.rates(sweep, [])[0] == workload.TWO_CORES['offline']
  given = {'train': 200.0, 'eval': 7.0}
  sweep = made_up_sweeps.make(rates=given)
  assert workload.rates(sweep, [])[0] == given
  assert workload.rates(sweep, statuses)[0] == {'train': 5.0, 'eval': 7.0}


def test_the_work_is_read_from_the_gin_files(in_process):
  rem = 'batch_rl/fixed_replay/configs/rem.gin'
  dqn = 'batch_rl/fixed_replay/configs/dqn.gin'
  online = 'batch_rl/baselines/configs/dqn.gin'
  game = f'{games.ATARI_SETTING} = "Alien"'
  short = (
    'FixedReplayRunner.num_iterations = 3',
    'FixedReplayDQNAgent.update_period = %period',
    'period = 7',
  )
  expected = {
    plan.Cell('a', 'offline', 'a', (), (rem,)): (200, 62_500, 125_000),
    plan.Cell('b', 'offline', 'b', (), (rem,), (game,)): (200, 62_500, 125_000),
    plan.Cell('c', 'offline', 'c', (), (dqn,), short): (3, 35_715, 125_000),
    plan.Cell('d', 'online', 'd', (), (online,)): (200, 250_000, 125_000),
    plan.Cell('e', 'evaluate', 'e', (), (rem,)): (1, 0, 125_000),
  }
  works = workload.measure(made_up_sweeps.make(*expected))
  assert works == {
    cell: workload.Workload(*work) for cell, work in expected.items()
  }


def test_the_work_of_an_evaluation_of_several_checkpoints(in_process, tmp_path):
  gin_files = ('batch_rl/fixed_replay/configs/rem.gin',)
  steps = '--evaluation_steps=70'
  evaluations = [
    plan.Cell(chosen, 'evaluate', str(tmp_path / folder), arguments, gin_files)
    for chosen in ('best', '3,7,9', 'all')
    for folder in ('run', 'not trained')
    for arguments in [(steps, f'--checkpoints={chosen}')]
  ]
  for name in ('ckpt-1', 'ckpt-2', 'ckpt-2-400'):  # The last is within 3.
    user_code.write(tmp_path / 'run/checkpoints' / name / 'checkpoint.json', '')
  works = workload.measure(made_up_sweeps.make(*evaluations))
  assert [works[cell].eval for cell in evaluations] == [
    *(70, 70, 210, 210, 140, 70)
  ]


def test_the_work_of_a_users_agent(in_process, own_folder, capsys):
  module = str(user_code.write(own_folder / 'mine.py', user_code.AGENT))
  base = ('batch_rl/fixed_replay/configs/base.gin',)
  cell = plan.Cell(
    'a', 'offline', 'a', (), base, agent='mine.MyAgent', module=module
  )
  bindings = ('FixedReplayDQNAgent.update_period = 2',)
  inherited = dataclasses.replace(cell, gin_bindings=bindings)
  bindings += ('MyAgent.update_period = 5',)
  own = dataclasses.replace(inherited, gin_bindings=bindings)
  works = workload.measure(made_up_sweeps.make(cell, inherited, own))
  assert [work.train for work in works.values()] == [62_500, 125_000, 50_000]

  wrong = plan.Cell('this one', 'offline', 'a', (), ('no.gin',))
  with pytest.raises(ValueError, match=r'^this one: .*no\.gin'):
    workload.measure(made_up_sweeps.make(wrong))
  broken = user_code.write(own_folder / 'broken.py', 'import nowhere')
  wrong = dataclasses.replace(cell, agent='broken.MyAgent', module=str(broken))
  with pytest.raises(ValueError, match="^a: No module named 'nowhere'"):
    workload.measure(made_up_sweeps.make(wrong))
  assert 'broken.py", line 1' in capsys.readouterr().err
