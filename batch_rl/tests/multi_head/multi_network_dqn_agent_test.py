import pickle
import re

import gin
import numpy as np
import pytest
import tensorflow as tf

from batch_rl.multi_head import gym_helpers, multi_network_dqn_agent

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


def test_a_mixture_lasts_one_episode(make_multi_network):
  agent = make_multi_network()
  agent.begin_episode(OBSERVATION)
  first = agent._acting_mixture()
  for _ in range(5):
    agent.step(0.0, OBSERVATION)
    np.testing.assert_array_equal(agent._acting_mixture(), first)
  agent.end_episode(1.0)
  agent.begin_episode(OBSERVATION)
  assert not np.allclose(agent._acting_mixture(), first)


@pytest.mark.parametrize('strategy', ['IDENTITY', 'AVERAGE', 'STOCHASTIC'])
def test_acts_on_the_mixture(make_multi_network, strategy):
  agent = make_multi_network(num_actions=5, transform_strategy=strategy)
  for observation in np.random.default_rng(0).uniform(-2, 2, (20, 4)):
    action = agent.begin_episode(observation)
    assert action == expected_action(agent, agent._acting_mixture())


def test_the_mixture_decides_the_action(make_multi_network):
  agent = make_multi_network(num_actions=5, transform_strategy='IDENTITY')
  actions = {agent.begin_episode(OBSERVATION) for _ in range(30)}
  assert len(actions) > 1


def test_evaluation_acts_on_the_mean(make_multi_network):
  agent = make_multi_network(num_actions=5, transform_strategy='IDENTITY')
  agent.begin_episode(OBSERVATION)
  agent.eval_mode = True
  for observation in np.random.default_rng(0).uniform(-2, 2, (20, 4)):
    action = agent.begin_episode(observation)
    assert action == expected_action(agent, np.full(4, 0.25))


def test_evaluation_leaves_the_draws_alone(make_multi_network):
  uninterrupted = episode_mixtures(make_multi_network(), 4)
  with tf.Graph().as_default():
    agent = make_multi_network()
    before = episode_mixtures(agent, 2)
    agent.eval_mode = True
    episode_mixtures(agent, 3)
    agent.eval_mode = False
    after = episode_mixtures(agent, 2)
  np.testing.assert_array_equal(np.concatenate([before, after]), uninterrupted)


def test_a_checkpoint_resumes_the_draws(make_multi_network, tmp_path):
  agent = make_multi_network()
  episode_mixtures(agent, 2)
  # Dopamine's checkpointer pickles the bundle.
  bundle = pickle.dumps(agent.bundle_and_checkpoint(str(tmp_path), 3))
  after = episode_mixtures(agent, 2)
  with tf.Graph().as_default():
    restored = make_multi_network(acting_seed=2)
    assert restored.unbundle(str(tmp_path), 3, pickle.loads(bundle))
    np.testing.assert_array_equal(episode_mixtures(restored, 2), after)


def test_the_seed_of_the_run_decides_the_draws(make_multi_network):
  first = episode_mixtures(make_multi_network(acting_seed=None, seed=5), 2)
  with tf.Graph().as_default():
    second = episode_mixtures(make_multi_network(acting_seed=None, seed=5), 2)
  np.testing.assert_array_equal(first, second)


def test_there_is_no_bundle_without_a_directory(make_multi_network, tmp_path):
  agent = make_multi_network()
  assert agent.bundle_and_checkpoint(str(tmp_path / 'none'), 3) is None


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


def test_sync_copies_every_subnet(make_multi_network):
  agent = make_multi_network()
  agent._sess.run(agent._train_op)
  agent._sess.run(agent._sync_qt_ops)
  variables = tf.compat.v1.trainable_variables()
  online = [v for v in variables if v.name.startswith('Online/')]
  target = [v for v in variables if v.name.startswith('Target/')]
  assert len(online) == 4 * 6
  online, target = agent._sess.run([online, target])
  for of_online, of_target in zip(online, target, strict=True):
    np.testing.assert_array_equal(of_online, of_target)


def test_every_subnet_is_trained(make_multi_network):
  agent = make_multi_network()
  variables = agent.online_convnet.trainable_variables
  before = agent._sess.run(variables)
  agent._sess.run(agent._train_op)
  after = agent._sess.run(variables)
  for old, new in zip(before, after, strict=True):
    assert not np.array_equal(old, new)


def networks_devices():
  """Returns the devices of each network's variables and matrix products."""
  devices = {}
  for op in tf.compat.v1.get_default_graph().get_operations():
    # Gradients are named after what they are the gradients of.
    subnet = re.match(r'(gradients/)?(Online|Target).*/subnet_(\d)/', op.name)
    if subnet and op.type in ('VarHandleOp', 'MatMul'):
      devices.setdefault(int(subnet[3]), set()).add(op.device)
  return devices


def test_networks_are_spread_over_the_gpus(make_multi_network, monkeypatch):
  monkeypatch.setattr(tf.config, 'list_physical_devices', lambda kind: [1, 2])
  agent = make_multi_network()
  gpus = {'/device:GPU:0'}, {'/device:GPU:1'}
  assert networks_devices() == dict(enumerate([*gpus, *gpus]))
  agent._sess.run(agent._train_op)  # soft placement, where there are none


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
def test_gin_refuses_what_is_no_parameter(binding):
  with pytest.raises(ValueError, match="doesn't have a parameter"):
    gin.parse_config(binding)
