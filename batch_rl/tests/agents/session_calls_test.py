"""Shortened calls return what `Session.run` returns."""

import threading

import numpy as np
import pytest
import tensorflow as tf

from batch_rl.agents import session_calls

v1 = tf.compat.v1


@pytest.fixture
def session():
  with tf.Graph().as_default(), v1.Session() as session:
    session_calls.shorten(session)
    yield session


def test_feeds_are_converted_like_those_of_a_session(session):
  states = v1.placeholder(tf.uint8, (None, 3))
  scale = v1.placeholder(tf.float32, ())
  product = scale * tf.cast(states, tf.float32)
  for feed in (
    {states: np.ones((2, 3), np.uint8), scale: 2.5},
    {states: [[1, 2, 3]], scale: np.float64(0.5)},
    {scale: 3, states: np.zeros((0, 3))},
  ):
    with v1.Session() as plain:
      expected = plain.run(product, feed)
    for _ in range(2):
      actual = session.run(product, feed)
      np.testing.assert_array_equal(actual, expected)
      assert actual.dtype == expected.dtype and actual.shape == expected.shape


def test_other_calls_are_those_of_the_session(session):
  x = v1.placeholder(tf.float32, (), 'x')
  y = x + 1
  metadata = v1.RunMetadata()
  options = v1.RunOptions(trace_level=v1.RunOptions.FULL_TRACE)
  assert session.run([y, {'y': y}], {x: 1}) == [2, {'y': 2}]
  assert session.run('add:0', {'x:0': 1}) == 2
  assert session.run(y, {x: 1}, options, metadata) == 2
  assert metadata.step_stats.dev_stats
  with pytest.raises(TypeError, match='None'):
    session.run(None)


def test_each_call_runs_the_operations_again(session):
  run = session.run
  session_calls.shorten(session)  # a second time changes nothing
  assert session.run is run
  variable = v1.get_variable('x', initializer=1.0, use_resource=True)
  session.run(v1.global_variables_initializer())
  doubled, assign, values = 2 * variable, variable.assign_add(1.0).op, []
  for _ in range(3):
    values.append(session.run(doubled))
    assert session.run(assign) is None
  assert values == [2, 4, 6]
  # The graph has grown.
  assert session.run(doubled + 1) == 9


def test_calls_that_feed_a_tensor_run_in_the_calling_thread(session):
  x = v1.placeholder(tf.int64, ())
  thread = tf.numpy_function(
    lambda x: np.int64(x + threading.get_ident()), [x], tf.int64
  )
  for _ in range(2):
    assert session.run(thread, {x: 1}) == 1 + threading.get_ident()


def test_errors_are_those_of_the_session(session):
  x = v1.placeholder(tf.float32, (None, 3), 'x')
  with pytest.raises(tf.errors.InvalidArgumentError, match='You must feed'):
    session.run(x + 1)
  y = tf.reduce_sum(x)
  for _ in range(2):
    with pytest.raises(ValueError, match=r'\(2, 4\) to x:0'):
      session.run(y, {x: np.ones((2, 4))})
  assert session.run(y, {x: np.ones((4, 3))}) == 12
  session.close()
  with pytest.raises(tf.errors.CancelledError, match='closed'):
    session.run(y, {x: np.ones((4, 3))})
