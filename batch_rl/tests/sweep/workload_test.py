import batch_rl.agents  # noqa: F401  isort: skip  (before Dopamine)

import gin
import pytest

from batch_rl.baselines import agents as online
from batch_rl.baselines.run_experiment import LoggedRunner
from batch_rl.fixed_replay import agents as offline
from batch_rl.fixed_replay.run_experiment import FixedReplayRunner
from batch_rl.minatar import games as minatar
from batch_rl.runs.bindings import any_agent, bound, settings
from batch_rl.sweep import cells, plan, workload
from batch_rl.tests import gin_lines, user_code
from batch_rl.tests.sweep import made_up_sweeps
from batch_rl.utils.user_code import gin_signatures

WORK = workload.Workload(iterations=10, train=100.0, eval=50.0)
RATES = {'train': 10.0, 'eval': 25.0}  # 12 s an iteration.


def status(state, iteration=0, phase='train', done=0, rates=None):
  progress = dict(iteration=iteration, iterations=10, phase=phase, done=done)
  progress |= dict(rates=rates or {}, time=0.0)
  return cells.Status(state, progress=progress)


@pytest.mark.parametrize(
  ('state', 'seconds'),
  [
    (cells.Status(cells.WAITING), 120),
    (status(cells.STOPPED, 3, done=40), 80),
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
def test_seconds_left(state, seconds):
  assert WORK.seconds_left(state, RATES) == pytest.approx(seconds)


def test_rates_are_measured_or_given_or_those_of_two_cores():
  measured = [{'train': rate} for rate in (3.0, 9.0, 5.0)]
  statuses = [status(cells.RUNNING, rates=rates) for rates in measured]
  sweep = made_up_sweeps.make()
  assert workload.rates(sweep, []) == workload.TWO_CORES['offline']
  given = {'train': 200.0, 'eval': 7.0}
  sweep = made_up_sweeps.make(rates=given)
  assert workload.rates(sweep, []) == given
  assert workload.rates(sweep, statuses) == {'train': 5.0, 'eval': 7.0}


def work(job, gin_files, *bindings, arguments=(), directory='a'):
  cell = plan.Cell('a', job, directory, arguments, gin_files, bindings)
  found = workload.of_cell(cell)
  return found.iterations, found.train, found.eval


def test_the_work_is_read_from_the_gin_files():
  rem = 'batch_rl/fixed_replay/configs/rem.gin'
  dqn = 'batch_rl/fixed_replay/configs/dqn.gin'
  short = (
    'FixedReplayRunner.num_iterations = 3',
    'FixedReplayDQNAgent.update_period = %period',
    'period = 7',
  )
  assert work('offline', (dqn,), *short) == (3, 35_715, 125_000)
  # Parameters of other classes, although of the same names.
  others = [f'Ema.{name} = 0' for name in settings.DEFAULTS]
  others += ['LoggedRunner.training_steps = 9', 'mine.Rem.update_period = 2']
  assert work('offline', (dqn,), *short, *others) == (3, 35_715, 125_000)
  for given in ([], ['create_offline_agent.agent_name = "mine.Rem"']):
    flag = ('--agent_name=mine.Rem',) * (not given)
    assert work('offline', (), *others, *given, arguments=flag)[1] == 125_000
  assert work('evaluate', (rem,)) == (1, 0, 125_000)
  with pytest.raises(ValueError, match=r'^a: .*no\.gin'):
    work('offline', ('no.gin',))
  for number in ('3x', '1e3'):
    with pytest.raises(ValueError, match='^a: .*num_iterations'):
      work('offline', (dqn,), f'FixedReplayRunner.num_iterations = {number}')


@pytest.mark.parametrize('job', ['offline', 'online'])
def test_the_work_is_that_of_the_program(job):
  """It is read from text; the program binds it by gin."""
  agents, runner, config = {
    'offline': (offline.REGISTRY, FixedReplayRunner, minatar.OFFLINE_CONFIG),
    'online': (online.REGISTRY, LoggedRunner, minatar.ONLINE_CONFIG),
  }[job]
  paths = [*agents.configs.values(), f'{agents.config_folder}/base.gin']
  for gin_files in [(), *[(p,) for p in paths], *[(p, config) for p in paths]]:
    gin.clear_config()
    bindings = gin_lines.load(gin_files, [])
    name = bound.query(f'create_{job}_agent.agent_name') or 'dqn'
    any_agent.bind(bindings, agents, agent := agents.find(name))
    iterations, train, evaluation = (
      gin_signatures.configured_value(runner, parameter)
      for parameter in ('num_iterations', 'training_steps', 'evaluation_steps')
    )
    if job == 'offline':
      train /= gin_signatures.configured_value(agent, 'update_period')
    assert work(job, gin_files) == (iterations, train, evaluation), gin_files


def test_the_work_of_an_evaluation_of_several_checkpoints(tmp_path):
  for name in ('ckpt-1', 'ckpt-2', 'ckpt-2-400'):  # The last is within 3.
    user_code.write(tmp_path / 'checkpoints' / name / 'checkpoint.json', '')
  for chosen, number in (('best', 1), ('3,7,9', 3), ('all', 2)):
    arguments = ('--evaluation_steps=70', f'--checkpoints={chosen}')
    found = work('evaluate', (), arguments=arguments, directory=str(tmp_path))
    assert found[2] == 70 * number
