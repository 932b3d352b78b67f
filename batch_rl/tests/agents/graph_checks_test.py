"""Mistakes in `loss` and `choose_actions` are one line each."""

import pytest
import tensorflow as tf

from batch_rl.agents import graph_checks


class MyAgent:
  """Stands in for a user's class."""


@pytest.mark.parametrize(
  ('make', 'found'),
  [
    (lambda: None, 'returned None; expected a tensor, float32 '),
    (lambda: 1.5, 'returned 1.5; expected a tensor'),
    (lambda: tf.zeros(()), r'returned float32 \(\); expected float32 \(32,\)'),
    (lambda: tf.zeros((32, 4)), r'returned float32 \(32, 4\); expected'),
    (lambda: tf.zeros(31), r'returned float32 \(31,\); expected'),
    (lambda: tf.zeros(32, tf.float64), r'returned float64 \(32,\); expected'),
  ],
)
def test_losses_of_another_shape_or_dtype_are_refused(make, found):
  with tf.Graph().as_default():
    actions = tf.zeros(32, tf.int32)
    graph_checks.check_losses(tf.zeros(32), actions, MyAgent)
    with pytest.raises(ValueError, match=rf'MyAgent\.loss {found}'):
      graph_checks.check_losses(make(), actions, MyAgent)


def traced(function):
  with tf.Graph().as_default():
    return tf.function(function, autograph=False).get_concrete_function().graph


STATEFUL = {
  'RandomUniform': lambda: tf.random.uniform(()),
  'RandomStandardNormal': lambda: tf.random.normal(()),
  'Multinomial': lambda: tf.random.categorical(tf.zeros((1, 2)), 1),
  'RandomShuffle': lambda: tf.random.shuffle(tf.range(3)),
}


@pytest.mark.parametrize('op', STATEFUL)
@pytest.mark.parametrize('nested', [False, True])
def test_stateful_random_operations_are_refused(op, nested):
  function = STATEFUL[op]
  if nested:
    function = tf.function(function, autograph=False)
  with pytest.raises(
    ValueError, match=f'MyAgent.loss, or .*{op}.*with batch.seed'
  ):
    graph_checks.check_reproducible(
      traced(lambda: function()), 'MyAgent.loss', 'batch.seed'
    )


def test_calls_of_python_are_refused_unless_allowed():
  graph = traced(lambda: tf.numpy_function(lambda: 1.0, [], tf.float64))
  with pytest.raises(
    ValueError, match=r'loss calls a Python function \(PyFunc'
  ):
    graph_checks.check_reproducible(graph, 'loss', 'batch.seed')
  graph_checks.check_reproducible(graph, 'loss', 'batch.seed', True)


def test_stateless_random_operations_are_fine():
  graph = traced(lambda: tf.random.stateless_normal((3,), (1, 2)))
  graph_checks.check_reproducible(graph, 'MyAgent.loss', 'batch.seed')
