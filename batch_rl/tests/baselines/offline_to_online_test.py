"""Online training from an offline run and with its data, by the programs."""

import json
import shutil

import pytest

from batch_rl.baselines import train as online
from batch_rl.dataset import run_directories
from batch_rl.dataset.checks import run_checks
from batch_rl.fixed_replay import train as offline
from batch_rl.report import run_results
from batch_rl.tests import user_code
from batch_rl.tests.minatar import runs_test
from batch_rl.tests.minatar.runs_test import GAME
from batch_rl.utils.user_code import user_modules

DATA = 'WrappedLoggedReplayBuffer.offline_dir = {!r}'
HALF = 'WrappedLoggedReplayBuffer.offline_fraction = 0.5'
SMALL = (
  GAME,
  'WrappedLoggedReplayBuffer.batch_size = 4',
  'LoggedRunner.use_legacy_logger = False',  # reports read it all the same
  'AnyAgent.min_replay_history = 20',
)


@pytest.fixture(scope='module')
def trained(tmp_path_factory):
  """Folder of a log, `data`, and of an offline run on it, `offline`."""
  folder = tmp_path_factory.mktemp('trained')
  base_dir, data = str(folder / 'random'), str(folder / 'data')
  runs_test.run(online, 'random', GAME, base_dir=base_dir, replay_log_dir=data)
  base_dir = str(folder / 'offline')
  runs_test.run(offline, 'dqn_adam', GAME, base_dir=base_dir, replay_dir=data)
  return folder


def run(base_dir, init, *bindings, agent='dqn_adam', **flags):
  given = dict(base_dir=str(base_dir), replay_log_dir=str(base_dir), **flags)
  if init:
    given['init_checkpoint_dir'] = str(init)
  runs_test.run(online, agent, *SMALL, *bindings, **given)


def test_a_run_starts_resumes_and_is_reported(trained, tmp_path, refusal):
  data, base = shutil.copytree(trained / 'data', tmp_path / 'data'), tmp_path
  base_dir, init = base / 'online', trained / 'offline'
  rows = DATA.format(str(data)), HALF
  run(base_dir, init, *rows)
  record = json.loads((base_dir / 'run.json').read_text())
  assert record['init_checkpoint_dir'] == str(init)
  assert record['init_checkpoint'] == f'{init}/checkpoints/ckpt-0/tf_ckpt-0'
  of_offline = json.loads((init / 'run.json').read_text())['data']
  assert record['data'].items() >= of_offline.items()
  assert record['data']['transitions_in_batch'] == 2
  # The log has only the run's own experience.
  logged = run_directories.as_run(str(base_dir))
  assert run_checks.verify(logged.data_dir).problems == []
  manifest = json.loads((base_dir / 'replay_logs/manifest.json').read_text())
  assert 80 <= sum(shard['rows'] for shard in manifest['shards']) < 110
  found = run_results.read_run(str(base_dir))
  assert found.agent == 'DQN (Adam), online'
  assert found.config['weights'] == "another run's"
  share = found.config['WrappedLoggedReplayBuffer.offline_fraction']
  assert share == '0.5' and found.data == ''
  assert not any('offline_dir' in name for name in found.config)
  assert found.provenance['subset_hash'] == of_offline['subset_hash']
  # It resumes with the data in another place, without the offline run.
  moved = str(shutil.move(data, tmp_path / 'moved'))
  more = 'LoggedRunner.num_iterations = 2'
  run(base_dir, init, DATA.format(moved), HALF, more)
  assert (base_dir / 'checkpoints/ckpt-1').exists()
  random_log = str(trained / 'data')
  subset = 'WrappedLoggedReplayBuffer.offline_subset = "first_fraction(0.5)"'
  for changed, line in (
    ([DATA.format(str(base_dir)), HALF], 'holds a run on different data'),
    ([DATA.format(moved), HALF, subset], 'offline_subset'),
    ([DATA.format(moved), HALF.replace('5', '25')], 'offline_fraction'),
  ):
    assert line in refusal(run, base_dir, init, *changed)
  assert 'init_checkpoint_dir' in refusal(run, base_dir, random_log, *rows)


ASTERIX = 'MinAtarEnvironment.game_name = "Asterix"'


