"""Runs in an environment in plain Python: online, offline, and evaluated again."""

import cv2
import gin
import pytest

from batch_rl.agents import restored_weights
from batch_rl.baselines import run_experiment as online
from batch_rl.dataset.shards import manifests
from batch_rl.fixed_replay import run_experiment as offline
from batch_rl.fixed_replay import vector_evaluation
from batch_rl.runs import games, run_record
from batch_rl.tests import gin_lines, learning_test, programs, random_walk

EVERYWHERE = f"""
    import gin.tf.external_configurables
    import batch_rl.tests.random_walk
    {programs.IMPORT_TINY_NETWORK}
    {{runner}}.create_environment_fn = @RandomWalk
    {{runner}}.num_iterations = 1
    {{runner}}.training_steps = 120
    {{runner}}.evaluation_steps = 60
    create_{{program}}_agent.agent_name = 'dqn'
    {{agent}}.observation_shape = {random_walk.SHAPE}
    {{agent}}.observation_dtype = %tf.float64
    {{agent}}.stack_size = 2
    {{agent}}.network = @TinyNetwork
    {{agent}}.epsilon_eval = 0.5
    run_seed.seed = 3
"""
ONLINE = EVERYWHERE.format(
  program='online', runner='LoggedRunner', agent='LoggedDQNAgent'
)
ONLINE += """
    LoggedDQNAgent.min_replay_history = 40
    WrappedLoggedReplayBuffer.replay_capacity = 100
    WrappedLoggedReplayBuffer.shard_capacity = 100
"""


OFFLINE = EVERYWHERE.format(
  program='offline', runner='FixedReplayRunner', agent='FixedReplayDQNAgent'
)


@pytest.fixture(scope='module')
def logged(tmp_path_factory):
  directory = tmp_path_factory.mktemp('logged')
  create = learning_test.online_creator(directory)
  learning_test.run_gin(online.LoggedRunner, create, directory / 'run', ONLINE)
  described = {'game': 'RandomWalk', 'num_actions': 3}
  assert run_record.read(directory / 'run')['environment'] == described
  manifest = manifests.read(str(directory / 'replay_logs'))
  assert manifest['environment'] == described
  # Two for each episode of the environment, one before a lost life.
  assert 20 <= manifest['episodes']['count'] <= 40
  return directory


def train(logged, base_dir):
  create = learning_test.offline_creator(logged / 'replay_logs')
  learning_test.run_gin(offline.FixedReplayRunner, create, base_dir, OFFLINE)


@pytest.fixture(scope='module')
def trained(logged, tmp_path_factory):
  base_dir = tmp_path_factory.mktemp('trained')
  train(logged, base_dir)
  return base_dir


def test_older_records_lack_the_description(logged, trained):
  """A run continues, unless its environment is known to be another."""
  record = run_record.read(trained)
  for older in None, {'game': 'RandomWalk'}:
    run_record.write(trained, {**record, 'environment': older})
    train(logged, trained)
    assert run_record.read(trained)['environment'] == record['environment']
  run_record.write(trained, {**record, 'environment': {'game': 'Other'}})
  with pytest.raises(ValueError, match='Other'):
    train(logged, trained)
  run_record.write(trained, record)


def test_a_run_is_evaluated_again_and_shown(trained, tmp_path):
  def build(make):
    environment = make()
    agent = offline.create_offline_agent(None, environment, None)
    agent.eval_mode = True
    return environment, agent

  gin.clear_config()
  gin_lines.load([], [OFFLINE])
  environment, agent = build(random_walk.DrawnWalk)
  prefix = str(trained / 'checkpoints' / 'ckpt-0' / 'tf_ckpt-0')
  restored_weights.load(agent, prefix)
  both = vector_evaluation.make_environments(
    environment, 2, None, agent, random_walk.DrawnWalk
  )
  played = vector_evaluation.play_episodes(both, agent.select_actions, 40, 1)
  assert {episode.environment for episode in played} == {0, 1}
  path = str(tmp_path / 'episode.mp4')
  second = [episode for episode in played if episode.environment == 1]
  shown = vector_evaluation.record_video(
    path, environment, None, agent, 1, emulator=1, number=len(second) - 1
  )
  assert shown == second[-1] and len(second) > 1
  assert cv2.VideoCapture(path).get(cv2.CAP_PROP_FRAME_COUNT) == shown.length
  with pytest.raises(ValueError, match='RandomWalk'):
    unseen = build(random_walk.RandomWalk)
    vector_evaluation.record_video(path, unseen[0], None, unseen[1], 1)


def test_an_online_agent_of_another_format_is_refused(tmp_path):
  create_agent = learning_test.online_creator(tmp_path, agent_name='random')
  shape = f'RandomAgent.observation_shape = {random_walk.SHAPE}'
  for binding, message in ('', r'\(84, 84\)'), (shape, 'tf.float64'):
    gin.parse_config(binding)
    with pytest.raises(ValueError, match=message):
      base_dir = str(tmp_path / 'run')
      online.LoggedRunner(base_dir, create_agent, random_walk.RandomWalk)


def test_the_environment_of_atari_needs_a_game():
  name = 'atari_lib.create_atari_environment'
  gin.parse_config(f'Runner.create_environment_fn = @{name}')
  with pytest.raises(ValueError, match=f'No game: bind {name}.game_name'):
    games.check_configured()


def test_what_an_environment_lacks_is_named_before_the_agent_is_built(tmp_path):
  for runner in (online.LoggedRunner, offline.FixedReplayRunner):
    with pytest.raises(ValueError, match='action_space'):
      runner(str(tmp_path), pytest.fail, object)
