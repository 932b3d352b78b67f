"""Policies of a user that are no function of the outputs and the seed are refused."""

import collections

import numpy as np
import pytest
import tensorflow as tf

from batch_rl.agents import policies

Outputs = collections.namedtuple('Outputs', 'q_values')


def greedy(outputs, seed):
  return tf.argmax(outputs.q_values, axis=1)


@pytest.fixture(autouse=True)
def _graph():
  with tf.Graph().as_default():
    yield


class MyAgent:
  eval_mode, training_steps = False, 0


def choose(function):
  """Builds the choice of a function, or of the class of an agent."""
  outputs = Outputs(tf.compat.v1.placeholder(tf.float32, (None, 4)))
  agent = function() if isinstance(function, type) else MyAgent()
  if agent.__class__ is MyAgent:
    agent.choose_actions = function
  policies.ActionChoice(agent, outputs)


class ByMode(MyAgent):
  def choose_actions(self, outputs, seed):
    return greedy(outputs, seed) * int(self.eval_mode)


class ByStep(MyAgent):
  def choose_actions(self, outputs, seed):
    return greedy(outputs, seed) * int(self.training_steps > 4)


def by_chance(outputs, seed):
  noise = np.random.default_rng().normal(size=4)
  return tf.argmax(outputs.q_values + np.float32(noise), axis=1)


def of_another_tensor(outputs, seed):
  with tf.init_scope():
    outer = tf.compat.v1.placeholder(tf.float32, (None, 4))
  return tf.argmax(outputs.q_values + outer, axis=1)


@pytest.mark.parametrize(
  ('function', 'message'),
  [
    (lambda outputs, seed: outputs.q_values, r'float32.*\(n,\)'),
    (lambda outputs, seed: greedy(outputs, seed)[0], r'\(n,\)'),
    (
      lambda outputs, seed: tf.cast(outputs.q_values, tf.int64),
      r'int64 \(.*, 4\).*\(n,\)',
    ),
    (lambda outputs, seed: tf.zeros(1, tf.int64), r'\(n,\)'),
    (lambda outputs, seed: None, r'None.*\(n,\)'),
    (
      lambda outputs, seed: tf.random.categorical(outputs.q_values, 1)[:, 0],
      'Multinomial',
    ),
    (of_another_tensor, 'uses the tensor'),
    (by_chance, 'depends on'),
    (ByMode, 'depends on eval_mode'),
    (ByStep, 'depends on .*training_steps'),
  ],
)
def test_mistakes_are_refused(function, message):
  with pytest.raises(ValueError, match=f'choose_actions.*{message}'):
    choose(function)
