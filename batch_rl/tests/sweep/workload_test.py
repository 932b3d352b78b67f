"""What cells have to do, and how long it takes."""

import pytest

from batch_rl.sweep import cells, plan, projection
from batch_rl.tests.sweep import sweeps

WORK = projection.Work(iterations=10, train=100.0, eval=50.0)
RATES = {'train': 10.0, 'eval': 25.0}  # 12 s an iteration


def status(state, iteration=0, phase='train', done=0, rates=None, seconds=0.0):
  progress = {
    'iteration': iteration,
    'iterations': 10,
    'phase': phase,
    'done': done,
    'rates': rates or {},
  }
  return cells.Status(state, progress=progress, seconds=seconds)


@pytest.mark.parametrize(
  ('where', 'seconds'),
  [
    (cells.Status(cells.WAITING), 120),
    (status(cells.STOPPED, 3), 84),
    (status(cells.STOPPED, 3, done=40), 80),
    (status(cells.RUNNING, 3, done=40, seconds=2), 78),
    (status(cells.STOPPED, 3, 'eval', 25), 73),
    (status(cells.STOPPED, 9, 'eval', 50), 0),
    (
      status(cells.STOPPED, 9, 'eval', 75),
      0,
    ),  # episodes are played to their end
    # Its own rates, where it has any.
    (status(cells.STOPPED, 0, done=50, rates={'train': 50.0}), 39),
    (status(cells.DONE, 10, 'finished'), 0),
    # It did less before, and is to go on.
    (status(cells.WAITING, 5, 'finished'), 60),
  ],
)
def test_what_is_left(where, seconds):
  assert WORK.seconds_left(where, RATES) == pytest.approx(seconds)


def test_rates_are_given_or_seen_or_those_of_two_cores():
  seen = [
    status(cells.RUNNING, rates={'train': rate}) for rate in (3.0, 9.0, 5.0)
  ]
  assert (
    projection.rates(sweeps.make(), [])[0] == projection.TWO_CORES['offline']
  )
  rates, origin = projection.rates(sweeps.make(), seen)
  assert rates['train'] == 5
  assert 'measured in this sweep' in origin
  rates, origin = projection.rates(sweeps.make(rates={'train': 200.0}), seen)
  assert rates['train'] == 200
  assert origin == 'given by the sweep'


def test_the_work_is_that_of_the_gin_files():
  folder = 'batch_rl/{}/configs/{}.gin'
  rem = folder.format('fixed_replay', 'rem')
  dqn = folder.format('fixed_replay', 'dqn')
  online = folder.format('baselines', 'dqn')
  paper = plan.Cell('a', 'offline', 'a', (), (rem,))
  game = plan.Cell('b', 'offline', 'b', (), (rem,), (f'{plan.GAME} = "Alien"',))
  short = plan.Cell(
    'c',
    'offline',
    'c',
    (),
    (dqn,),
    (
      'FixedReplayRunner.num_iterations = 3',
      'FixedReplayDQNAgent.update_period = %period',
      'period = 7',
    ),
  )
  logged = plan.Cell('d', 'online', 'd', (), (online,))
  evaluated = plan.Cell('e', 'evaluate', 'e', (), (rem,))
  fewer = plan.Cell('f', 'evaluate', 'f', ('--evaluation_steps=70',), (rem,))
  works = projection.measure(
    sweeps.make(paper, game, short, logged, evaluated, fewer)
  )
  assert works[paper] == projection.Work(200, 62_500, 125_000)
  assert works[game] == works[paper]
  assert works[short] == projection.Work(3, -(-250_000 // 7), 125_000)
  assert works[logged] == projection.Work(200, 250_000, 125_000)
  assert works[evaluated] == projection.Work(1, 0, 125_000)
  assert works[fewer] == projection.Work(1, 0, 70)


def test_a_wrong_configuration_is_named():
  wrong = plan.Cell('this one', 'offline', 'a', (), ('no.gin',))
  with pytest.raises(
    ValueError, match=r'^this one: There is no gin file no\.gin'
  ):
    projection.measure(sweeps.make(wrong))
