import functools
import pickle
import re

import gin
import numpy as np
import pytest
import tensorflow as tf

from batch_rl.multi_head import gym_helpers, multi_network_dqn_agent
from batch_rl.tests import cartpole, correctness
from batch_rl.utils import seeding

OBSERVATION = np.array([0.1, -0.2, 0.3, 0.4])


@pytest.fixture
def make_multi_network(make_agent):
  def make(**kwargs):
    return make_agent(
      multi_network_dqn_agent.MultiNetworkDQNAgent,
      **{
        'network': gym_helpers.CartpoleMultiNetworkQNetwork,
        'acting_seed': 1,
        'epsilon_fn': lambda *args: 0.0,
        **kwargs,
      },
    )

  return make


@pytest.fixture(scope='module')
def acting_agents():
  """Returns a function that gives an agent of 5 actions, built once."""
  batch = correctness.make_batch(5, batch_size=5)._asdict()
  test_class = type(
    'Test',
    (correctness.FixedBatch, multi_network_dqn_agent.MultiNetworkDQNAgent),
    {'batch': batch},
  )

  @functools.cache
  def build(number):
    with tf.Graph().as_default(), cartpole.small_layers():
      tf.compat.v1.set_random_seed(7)
      return test_class(
        None,
        5,
        network=gym_helpers.CartpoleMultiNetworkQNetwork,
        num_networks=3,
        **cartpole.OBSERVATION,
        epsilon_eval=0.0,
        epsilon_fn=lambda *args: 0.0,
      )

  def get(
    transform_strategy='STOCHASTIC',
    acting_seed=1,
    number=0,
    use_deep_exploration=True,
  ):
    agent = build(number)
    agent._use_deep_exploration = use_deep_exploration
    agent.transform_strategy = transform_strategy
    agent.eval_mode = False
    agent._acting_rng = np.random.default_rng(acting_seed)
    return agent

  return get


def expected_action(agent, mixture):
  q_heads = agent._sess.run(
    agent._net_outputs.q_heads, {agent.state_ph: agent.state}
  )
  return (q_heads[0] @ mixture).argmax()


def episode_mixtures(agent, num_episodes):
  mixtures = []
  for _ in range(num_episodes):
    agent.begin_episode(OBSERVATION)
    mixtures.append(agent._acting_mixture())
  return np.array(mixtures)


def test_a_mixture_lasts_one_episode(acting_agents):
  agent = acting_agents()
  agent.begin_episode(OBSERVATION)
  first = agent._acting_mixture()
  for _ in range(5):
    agent.step(0.0, OBSERVATION)
    np.testing.assert_array_equal(agent._acting_mixture(), first)
  agent.end_episode(1.0)
  agent.begin_episode(OBSERVATION)
  assert not np.allclose(agent._acting_mixture(), first)


@pytest.mark.parametrize('strategy', ['IDENTITY', 'AVERAGE', 'STOCHASTIC'])
def test_acts_on_the_mixture(acting_agents, strategy):
  agent = acting_agents(strategy)
  for observation in np.random.default_rng(0).uniform(-2, 2, (20, 4)):
    action = agent.begin_episode(observation)
    assert action == expected_action(agent, agent._acting_mixture())


def test_evaluation_acts_on_the_mean(acting_agents):
  agent = acting_agents('IDENTITY')
  agent.begin_episode(OBSERVATION)
  agent.eval_mode = True
  for observation in np.random.default_rng(0).uniform(-2, 2, (20, 4)):
    action = agent.begin_episode(observation)
    assert action == expected_action(agent, np.full(3, 1 / 3))


def test_the_mean_acts_without_deep_exploration(acting_agents):
  agent = acting_agents('IDENTITY', use_deep_exploration=False)
  for mixture in episode_mixtures(agent, 3):
    np.testing.assert_array_equal(mixture, agent._mean_mixture)


def test_evaluation_leaves_the_draws_alone(acting_agents):
  uninterrupted = episode_mixtures(acting_agents(), 4)
  agent = acting_agents()
  before = episode_mixtures(agent, 2)
  agent.eval_mode = True
  episode_mixtures(agent, 3)
  agent.eval_mode = False
  after = episode_mixtures(agent, 2)
  np.testing.assert_array_equal(np.concatenate([before, after]), uninterrupted)


