import types

import pytest
import tensorflow as tf
from dopamine.tf.agents.dqn import dqn_agent  # noqa: F401, selects graph mode

from batch_rl.agents import restored_weights


def make_agent(**shapes):
  """Returns what loading needs of an agent, with variables of some shapes."""
  with tf.Graph().as_default():
    for name, shape in shapes.items():
      tf.compat.v1.get_variable(f'Online/{name}', shape)
    session = tf.compat.v1.Session()
    session.run(tf.compat.v1.global_variables_initializer())
    saver = tf.compat.v1.train.Saver()
    return types.SimpleNamespace(_sess=session, _saver=saver)


def test_only_the_same_variables_are_loaded(tmp_path):
  # A slot of the optimiser is named after its variable.
  saved = make_agent(**{'a': (3,), 'b': (2,), 'b/Adam': (2,)})
  path = str(tmp_path / 'saved')
  saved._saver.save(saved._sess, path, write_meta_graph=False)
  agent = make_agent(a=(3,), b=(2,))
  restored_weights.load(agent, path)
  for name in ('Online/a:0', 'Online/b:0'):
    assert (agent._sess.run(name) == saved._sess.run(name)).all()
  for shapes, message in (
    ({'a': (3,), 'b': (3,)}, r'Online/b .*\[3\].*\[2\]'),
    ({'a': (3,), 'b': (2,), 'c': (1,)}, 'agent has .* Online/c'),
    ({'a': (3,)}, 'checkpoint has .* Online/b'),
  ):
    with pytest.raises(ValueError, match=message):
      restored_weights.load(make_agent(**shapes), path)
  with pytest.raises(ValueError, match='missing'):
    restored_weights.load(agent, str(tmp_path / 'missing'))
