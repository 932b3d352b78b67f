"""Offline agents whose base builds networks and policy, as `ImplicitQuantileAgent`."""

import numpy as np
import pytest
import tensorflow as tf
from dopamine.tf.agents.dqn import dqn_agent

from batch_rl.fixed_replay.agents import fixed_replay_agent
from batch_rl.tests import cartpole


class Dopamines(dqn_agent.DQNAgent):
  """Builds networks and policy by itself; takes the worst action."""

  def _build_networks(self):
    self.online_convnet = self._create_network(name='Online')
    self.target_convnet = self._create_network(name='Target')
    self._net_outputs = self.online_convnet(self.state_ph)
    self._q_argmax = tf.argmin(self._net_outputs.q_values, axis=1)[0]
    self._replay_net_outputs = self.online_convnet(self._replay.states)
    self._replay_next_target_net_outputs = self.target_convnet(
      self._replay.next_states
    )


class Offline(fixed_replay_agent.FixedReplayAgentMixin, Dopamines):
  """Trains as Dopamine does."""


class OwnTraining(cartpole.OFFLINE_CLASSES['dqn']):
  _build_networks = Dopamines._build_networks
  _build_train_op = Dopamines._build_train_op


class WithValue(Offline):
  """Learns by a loss of its own, in which the online network has no part."""

  needs = 'timestep'  # a name alone

  def build_networks(self):
    def create(name):
      return tf.keras.Sequential(
        [tf.keras.layers.Flatten(), tf.keras.layers.Dense(1)], name=name
      )

    self.add_network('value', create, target=True)

  def loss(self, batch):
    value = self.network_outputs('value', batch.state)[:, 0]
    target = self.target_outputs('value', batch.next_state)[:, 0]
    return tf.cast(tf.square(value - target), tf.float32)


def scopes_changed(agent, steps):
  """Returns the scopes of the weights that change in a number of agent steps."""
  before = cartpole.values(agent)
  list(agent.train_steps(steps))
  return {
    name.split('/')[0]
    for name, array in cartpole.values(agent).items()
    if not np.array_equal(array, before[name]) and 'Adam' not in name
  } - {'beta1_power', 'beta2_power'}


@pytest.mark.parametrize('class_', [Offline, OwnTraining])
def test_it_trains_and_acts(make_agent, class_):
  agent = make_agent(class_=class_)
  list(agent.train_steps(1))  # synchronised at step 0
  assert scopes_changed(agent, 5) == {'Online'}  # updated at step 4
  assert scopes_changed(agent, 1) == {'Target'}  # at step 6
  online, target = (cartpole.weights(agent, n) for n in ('Online', 'Target'))
  np.testing.assert_array_equal(online, target)
  agent.eval_mode, agent.epsilon_eval = True, 0.0
  states = np.random.default_rng(0).normal(0, 3, (30, 1, 4, 1))
  actions = agent.select_actions(states, cartpole.generators(30))
  feed = [{agent.state_ph: np.moveaxis(s[None], 1, -1)} for s in states]
  q_values = [agent._sess.run(agent._net_outputs.q_values, x) for x in feed]
  expected = np.concatenate(q_values).argmin(axis=1)
  np.testing.assert_array_equal(actions, expected)
  assert len(set(expected)) > 1


def test_it_may_have_a_loss_and_another_network(make_agent):
  agent = make_agent(class_=WithValue)
  list(agent.train_steps(1))
  assert scopes_changed(agent, 5) == {'value'}
  assert scopes_changed(agent, 1) == {'value_target'}
  networks = agent.networks['value'], agent.targets['value']
  copied, copy = agent._sess.run([network.weights[0] for network in networks])
  np.testing.assert_array_equal(copied, copy)


def test_a_step_that_is_never_called_is_refused(make_agent):
  own = type('Own', (Dopamines,), {'_train_step': lambda self: None})
  mixin = fixed_replay_agent.FixedReplayAgentMixin
  with pytest.raises(ValueError, match='is never called, .* before the mixin'):
    make_agent(class_=type('Ported', (mixin, own), {}))


def test_it_has_one_policy(make_agent):
  own = {'_build_train_op': Offline._build_train_op}
  with pytest.raises(ValueError, match='Own._build_networks .* super'):
    make_agent(class_=type('Own', (OwnTraining,), own))
  own = {'choose_actions': lambda self, outputs, seed: outputs}
  with pytest.raises(ValueError, match='choose_actions and _build_networks'):
    make_agent(class_=type('Both', (Offline,), own))
