import pickle

import gin
import numpy as np
import pytest
import tensorflow as tf

from batch_rl.multi_head import multi_network_dqn_agent as networks_agent
from batch_rl.tests import cartpole, correctness
from batch_rl.utils import seeding

OBSERVATION = np.array([0.1, -0.2, 0.3, 0.4])
STRATEGIES = ('IDENTITY', 'AVERAGE', 'STOCHASTIC')


class Agent(correctness.FixedBatch, networks_agent.MultiNetworkDQNAgent):
  batch = correctness.make_batch(5, 5)


@pytest.fixture(scope='module')
def built():
  """Two agents of five actions, with settings of gin, whose settings tests change."""
  gin.parse_config("""
      MultiNetworkDQNAgent.network = @MultiNetworkQNetwork
      MultiNetworkQNetwork.network = @CartpoleDQNNetwork
      MultiNetworkDQNAgent.num_networks = 3
      MultiNetworkDQNAgent.num_convex_combinations = 2
  """)
  settings = {**cartpole.OBSERVATION, 'epsilon_eval': 0.0, 'seed': 5}
  agents = []
  for _ in range(2):
    with tf.Graph().as_default(), cartpole.small_layers():
      tf.compat.v1.set_random_seed(7)
      agent = Agent(None, 5, epsilon_fn=lambda *args: 0.0, **settings)
      agents.append(agent)
  assert agent.num_convex_combinations == 2
  drawn = np.random.default_rng(seeding.derive(5, 'acting mixture'))
  assert agent.acting_rng_state == drawn.bit_generator.state
  return agents


def reset(agent, strategy='STOCHASTIC', seed=1, explores=True):
  agent._use_deep_exploration = explores
  agent.transform_strategy = strategy
  agent.eval_mode = False
  agent.acting_rng_state = np.random.default_rng(seed).bit_generator.state
  return agent


def episode_mixtures(agent, num_episodes):
  mixtures = []
  for _ in range(num_episodes):
    agent.begin_episode(OBSERVATION)
    mixtures.append(agent._acting_mixture())
  return np.array(mixtures)


@pytest.mark.parametrize('strategy', STRATEGIES)
@pytest.mark.parametrize(
  ('eval_mode', 'explores'), [(False, True), (True, True), (False, False)]
)
def test_acts_on_the_mixture_or_mean(built, strategy, eval_mode, explores):
  agent = reset(built[0], strategy, explores=explores)
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
    feed = {agent.state_ph: agent.state}
    [q_heads] = agent._sess.run(agent._net_outputs.q_heads, feed)
    assert action == (q_heads @ mixture).argmax()


def test_draws_resume_from_a_checkpoint_and_ignore_evaluations(built, tmp_path):
  uninterrupted = episode_mixtures(reset(built[0]), 4)
  assert len(np.unique(uninterrupted, axis=0)) == 4
  agent = reset(built[0])
  before = episode_mixtures(agent, 2)
  agent.eval_mode = True
  episode_mixtures(agent, 3)
  agent.eval_mode = False
  # Dopamine's checkpointer pickles the bundle.
  bundle = pickle.dumps(agent.bundle_and_checkpoint(str(tmp_path), 3))
  restored = reset(built[1], seed=2)
  assert restored.unbundle(str(tmp_path), 3, pickle.loads(bundle))
  for again in (agent, restored):
    found = np.concatenate([before, episode_mixtures(again, 2)])
    np.testing.assert_array_equal(found, uninterrupted)


def test_draws_sum_to_one_and_follow_the_strategy():
  rng = np.random.default_rng(0)

  def draw(strategy):
    draw_one = networks_agent.draw_acting_mixture
    return np.array([draw_one(rng, 4, strategy) for _ in range(2000)])

  for strategy in STRATEGIES:
    mixtures = draw(strategy)
    assert mixtures.dtype == np.float32
    np.testing.assert_allclose(mixtures.sum(axis=1), 1, rtol=1e-5)
    np.testing.assert_allclose(mixtures.mean(axis=0), 0.25, atol=0.04)
  np.testing.assert_array_equal(draw('AVERAGE'), 0.25)
  np.testing.assert_array_equal(np.unique(draw('IDENTITY')), [0, 1])
  assert len(np.unique(draw('STOCHASTIC'), axis=0)) == 2000