def test_a_checkpoint_resumes_the_draws(acting_agents, tmp_path):
  agent = acting_agents()
  episode_mixtures(agent, 2)
  # Dopamine's checkpointer pickles the bundle.
  bundle = pickle.dumps(agent.bundle_and_checkpoint(str(tmp_path), 3))
  after = episode_mixtures(agent, 2)
  restored = acting_agents(acting_seed=2, number=1)
  assert restored is not agent
  assert restored.unbundle(str(tmp_path), 3, pickle.loads(bundle))
  np.testing.assert_array_equal(episode_mixtures(restored, 2), after)


def test_the_seed_of_the_run_decides_the_draws(make_multi_network):
  seed = seeding.derive(5, 'acting mixture')
  agent = make_multi_network(acting_seed=None, seed=5, num_networks=1)
  expected = np.random.default_rng(seed).bit_generator.state
  assert agent._acting_rng.bit_generator.state == expected


def test_draws_sum_to_one_and_follow_the_strategy():
  rng = np.random.default_rng(0)

  def draw(strategy):
    return np.array(
      [
        multi_network_dqn_agent.draw_acting_mixture(rng, 4, strategy)
        for _ in range(2000)
      ]
    )

  for strategy in ('IDENTITY', 'AVERAGE', 'STOCHASTIC'):
    mixtures = draw(strategy)
    assert mixtures.dtype == np.float32
    np.testing.assert_allclose(mixtures.sum(axis=1), 1, rtol=1e-5)
    np.testing.assert_allclose(mixtures.mean(axis=0), 0.25, atol=0.04)
  np.testing.assert_array_equal(draw('AVERAGE'), 0.25)
  np.testing.assert_array_equal(np.unique(draw('IDENTITY')), [0, 1])
  assert len(np.unique(draw('STOCHASTIC'), axis=0)) == 2000


def networks_devices():
  """Returns the devices of each network's variables and matrix products."""
  devices = {}
  for op in tf.compat.v1.get_default_graph().get_operations():
    # Names of gradients contain the names of their operations.
    subnet = re.match(r'(gradients/)?(Online|Target).*/subnet_(\d)/', op.name)
    if subnet and op.type in ('VarHandleOp', 'MatMul'):
      devices.setdefault(int(subnet[3]), set()).add(op.device)
  return devices


def test_networks_are_spread_over_the_gpus(make_multi_network, monkeypatch):
  monkeypatch.setattr(tf.config, 'list_physical_devices', lambda kind: [1, 2])
  agent = make_multi_network(num_networks=3)
  gpus = {'/device:GPU:0'}, {'/device:GPU:1'}
  assert networks_devices() == dict(enumerate([*gpus, gpus[0]]))
  agent._sess.run(agent._train_op)  # Soft placement allows it without GPUs.


def test_devices_may_be_named(make_multi_network, monkeypatch):
  monkeypatch.setattr(tf.config, 'list_physical_devices', lambda kind: [1])
  make_multi_network(num_networks=2, devices=['/cpu:3'])
  assert networks_devices() == {0: {'/device:CPU:3'}, 1: {'/device:CPU:3'}}


@pytest.mark.parametrize(
  ('arguments', 'message'),
  [
    ({'num_networks': 0}, 'num_networks=0'),
    ({'transform_strategy': 'REM'}, "'REM' is none of"),
  ],
)
def test_bad_arguments(make_multi_network, arguments, message):
  with pytest.raises(ValueError, match=message):
    make_multi_network(**arguments)


def test_gin_bindings_take_effect(make_agent):
  gin.parse_config("""
      MultiNetworkDQNAgent.network = @MultiNetworkQNetwork
      MultiNetworkQNetwork.network = @CartpoleDQNNetwork
      MultiNetworkDQNAgent.num_networks = 3
      MultiNetworkDQNAgent.transform_strategy = 'STOCHASTIC'
      MultiNetworkDQNAgent.num_convex_combinations = 2
      MultiNetworkDQNAgent.acting_seed = 9
      MultiNetworkDQNAgent.gamma = 0.5
  """)
  agent = make_agent(multi_network_dqn_agent.MultiNetworkDQNAgent)
  assert agent._net_outputs.q_heads.shape.as_list() == [1, 3, 3]
  assert agent.num_convex_combinations == 2
  assert agent.gamma == 0.5
  expected = np.random.default_rng(9).bit_generator.state
  assert agent._acting_rng.bit_generator.state == expected


@pytest.mark.parametrize(
  'binding',
  ['MultiNetworkDQNAgent.num_heads = 3', 'MultiNetworkDQNAgent.gama = 0.5'],
)
def test_gin_refuses_unknown_parameters(binding):
  with pytest.raises(ValueError, match="doesn't have a parameter"):
    gin.parse_config(binding)
