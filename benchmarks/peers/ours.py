"""Losses of this package on given arrays, and its updates, for `benchmarks.peers`."""

import batch_rl.agents  # noqa: F401  isort: skip  (before Dopamine)

import itertools
import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
from dopamine.discrete_domains import atari_lib

from batch_rl import dataset
from batch_rl.agents import backups, policies, terms
from batch_rl.dataset import run_directories
from batch_rl.fixed_replay import agents
from batch_rl.tests import cartpole, correctness

FEATURES, UNITS, ACTIONS, QUANTILES, BATCH_SIZE = 8, 16, 4, 20, 64
GAMMA = 0.9
EPISODES = 5  # of d3rlpy's memory: 7 kB a step


class Case(NamedTuple):
  """A loss of ours that equals one of a peer.

  Attributes:
    peer: Name of the peer's loss in `theirs.LOSSES`.
    agent: Name of our agent.
    parts: Returns the arguments of the agent that make the same loss.
    difference: Where the peer differs by default, and what was done about it.
    networks: Weights of `draw_inputs` for networks that do not get those of their name.
  """

  peer: str
  agent: str
  parts: Callable[[], dict[str, Any]]
  difference: str
  networks: Mapping[str, str] = {}


def _double(**parts):
  return {'backup': backups.Double(), **parts}


def _cql(**parts):
  return {'terms': [terms.CQL()], **parts}


def _bcq():
  policy = policies.Constrained(0.3)
  return _double(terms=[terms.Imitation()], policy=policy)


SQUARED = "it has squared errors: here 'smooth_l1', the Huber loss"
# A further agent is a row here and an entry of `theirs.LOSSES`.
CASES = (
  Case('d3rlpy DQN', 'dqn', dict, 'none: mean of Huber losses, delta 1'),
  Case('d3rlpy DoubleDQN', 'dqn', _double, 'none'),
  Case(
    'd3rlpy DiscreteCQL',
    'dqn',
    lambda: _cql(**_double()),
    'it is always double: so is ours here',
  ),
  Case(
    'd3rlpy DiscreteCQL, quantiles',
    'quantile',
    lambda: _cql(**_double(), num_atoms=QUANTILES),
    'the same; both sum over quantiles, and take the mean over targets',
    networks={'online': 'online quantiles', 'target': 'target quantiles'},
  ),
  Case(
    'd3rlpy DiscreteBCQ',
    'dqn',
    _bcq,
    'its policy shares the encoder, ours has a hidden layer of its own: here both have '
    'their own. It adds 0.5 (`beta`) times the squared log-probabilities, ours 0.01 '
    'times the squared logits: here `beta` is 0, and our penalty is added to its loss',
  ),
  Case('TorchRL DQNLoss', 'dqn', dict, SQUARED),
  Case('TorchRL DQNLoss, double', 'dqn', _double, SQUARED),
  Case(
    'TorchRL DiscreteCQLLoss',
    'dqn',
    _cql,
    'it takes the targets from the online network, not from its target copy: here our '
    'target network has the online weights. It has half the squared errors, and '
    "returns two losses: here 'smooth_l1', twice the first plus the second",
    networks={'target': 'online'},
  ),
  Case(
    'TorchRL DiscreteIQLLoss',
    'iql',
    dict,
    'it sums the losses of two Q-networks, and takes the smaller value: here it has '
    'one, as ours. Its expectile is 0.5 and its inverse temperature 1: here 0.7 and 3',
  ),
)


class Network(tf.keras.Model):
  """A hidden layer of ReLUs."""

  def __init__(self, num_actions, name=None):
    super().__init__(name=name)
    self._hidden = tf.keras.layers.Dense(UNITS, 'relu', name='hidden')
    self._last = tf.keras.layers.Dense(num_actions, name='last')

  def call(self, state: tf.Tensor) -> atari_lib.DQNNetworkType:
    """Returns the Q-values of states, (n, features, 1)."""
    return atari_lib.DQNNetworkType(self._last(self._hidden(state[..., 0])))


