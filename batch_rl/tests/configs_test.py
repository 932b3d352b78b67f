"""Each shipped config builds the agent of its paper, and no binding is unused."""

import functools
import pathlib

import gin
import pytest
from dopamine.discrete_domains import atari_lib

import batch_rl
from batch_rl.baselines import agents as online_agents
from batch_rl.baselines import run_experiment as online
from batch_rl.fixed_replay import agents as offline_agents
from batch_rl.fixed_replay import run_experiment as offline
from batch_rl.fixed_replay import vector_evaluation
from batch_rl.runs import agent_names, command_line
from batch_rl.tests import gin_lines, learning_test, shards
from batch_rl.tests.shipped_agents import OFFLINE, ONLINE

LEARNER = dict(gamma=0.99, update_horizon=1, batch_size=32, update_period=4)
LEARNER |= dict(target_update_period=8_000, epsilon_eval=0.001)  # 2,000 updates
EXPLORATION = dict(min_replay_history=20_000, epsilon_train=0.01)
EXPLORATION |= dict(epsilon_decay_period=250_000)
RUNNER = dict(num_iterations=200, training_steps=250_000)  # 62,500 updates
RUNNER |= dict(evaluation_steps=125_000, max_steps_per_episode=27_000)
RUNNER |= dict(clip_rewards=True)


def config_file(program, name):
  return f'batch_rl/{program}/configs/{name}.gin'


@pytest.fixture(scope='module')
def data_dir(tmp_path_factory):
  directory = str(tmp_path_factory.mktemp('data'))
  shards.write_images(directory)
  return directory


@pytest.fixture
def small_layers(monkeypatch):
  """Gives Atari's networks few weights; their outputs stay as they are."""
  original = atari_lib.NatureDQNNetwork.__init__

  @functools.wraps(original)  # whose signature tells that it is a plain network
  def init(self, *args, **kwargs):
    original(self, *args, **kwargs)
    self.conv1.filters = self.conv2.filters = self.conv3.filters = 2
    self.dense1.units = 4

  monkeypatch.setattr(atari_lib.NatureDQNNetwork, '__init__', init)


@pytest.fixture(autouse=True)
def no_environments_of_evaluations(monkeypatch):
  """`fixed_replay_runner_test` plays in them; making twelve takes seconds."""
  monkeypatch.setattr(vector_evaluation, 'make_environments', lambda *_: 'some')


def make_runner(program, name, base_dir, data_dir=None, bindings=()):
  """Makes the runner as the program does from its flags."""
  gin_lines.load([config_file(program, name)], bindings)
  if program == 'fixed_replay':
    create_agent = learning_test.offline_creator(data_dir)
    return offline.FixedReplayRunner(str(base_dir), create_agent)
  create_agent = learning_test.online_creator(base_dir / 'data')
  return online.LoggedRunner(str(base_dir), create_agent)


def optimizer_parameters(optimizer):
  # TensorFlow has no public way to read these values.
  names = {
    'AdamOptimizer': '_lr _beta1 _beta2 _epsilon',
    'RMSPropOptimizer': '_learning_rate _decay _momentum _epsilon _centered',
  }[type(optimizer).__name__]
  values = {
    name.lstrip('_').replace('lr', 'learning_rate'): getattr(optimizer, name)
    for name in names.split()
  }
  return {'optimizer': type(optimizer).__name__, **values}


def check(runner, class_name, expected):
  """Checks what the runner has built, and that its agent acts."""
  assert command_line.unused_bindings() == []
  assert {name: getattr(runner, f'_{name}') for name in RUNNER} == RUNNER
  environment, agent = runner._environment, runner._agent
  assert environment.frame_skip == 4
  assert not environment.terminal_on_life_loss
  described = runner.record['environment']
  assert described['repeat_action_probability'] == 0.25
  assert described['max_num_frames_per_episode'] == 4 * 27_000
  assert type(agent).__name__ == class_name
  if expected:
    parts = [agent.head, agent.backup, agent.policy, agent]
    found = {k.lstrip('_'): v for part in parts for k, v in vars(part).items()}
    for term in agent.terms:
      found[f'{type(term).__name__}.weight'] = term.weight
    found |= optimizer_parameters(agent.optimizer)
    found['name'] = agent_names.of_agent(agent)
    found['batch_size'] = agent._replay.states.shape.as_list()[0]
    if 'support' in expected:
      support = agent._sess.run(agent._support)
      found |= {'atoms': len(support), 'support': (support[0], support[-1])}
    assert {name: found[name] for name in expected} == expected
  agent.eval_mode = True
  assert agent.begin_episode(environment.reset()) in range(6)
  assert agent.step(0.0, environment.step(0)[0]) in range(6)


@pytest.mark.parametrize('name', OFFLINE)
def test_offline(name, data_dir, tmp_path, request):
  class_name, specific, _, expected_losses = OFFLINE[name]
  if not expected_losses:
    request.getfixturevalue('small_layers')
  # Single updates give the same results and need no loop in the graph.
  bindings = ['run_seed.seed = 1', f'{class_name}.updates_per_run = 1']
  runner = make_runner('fixed_replay', name, tmp_path, data_dir, bindings)
  agent = runner._agent
  assert agent._replay.memory._num_buffers is None  # all of the data
  losses = list(agent.train_steps(4 * 3))
  if expected_losses:
    assert losses == pytest.approx(expected_losses, rel=1e-5)
  check(runner, class_name, {**LEARNER, **specific})


@pytest.mark.parametrize('name', ONLINE)
def test_online(name, tmp_path, small_layers):
  class_name, specific, *_ = ONLINE[name]
  bindings, expected = [], {**LEARNER, **EXPLORATION, **specific}
  if 'MultiNetwork' in class_name:  # Building four takes seconds.
    gin_lines.load([config_file('baselines', name)], [])
    parameter = f'{class_name}.num_networks'
    assert gin.query_parameter(parameter) == specific['num_heads']
    gin.clear_config()
    expected['num_heads'] = 2
    bindings = [f'{parameter} = 2']
  runner = make_runner('baselines', name, tmp_path, bindings=bindings)
  agent = runner._agent
  assert agent.replay_log.shard_capacity == 1_000_000
  if name != 'random':
    assert agent._replay.memory._replay_capacity == 1_000_000
  check(runner, class_name, expected if name != 'random' else {})


def test_every_config_is_tested_and_every_agent_has_one():
  for program, described, registry, create in (
    ('fixed_replay', OFFLINE, offline_agents.REGISTRY, 'offline'),
    ('baselines', ONLINE, online_agents.REGISTRY, 'online'),
  ):
    folder = pathlib.Path(batch_rl.__file__).parent / program / 'configs'
    names = {path.stem for path in folder.glob('*.gin')}
    # The others include one of them; `select` reads the other.
    assert names - {'fqe'} == {*described, 'base'}
    configured = set()
    for name in described:
      gin.clear_config()
      gin_lines.load([config_file(program, name)], [])
      configured.add(gin.query_parameter(f'create_{create}_agent.agent_name'))
    assert configured == set(registry.modules)
