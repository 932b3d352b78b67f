import functools
import pickle
import re

import gin
import numpy as np
import pytest
import tensorflow as tf

from batch_rl.multi_head import gym_helpers, multi_network_dqn_agent
from batch_rl.utils import seeding

OBSERVATION = np.array([0.1, -0.2, 0.3, 0.4])
STRATEGIES = ('IDENTITY', 'AVERAGE', 'STOCHASTIC')


@pytest.fixture
def make_multi_network(make_agent):
  return functools.partial(
    make_agent,
    multi_network_dqn_agent.MultiNetworkDQNAgent,
    network=gym_helpers.CartpoleMultiNetworkQNetwork,
    epsilon_fn=lambda *args: 0.0,
  )


@pytest.fixture(scope='module')
def build(make_agent):
  """Returns a function that builds a numbered agent of 5 actions once."""

  @functools.cache
  def build(number):
    del number
    with tf.Graph().as_default():
      tf.compat.v1.set_random_seed(7)
      return make_agent(
        multi_network_dqn_agent.MultiNetworkDQNAgent,
        num_actions=5,
        network=gym_helpers.CartpoleMultiNetworkQNetwork,
        num_networks=3,
        epsilon_fn=lambda *args: 0.0,
      )

  return build


@pytest.fixture
def acting_agents(build):
  """Returns a function that gives a shared agent with settings of a test."""

  def get(strategy='STOCHASTIC', acting_seed=1, number=0, explores=True):
    agent = build(number)
    agent._use_deep_exploration = explores
    agent.transform_strategy = strategy
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


@pytest.mark.parametrize('strategy', STRATEGIES)
@pytest.mark.parametrize('eval_mode', [False, True])
@pytest.mark.parametrize('explores', [False, True])
def test_acts_on_the_mixture_or_on_the_mean(
  acting_agents, strategy, eval_mode, explores
):
  agent = acting_agents(strategy, explores=explores)
  agent.begin_episode(OBSERVATION)
  first = agent._episode_mixture
  agent.step(0.0, OBSERVATION)
  assert agent._episode_mixture is first  # for one episode
  agent.eval_mode = eval_mode
  for observation in np.random.default_rng(0).uniform(-2, 2, (10, 4)):
    action = agent.begin_episode(observation)
    mixture = agent._episode_mixture
    if eval_mode or not explores:
      mixture = np.full(3, 1 / 3)
    assert action == expected_action(agent, mixture)


def test_draws_resume_from_a_checkpoint_and_ignore_evaluations(
  acting_agents, tmp_path
):
  uninterrupted = episode_mixtures(acting_agents(), 4)
  agent = acting_agents()
  before = episode_mixtures(agent, 2)
  agent.eval_mode = True
  episode_mixtures(agent, 3)
  agent.eval_mode = False
  # Dopamine's checkpointer pickles the bundle.
  bundle = pickle.dumps(agent.bundle_and_checkpoint(str(tmp_path), 3))
  restored = acting_agents(acting_seed=2, number=1)
  assert restored is not agent
  assert restored.unbundle(str(tmp_path), 3, pickle.loads(bundle))
  for again in (agent, restored):
    after = episode_mixtures(again, 2)
    np.testing.assert_array_equal(
      np.concatenate([before, after]), uninterrupted
    )


def test_draws_sum_to_one_and_follow_the_strategy():
  rng = np.random.default_rng(0)

  def draw(strategy):
    return np.array(
      [
        multi_network_dqn_agent.draw_acting_mixture(rng, 4, strategy)
        for _ in range(2000)
      ]
    )

  for strategy in STRATEGIES:
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


@pytest.mark.parametrize(
  ('gpus', 'devices', 'expected'),
  [
    (2, None, ['GPU:0', 'GPU:1', 'GPU:0']),
    (1, ['/cpu:3'], ['CPU:3'] * 3),
  ],
)
def test_networks_are_spread_over_devices(
  make_multi_network, monkeypatch, gpus, devices, expected
):
  monkeypatch.setattr(
    tf.config, 'list_physical_devices', lambda kind: [1] * gpus
  )
  agent = make_multi_network(num_networks=3, devices=devices, seed=5)
  assert networks_devices() == {
    i: {f'/device:{name}'} for i, name in enumerate(expected)
  }
  agent._sess.run(agent._train_op)  # Soft placement allows it without GPUs.
  drawn = np.random.default_rng(seeding.derive(5, 'acting mixture'))
  assert agent._acting_rng.bit_generator.state == drawn.bit_generator.state


def test_gin_bindings_take_effect(make_agent):
  gin.parse_config("""
      MultiNetworkDQNAgent.network = @MultiNetworkQNetwork
      MultiNetworkQNetwork.network = @CartpoleDQNNetwork
      MultiNetworkDQNAgent.num_networks = 3
      MultiNetworkDQNAgent.num_convex_combinations = 2
      MultiNetworkDQNAgent.acting_seed = 9
  """)
  agent = make_agent(multi_network_dqn_agent.MultiNetworkDQNAgent)
  assert agent._net_outputs.q_heads.shape.as_list() == [1, 3, 3]
  assert agent.num_convex_combinations == 2
  expected = np.random.default_rng(9).bit_generator.state
  assert agent._acting_rng.bit_generator.state == expected
  with pytest.raises(ValueError, match='num_heads'):
    gin.parse_config('MultiNetworkDQNAgent.num_heads = 3')