def draw_inputs(seed: int) -> dict[str, np.ndarray]:
  """Returns a batch and the weights of all networks, `{<network>/<index>: array}`."""
  random = np.random.default_rng(seed)

  def normal(scale, *shape):
    return random.normal(0, scale, shape).astype(np.float32)

  inputs = {
    'state': normal(1, BATCH_SIZE, FEATURES),
    'next_state': normal(1, BATCH_SIZE, FEATURES),
    'action': random.integers(ACTIONS, size=BATCH_SIZE),
    'reward': normal(2, BATCH_SIZE),
    'terminal': (np.arange(BATCH_SIZE) % 3 == 1).astype(np.uint8),
    'gamma': np.array(GAMMA),
  }
  for network, sizes in {
    'online': (FEATURES, UNITS, ACTIONS),
    'target': (FEATURES, UNITS, ACTIONS),
    'online quantiles': (FEATURES, UNITS, ACTIONS * QUANTILES),
    'target quantiles': (FEATURES, UNITS, ACTIONS * QUANTILES),
    'behaviour': (FEATURES, UNITS, ACTIONS),
    'value': (FEATURES, UNITS, 1),
    'policy': (FEATURES, UNITS, ACTIONS),
  }.items():
    for i, shape in enumerate(itertools.pairwise(sizes)):
      inputs[f'{network}/{2 * i}'] = normal(0.5, *shape)
      inputs[f'{network}/{2 * i + 1}'] = normal(0.5, shape[1])
  return inputs


def compute_loss(
  case: Case, inputs: Mapping[str, np.ndarray]
) -> tuple[float, list[np.ndarray]]:
  """Returns our loss, and its gradients by all trained weights."""
  batch = {
    'states': inputs['state'][..., None],  # stacks of one
    'next_states': inputs['next_state'][..., None],
    'actions': inputs['action'].astype(np.int32),
    'rewards': inputs['reward'],
    'terminals': inputs['terminal'],
  }
  bases = correctness.FixedBatch, correctness.Recorded
  class_ = agents.REGISTRY.find(case.agent)
  with tf.Graph().as_default():
    agent = type('Agent', (*bases, class_), {'batch': batch})(
      None,
      ACTIONS,
      '',
      network=Network,
      observation_shape=(FEATURES,),
      observation_dtype=tf.float32,
      stack_size=1,
      gamma=GAMMA,
      optimizer=tf.compat.v1.train.AdamOptimizer(),
      tf_device='/cpu:*',
      seed=1,
      **case.parts(),
    )
    for name, variables in correctness.variables_of(agent).items():
      network = case.networks.get(name, name)
      arrays = {
        variable.op.name: inputs[f'{network}/{i}']
        for i, variable in enumerate(variables)
      }
      cartpole.load_values(agent, arrays)
    trained = list(agent.gradients.values())
    return agent._sess.run((tf.reduce_mean(agent.minimised), trained))


def write_episodes(directory: str, path: str) -> None:
  """Writes the first terminated episodes of a run as .npz, `<index>/<column>`."""
  ended = (e for e in dataset.open(directory).trajectories() if e.ended)
  columns = 'observation', 'action', 'reward'
  arrays = {
    f'{i}/{column}': getattr(episode, column)
    for i, episode in enumerate(itertools.islice(ended, EPISODES))
    for column in columns
  }
  np.savez(path, **arrays)


def start_updates(
  directory: str, updates: int
) -> Callable[[], dict[str, float]]:
  """Returns a function that makes updates of each agent, and returns their seconds."""
  data_dir = run_directories.only_run(directory).data_dir
  trained = {}
  for name, agent, parts in (
    ('DQN', 'dqn', {}),
    ('CQL on QR-DQN', 'quantile', _cql(**_double(), num_atoms=200)),
    ('BCQ', 'dqn', _bcq()),
  ):
    adam = tf.compat.v1.train.AdamOptimizer(6.25e-5)
    with tf.Graph().as_default():
      trained[name] = agents.REGISTRY.find(agent)(
        None, 6, data_dir, optimizer=adam, tf_device='/cpu:*', seed=1, **parts
      )
    trained[name].begin_iteration(0)

  def run() -> dict[str, float]:
    seconds = {}
    for name, agent in trained.items():
      begin = time.perf_counter()
      for _ in agent.train_steps(4 * updates):  # an update every four
        pass
      seconds[name] = time.perf_counter() - begin
    return seconds

  return run