@pytest.mark.parametrize(
  ('bindings', 'agent', 'message'),
  [
    (['AnyAgent.gamma = 0.9'], 'dqn_adam', 'AnyAgent.gamma = 0.99"'),
    (['AnyAgent.dueling = True'], 'dqn_adam', 'dueling = False, this one True'),
    ([], 'c51', 'is a run of dqn, whose weights are not those of c51'),
    ([], 'random', 'is a run of dqn'),
    ([ASTERIX], 'dqn_adam', 'is a run of MinAtar-Freeway, but the game is'),
    ([HALF, DATA, ASTERIX], 'dqn_adam', 'holds MinAtar-Freeway, but the game'),
  ],
)
def test_mistakes_are_one_line(
  bindings, agent, message, trained, tmp_path, refusal
):
  bindings = [line.format(str(trained / 'data')) for line in bindings]
  has_data = any('offline_dir' in line for line in bindings)
  init = None if has_data else trained / 'offline'
  assert message in refusal(run, tmp_path, init, *bindings, agent=agent)


OWN = """
import gin
from batch_rl.baselines import LoggedDQNAgent
from batch_rl.fixed_replay import FixedReplayDQNAgent

Online = gin.configurable('Online')(type('Online', (LoggedDQNAgent,), {}))
Mine = gin.configurable('Mine')(type('Mine', (FixedReplayDQNAgent,), {}))
"""


def test_settings_of_own_classes_are_read_whatever_their_names(
  trained, tmp_path, own_folder, refusal
):
  user_code.write(own_folder / 'mine.py', OWN)
  user_modules.add_folder('')
  given = dict(base_dir=str(tmp_path / 'mine'), replay_dir=f'{trained}/data')
  given['init_checkpoint_dir'] = f'{trained}/offline'
  given['agent_name'] = 'mine.Mine'
  other = GAME, 'AnyAgent.gamma = 0.9'
  printed = refusal(runs_test.run, offline, 'dqn_adam', *other, **given)
  assert 'has gamma = 0.99, this one 0.9' in printed
  runs_test.run(offline, 'dqn_adam', GAME, **given)
  run(tmp_path / 'online', tmp_path / 'mine', agent_name='mine.Online')


def test_weights_that_do_not_fit_are_refused(trained, tmp_path, refusal):
  heads = shutil.copytree(trained / 'offline', tmp_path / 'heads')
  path = heads / 'run.json'
  record = json.loads(path.read_text())
  path.write_text(json.dumps(record | {'agent': 'multi_head_dqn'}))
  printed = refusal(run, tmp_path / 'base', heads, agent='rem')
  assert 'is a run of multi_head_dqn' in printed
  assert 'multi_network_rem.gin' in printed
  dirs = dict(replay_dir=str(trained / 'data'), init_checkpoint_dir=str(heads))
  dirs['base_dir'] = str(tmp_path / 'base')
  printed = refusal(runs_test.run, offline, 'dqn_adam', GAME, **dirs)
  assert 'is a run of multi_head_dqn' in printed
  bound = '\nFixedReplayDQNAgent.head = @Quantiles()\nQuantiles.kappa = 0.5'
  # Of another agent.
  bound += '\nFixedReplayQuantileAgent.gamma = 0.5'
  record['unused_bindings'] = ['FixedReplayQuantileAgent.gamma']
  record['gin_config'] += bound
  path.write_text(json.dumps(record))
  head = 'AnyAgent.head = @Quantiles()', 'Quantiles.kappa = 0.75'
  head += ('LoggedQuantileAgent.gamma = 0.25',)
  printed = refusal(run, tmp_path / 'base', heads, *head)
  assert 'has kappa = 0.5, this one 0.75' in printed
  record['environment']['game'] = 'MinAtar-Asterix'
  path.write_text(json.dumps(record))
  printed = refusal(runs_test.run, offline, 'dqn_adam', GAME, **dirs)
  assert 'is a run of MinAtar-Asterix, but the game is' in printed
  printed = refusal(run, tmp_path / 'base', tmp_path / 'none')
  assert 'none cannot be listed: No such file' in printed
  weights = trained / 'offline/checkpoints/ckpt-0'  # without a record
  printed = refusal(run, tmp_path / 'base', weights / 'tf_ckpt-0')
  assert 'give the folder of this file' in printed
  printed = refusal(run, tmp_path / 'base', weights, agent='random')
  assert 'RandomAgent has no weights' in printed
