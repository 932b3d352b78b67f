"""CartPole's agents and data: small enough to build many of them."""

import numpy as np
import tensorflow as tf
from dopamine.discrete_domains import gym_lib

from batch_rl.dataset.shards import replay_log, shard_files, shard_reader
from batch_rl.multi_head import gym_helpers

NUM_ACTIONS = 2
OBSERVATION = {
  'observation_shape': (4, 1),
  'observation_dtype': tf.float64,
  'stack_size': 1,
}
# What makes each agent, by its name in `AGENTS`, a small one.
SMALL = {
  'random': {},
  'dqn': {'network': gym_lib.CartpoleDQNNetwork},
  'c51': {'network': gym_lib.CartpoleRainbowNetwork, 'num_atoms': 11},
  'quantile': {
    'network': gym_helpers.CartpoleQuantileNetwork,
    'num_atoms': 5,
  },
  'multi_head_dqn': {
    'network': gym_helpers.CartpoleMultiHeadQNetwork,
    'transform_strategy': 'STOCHASTIC',
    'num_heads': 5,
  },
  'multi_network_dqn': {
    'network': gym_helpers.CartpoleMultiNetworkQNetwork,
    'num_networks': 2,
  },
}


def write_log(directory, reward=1.0):
  """Logs six episodes in two shards, without learning anything from them."""
  random = np.random.default_rng(0)
  log = replay_log.ReplayLog(
    str(directory), (4, 1), np.float64, shard_capacity=50, stack_size=1
  )
  for length in (12, 9, 20, 15, 17, 10):
    for step in range(length):
      observation = random.uniform(-1, 1, (4, 1))
      log.add(observation, step % NUM_ACTIONS, reward, step == length - 1)
  log.close()


def read_log(directory):
  """All rows on disk in time order, `{column: (n, ...)}`.

  The format's rule: a shard's last row (but shard 0's), then those up to the
  cursor.
  """
  parts = []
  for suffix in shard_files.list_suffixes(str(directory)):
    loaded = shard_reader.read_shard(str(directory), suffix)
    last = [loaded.capacity - 1] if suffix else []
    rows = [*last, *range(loaded.add_count % loaded.capacity)]
    parts.append(
      {name: loaded.columns[name][rows] for name in shard_files.COLUMNS}
    )
  return {
    name: np.concatenate([part[name] for part in parts])
    for name in shard_files.COLUMNS
  }


def values(agent):
  """All of the agent's variables, `{name: array}`."""
  variables = agent._sess.graph.get_collection('variables')
  return agent._sess.run({v.op.name: v for v in variables})


def weights(agent, network):
  """The weights of the 'Online' or the 'Target' network, as one vector."""
  variables = agent._sess.graph.get_collection('trainable_variables', network)
  return np.concatenate([array.ravel() for array in agent._sess.run(variables)])
