"""Diagnostics of agents on fixed transitions."""

import functools
import types

import gin
import numpy as np
import pytest
import tensorflow as tf
from dopamine.discrete_domains import atari_lib

from batch_rl.agents import backups, diagnostics, heads
from batch_rl.dataset.shards import replay_log
from batch_rl.fixed_replay import run_experiment
from batch_rl.fixed_replay.agents import probe
from batch_rl.fixed_replay.replay_memory import fixed_replay_buffer
from batch_rl.tests import cartpole, equations, old_code_test
from batch_rl.tests.fixed_replay import update_loop_test

OfflineDQN = cartpole.OFFLINE_CLASSES['dqn']
VALUES = {'q_logged', 'q_max', 'q_gap', 'return_to_go', 'overestimation'}
FEATURES = {'srank', 'feature_dot_product', 'dead_units'}
LOSS = {'loss', 'gradient_norm'}
ALWAYS = {'weight_norm', 'greedy_is_logged'}
EVERYTHING = VALUES | FEATURES | LOSS | ALWAYS | {'td_error'}


def dqn_in_numpy(agent, rows):
  """Returns what a DQN should have, from its weights and rows of the log."""
  store = agent._replay.memory.sampler.store
  networks = agent.networks['online'], agent.targets['online']
  arrays, target_arrays = agent._sess.run([n.weights for n in networks])
  following = np.minimum(rows + 1, store.rows - 1)
  states, next_states = (
    store.frames(some).reshape(len(rows), 4) for some in (rows, following)
  )
  _, features, q = equations.forward(arrays, states)
  _, next_features, _ = equations.forward(arrays, next_states)
  _, _, target_q = equations.forward(target_arrays, next_states)
  actions, gamma = store.action[rows], cartpole.GAMMA
  ends = np.isin(np.arange(store.rows), store.ends)
  batch = equations.Minibatch(
    states, next_states, actions, store.reward[rows], ends[rows], gamma
  )
  loss = functools.partial(equations.dqn, batch=batch, actions=q.shape[1])
  weights = {'online': [*map(np.float64, arrays)], 'target': target_arrays}
  gradient = equations.differentiate(loss, weights)['online']
  returns = [
    equations.n_step(store.reward, ends, row, 90, gamma)[0] for row in rows
  ]
  errors = [
    batch.target(i, max(target_q[i])) - q[i, action]
    for i, action in enumerate(actions)
  ]
  known = np.ones(len(rows), bool)
  return {
    **diagnostics.of_features(features, next_features),
    **diagnostics.of_values(q, actions, np.array(returns), known),
    'td_error': np.mean(np.abs(errors)),
    'greedy_is_logged': np.mean(q.argmax(axis=1) == actions),
    'loss': loss(equations.Networks(weights)),
    'gradient_norm': diagnostics.global_norm(gradient),
    'weight_norm': diagnostics.global_norm(arrays),
  }


def test_a_dqn_has_the_diagnostics_of_its_equations(shared_agents):
  agent = shared_agents('dqn')
  measuring = probe.Probe(agent, 60)
  rows = agent._replay.memory.sampler.draw(2**63, 64)  # two batches
  for updates in 1, 30:
    list(agent.train_steps(4 * updates))
    expected = dqn_in_numpy(agent, rows)
    assert measuring.measure() == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize('name', cartpole.OFFLINE_CLASSES)
def test_training_is_the_same_to_the_bit(shared_agents, name):
  agent = shared_agents(name)
  first_values = cartpole.values(agent)
  expected = update_loop_test.train_by(agent, first_values, 5)
  cartpole.restart(agent, first_values)
  measuring = probe.Probe(agent, 32)
  first = measuring.measure()
  values = VALUES if agent.estimates_returns else set()
  assert first.keys() >= values | FEATURES | LOSS | ALWAYS
  if name == 'bc':
    accuracy = first['loss_Accuracy']
    assert 0 < accuracy == pytest.approx(first['greedy_is_logged'])
  found = update_loop_test.train_by(agent, first_values, 5)
  update_loop_test.assert_same_results(found, expected)  # without new variables
  assert measuring.measure() != first
  cartpole.load_values(agent, first_values)
  agent.training_steps = 0
  assert measuring.measure() == first


def test_a_resumed_run_has_the_same_transitions(make_agent):
  """Of the shards that are drawn first, although each iteration draws another."""
  gin.bind_parameter('WrappedFixedReplayBuffer.num_buffers', 1)
  agent, resumed = make_agent(), make_agent()
  measuring = probe.Probe(agent, 32)
  suffixes = set()
  for iteration in range(5):
    agent.begin_iteration(iteration)
    suffixes |= set(agent._replay.memory._packed._suffixes)
  assert len(suffixes) == 2
  again = probe.Probe(resumed, 32)
  resumed.begin_iteration(4)
  cartpole.load_values(resumed, cartpole.values(agent))
  assert again.measure() == measuring.measure()


