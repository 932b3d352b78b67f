"""Shortened calls return what `Session.run` returns."""

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
    {states: [[1, 2, 3]], scale: np.float64(0.5)},
    {scale: 3, states: np.zeros((0, 3))},
  ):
    with v1.Session() as plain:
      expected = plain.run(product, feed)
    for _ in range(2):
      actual = session.run(product, feed)
      np.testing.assert_array_equal(actual, expected)
      assert actual.dtype == expected.dtype and actual.shape == expected.shape


def test_other_calls_and_errors_are_those_of_the_session(session):
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
  with pytest.raises(tf.errors.InvalidArgumentError, match='You must feed'):
    session.run(y)
  for _ in range(2):
    with pytest.raises(ValueError, match=r'\(2, 4\) to x:0'):
      session.run(y, {x: np.ones((2, 4))})
  session.close()
  with pytest.raises(tf.errors.CancelledError, match='closed'):
    session.run(y, {x: 1})
