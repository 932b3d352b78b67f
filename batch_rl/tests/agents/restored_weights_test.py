"""Weights of a checkpoint are loaded if they are exactly those of the networks."""

import types

import pytest
import tensorflow as tf

from batch_rl.agents import restored_weights


def make_agent(shapes, optimizer=False):
  """Returns what loading needs of an agent, with variables of some shapes."""
  graph = tf.Graph()
  with graph.as_default():
    variables = [
      tf.compat.v1.get_variable(name, shape) for name, shape in shapes.items()
    ]
    if optimizer:
      loss = tf.add_n(list(map(tf.reduce_sum, variables)))
      tf.compat.v1.train.AdamOptimizer().minimize(loss)
    session = tf.compat.v1.Session()
    session.run(tf.compat.v1.global_variables_initializer())
    saver = tf.compat.v1.train.Saver()
  return types.SimpleNamespace(_sess=session, _saver=saver)


SHAPES = {'Online/dense/kernel': (3, 2), 'Online/dense/bias': (2,)}


@pytest.fixture(scope='module')
def checkpoint(tmp_path_factory):
  agent = make_agent(SHAPES, optimizer=True)
  path = str(tmp_path_factory.mktemp('checkpoint') / 'tf_ckpt-3')
  return agent._saver.save(agent._sess, path, write_meta_graph=False)


def test_variables_of_the_optimizer_are_ignored(checkpoint):
  agent = make_agent(SHAPES)
  restored_weights.load(agent, checkpoint)
  saved = tf.train.load_checkpoint(checkpoint)
  for name in SHAPES:
    restored = agent._sess.run(f'{name}:0')
    assert (restored == saved.get_tensor(name)).all()


@pytest.mark.parametrize(
  ('change', 'message'),
  [
    ({'Online/dense/bias': (3,)}, r'Online/dense/bias .*\(3,\).*\(2,\)'),
    ({'Online/head/kernel': (1,)}, 'agent has .* Online/head/kernel'),
    ({'Online/dense/bias': None}, 'checkpoint has .* Online/dense/bias'),
  ],
)
def test_other_networks_are_refused(checkpoint, change, message):
  shapes = {k: v for k, v in {**SHAPES, **change}.items() if v is not None}
  with pytest.raises(ValueError, match=message):
    restored_weights.load(make_agent(shapes), checkpoint)


def test_an_unreadable_checkpoint_is_named(tmp_path):
  (tmp_path / 'damaged.index').write_bytes(b'damaged')
  for name in ('damaged', 'missing'):
    path = str(tmp_path / name)
    with pytest.raises(ValueError, match=f'{path} cannot be read: '):
      restored_weights.load(make_agent(SHAPES), path)