class Loss(OfflineDQN):
  needs = ('state', 'return_to_go')

  def loss(self, batch):
    q_values = self.online(batch.state).q_values
    self.log_scalar('Highest', tf.reduce_max(q_values, axis=1))
    return tf.reduce_sum(q_values**2, axis=1)


class Cloning(Loss):
  estimates_returns = False


class Logging(backups.Max):
  def __call__(self, agent, batch):
    values = agent.online(batch.next_state).q_values[:, :1]
    values = tf.sqrt(0 * values)  # Its gradient would be NaN.
    agent.log_scalar('Target', values)
    return heads.Returns(values)


class OwnActing(OfflineDQN):
  def _select_action(self):
    return 0


class Linear(tf.keras.Model):
  """Has weights, but no layer with features."""

  def __init__(self, num_actions, name=None):
    super().__init__(name=name)
    self._kernel = self.add_weight('kernel', (4, num_actions))

  def call(self, state):
    x = tf.reshape(tf.cast(state, tf.float32), (-1, 4))
    return atari_lib.DQNNetworkType(x @ self._kernel)


@pytest.mark.parametrize(
  ('arguments', 'expected'),
  [
    ({'class_': Loss}, EVERYTHING - {'td_error'} | {'loss_Highest'}),
    ({'class_': Cloning}, FEATURES | LOSS | ALWAYS | {'loss_Highest'}),
    ({'class_': update_loop_test.OwnTraining}, VALUES | FEATURES | ALWAYS),
    ({'class_': update_loop_test.DopamineAgent}, VALUES | FEATURES | ALWAYS),
    ({'backup': Logging()}, EVERYTHING | {'loss_Target'}),
    ({'class_': OwnActing}, EVERYTHING - {'greedy_is_logged'}),
    ({'network': Linear}, EVERYTHING - FEATURES),
  ],
)
def test_what_an_agent_lacks_is_left_out(make_agent, arguments, expected):
  found = probe.Probe(make_agent(**arguments), 1).measure()
  assert found.keys() == expected
  assert np.isfinite([*found.values()]).all()


def test_memories_of_a_subclass_have_no_returns(make_agent, monkeypatch):
  wrapped = fixed_replay_buffer.WrappedFixedReplayBuffer
  monkeypatch.setattr(wrapped, 'memory_class', old_code_test.LoadsDopamines)
  agent, again = make_agent(), make_agent()
  found = probe.Probe(agent, 32).measure()
  assert found.keys() == EVERYTHING - {'return_to_go', 'overestimation'}
  assert probe.Probe(again, 32).measure() == found


def test_returns_that_the_log_cuts_off_do_not_count(tmp_path):
  """Of an episode that is truncated after 400 steps, only the first 96 count."""
  with replay_log.ReplayLog(tmp_path, (4, 1), np.float64, 1000, 1) as log:
    for step in range(400):
      log.add(np.ones((4, 1)), 0, 1.0, False, truncated=step == 399)
    log.add(np.ones((4, 1)), 0, 7.0, True)
  agent = cartpole.build_offline_agent('dqn', tmp_path, gamma=0.985)
  measuring = probe.Probe(agent, 2048)
  left = 400 - agent._replay.memory.sampler.draw(2**63, 2048)
  returns = np.where(left > 0, (1 - 0.985**left) / 0.015, 7.0)
  counts = (0.985**left <= 0.01) | (left <= 0)
  assert 0.2 < counts.mean() < 0.3 and (left <= 0).any()
  expected = pytest.approx(returns[counts].mean(), rel=1e-5)
  assert measuring.measure()['return_to_go'] == expected


class Stateful(OfflineDQN):
  def build_networks(self):
    self.count = tf.compat.v1.get_variable(
      'count', initializer=0.0, trainable=False, use_resource=True
    )

  def loss(self, batch):
    with tf.control_dependencies([self.count.assign_add(1.0)]):
      return super().loss(batch)


def test_a_run_goes_on_without_diagnostics(make_agent, caplog):
  agent = make_agent(class_=Stateful)
  runner = types.SimpleNamespace(_agent=agent, _probe=None, _probe_size=64)
  with run_experiment.FixedReplayRunner._only_warning(runner):
    runner._probe = probe.Probe(agent, 64)
  assert runner._probe is None and not runner._probe_size
  assert 'No diagnostics' in caplog.text and 'variables' in caplog.text
  list(agent.train_steps(9))
  assert cartpole.values(agent)['count'] == 3
