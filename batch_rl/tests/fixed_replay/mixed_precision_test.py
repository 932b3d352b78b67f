"""Custom networks that compute in bfloat16."""

import pytest
import tensorflow as tf

from batch_rl.fixed_replay.agents import dqn_agent, mixed_precision
from batch_rl.tests import cartpole


class Listed(tf.keras.Model):
  """A network that keeps its layers in a list."""

  def __init__(self):
    super().__init__()
    self.listed = [tf.keras.layers.Dense(units) for units in (8, 5, 2)]

  def call(self, x):
    for layer in self.listed:
      x = layer(x)
    return x


def test_the_last_layer_of_a_list_computes_in_float32(tmp_path):
  with tf.Graph().as_default(), tf.compat.v1.Session() as session:
    network = mixed_precision.build(Listed)
    output = network(tf.zeros((3, 4)))
    dtypes = [layer.compute_dtype for layer in network.listed]
    assert dtypes == ['bfloat16', 'bfloat16', 'float32']
    assert output.dtype == tf.float32
    # Keras cannot save a list with a replaced element.
    session.run(tf.compat.v1.global_variables_initializer())
    with session.as_default():
      assert tf.train.Checkpoint(network=network).write(str(tmp_path / 'saved'))


def test_an_agent_that_makes_networks_otherwise_is_refused(log_dir):
  class OwnNetworks(dqn_agent.FixedReplayDQNAgent):
    def _create_network(self, name):
      return self.network(self.num_actions, name=name)

  with pytest.raises(ValueError, match='OwnNetworks._create_network'):
    cartpole.build_offline_agent(
      'dqn', log_dir, OwnNetworks, mixed_precision=True
    )
