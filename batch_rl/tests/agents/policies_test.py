"""Policies of a user that are no function of the outputs and the seed are refused."""

import numpy as np
import pytest
import tensorflow as tf
from dopamine.discrete_domains.atari_lib import DQNNetworkType

from batch_rl.agents import policies


def greedy(q_values):
  return tf.argmax(q_values, axis=1)


class MyAgent:
  eval_mode, training_steps = False, 0


class ByMode(MyAgent):
  def choose_actions(self, outputs, seed):
    return greedy(outputs.q_values) * int(self.eval_mode)


class ByStep(MyAgent):
  def choose_actions(self, outputs, seed):
    return greedy(outputs.q_values) * int(self.training_steps > 4)


def by_chance(q_values):
  return greedy(q_values + np.float32(np.random.default_rng().normal(size=4)))


def of_another_tensor(q_values):
  with tf.init_scope():
    outer = tf.compat.v1.placeholder(tf.float32, (None, 4))
  return greedy(q_values + outer)


@pytest.mark.parametrize(
  ('function', 'message'),
  [
    (lambda q: q, r'float32.*\(n,\)'),
    (lambda q: greedy(q)[0], r'\(n,\)'),
    (lambda q: tf.cast(q, tf.int64), r'int64 \(.*, 4\).*\(n,\)'),
    (lambda q: tf.zeros(1, tf.int64), r'\(n,\)'),
    (lambda q: None, r'None.*\(n,\)'),
    (lambda q: tf.random.categorical(q, 1)[:, 0], 'Multinomial'),
    (of_another_tensor, 'uses the tensor'),
    (by_chance, 'depends on'),
    (ByMode, 'depends on eval_mode'),
    (ByStep, 'depends on .*training_steps'),
  ],
)
def test_mistakes_are_refused(function, message):
  """By a function of Q-values, or by the class of an agent."""
  agent = function() if isinstance(function, type) else MyAgent()
  if agent.__class__ is MyAgent:
    agent.choose_actions = lambda outputs, seed: function(outputs.q_values)
  with tf.Graph().as_default():
    q_values = tf.compat.v1.placeholder(tf.float32, (None, 4))
    with pytest.raises(ValueError, match=f'choose_actions.*{message}'):
      policies.ActionChoice(agent, DQNNetworkType(q_values))
