"""Small agents and logs of CartPole."""

import contextlib
from unittest import mock

import gin
import numpy as np
import tensorflow as tf
from dopamine.discrete_domains import gym_lib

from batch_rl.dataset.shards import replay_log
from batch_rl.fixed_replay.agents import REGISTRY
from batch_rl.tests import results, shards, shipped_agents

NUM_ACTIONS = 2
OBSERVATION = {
  'observation_shape': (4, 1),
  'observation_dtype': tf.float64,
  'stack_size': 1,
}
OFFLINE_CLASSES = REGISTRY.load_all()
PERIODS = {'update_period': 4, 'target_update_period': 6}
GAMMA = 0.95  # Differs from the default, 0.99.
SHARED_SETTINGS = {'num_actions': 5, 'gamma': GAMMA, **PERIODS}
# Arguments that make each agent, by its name, a small one.
SMALL = {
  name: shipped.small
  for name, class_ in OFFLINE_CLASSES.items()
  for shipped in shipped_agents.OFFLINE.values()
  if shipped.small and shipped.class_name == class_.__name__
} | {'random': {}}


@contextlib.contextmanager
def small_layers(units=32):
  """Gives new networks of CartPole `units` in each layer; 512 take longer."""
  original = gym_lib.BasicDiscreteDomainNetwork.__init__

  def init(self, *args, **kwargs):
    original(self, *args, **kwargs)
    self.dense1.units = self.dense2.units = units

  with mock.patch.object(gym_lib.BasicDiscreteDomainNetwork, '__init__', init):
    yield


def write_log(directory):
  """Logs six episodes of random observations in two shards."""
  random = np.random.default_rng(0)
  with replay_log.ReplayLog(directory, (4, 1), np.float64, 50, 1) as log:
    for length in (12, 9, 20, 15, 17, 10):
      for step in range(length):
        observation = random.uniform(-1, 1, (4, 1))
        log.add(observation, step % NUM_ACTIONS, 1.0, step == length - 1)


read_log = shards.read_columns


def values(agent):
  """Returns all variables of the agent, `{name: array}`."""
  variables = agent._sess.graph.get_collection('variables')
  return agent._sess.run({v.op.name: v for v in variables})


def weights(agent, network):
  """Returns the weights of the 'Online' or the 'Target' network, as one vector."""
  variables = agent._sess.graph.get_collection('trainable_variables', network)
  arrays = values(agent)  # TensorFlow prepares each set of variables anew.
  return np.concatenate([arrays[v.op.name].ravel() for v in variables])


def read_summaries(agent, directory):
  """Returns what an agent has written, `{tag: {agent step: value}}`."""
  agent.summary_writer.flush()
  return results.scalars(directory)


def generators(count):
  """Returns one for each of some emulators."""
  return [np.random.default_rng(i) for i in range(count)]


def build_offline_agent(
  name, data_dir, class_=None, num_actions=NUM_ACTIONS, prefetch=8, **kwargs
):
  """Builds a small offline agent, in a graph of its own, with seed 1.

  `class_` replaces the named agent's; `prefetch` batches are prepared ahead. The gin
  bindings of the data stay until the test ends.
  """
  gin.bind_parameter('WrappedFixedReplayBuffer.prefetch', prefetch)
  # Adam's slots, unlike RMSProp's, all change at the first update.
  optimizer = tf.compat.v1.train.AdamOptimizer(0.01)
  arguments = {'optimizer': optimizer, 'seed': 1, **SMALL[name], **kwargs}
  with tf.Graph().as_default(), small_layers():
    tf.compat.v1.set_random_seed(1)
    return (class_ or OFFLINE_CLASSES[name])(
      None, num_actions, data_dir and str(data_dir), **OBSERVATION, **arguments
    )


def load_values(agent, arrays):
  """Sets variables of the agent, `{name: array}`, without new operations."""
  collection = agent._sess.graph.get_collection('variables')
  variables = {variable.op.name: variable for variable in collection}
  initializers = {variables[name].initializer: name for name in arrays}
  agent._sess.run(
    [*initializers],
    {op.inputs[1]: arrays[name] for op, name in initializers.items()},
  )


def restart(agent, first_values):
  """Returns an agent to its first update."""
  load_values(agent, first_values)
  agent.training_steps = 0
  agent.eval_mode = False
  agent.epsilon_eval = 0.0
  agent._updates_per_run = 50
  agent.begin_iteration(0)
