"""Agents of later papers compared with their equations on the same weights and batches."""

import functools
import types

import numpy as np
import tensorflow as tf

from batch_rl.agents import backups, loss_agent
from batch_rl.tests import (
  cartpole,
  cartpole_networks,
  correctness,
  offline_equations,
)
from batch_rl.utils import seeding

ACTIONS, UNITS, B = correctness.NUM_ACTIONS, 4, 6
# Arguments of the agents, beside those of their gin files.
ARGUMENTS = {
  'cql': {'num_atoms': 5},
  'cql_dr3': {'num_atoms': 5},
  'cal_ql': {
    'num_atoms': 5,
    'network': cartpole_networks.CartpoleQuantileNetwork,
  },
  'double': {'backup': backups.Double()},
  'dueling': {'dueling': True},
}
LEVELS = 4  # of IQN, N and N'
IQN = [
  f'ImplicitQuantiles.num_tau_samples = {LEVELS}',
  'ImplicitQuantiles.num_quantile_samples = 3',
  'ImplicitQuantiles.quantile_embedding_dim = 5',
  'ImplicitQuantiles.kappa = 0.5',
]


def make_batch(seed):
  """Returns the arrays of a batch, as `correctness.FixedBatch` reads them."""
  random = np.random.default_rng(seed)
  batch = correctness.make_batch(ACTIONS, B, seed)._asdict()
  batch['next_actions'] = random.integers(ACTIONS, size=B, dtype=np.int32)
  batch['return_to_go'] = random.normal(0, 2, B).astype(np.float32)
  return batch


BATCHES = [make_batch(seed) for seed in (20, 21)]


def weights_of(agent):
  """Returns the variables of each network, by its name, and of the target copy."""
  networks = {name: net.weights for name, net in agent.networks.items()}
  if agent.targets:
    networks['target'] = agent.targets['online'].weights
  return networks


def draw_levels(step, purpose):
  """Returns the levels that IQN draws for an update, (B, N)."""
  seed = [seeding.derive(correctness.SEED, 'mixtures'), step]
  batch = loss_agent.Batch(*[None] * 9, seed=tf.constant(seed, tf.int64))
  shape = B, LEVELS
  drawn = tf.random.stateless_uniform(shape, batch.seed_for(purpose))
  with tf.compat.v1.Session() as session:
    return session.run(drawn).astype(np.float64)


def minibatch(arrays, step):
  with tf.Graph().as_default():
    levels = [draw_levels(step, name) for name in ('online', 'target')]
  return offline_equations.Minibatch(
    arrays['states'].reshape(B, 4),
    arrays['next_states'].reshape(B, 4),
    arrays['actions'],
    arrays['next_actions'],
    arrays['rewards'].astype(np.float64),
    arrays['terminals'],
    arrays['return_to_go'].astype(np.float64),
    correctness.GAMMA,
    *levels,
  )


def gradient(loss, weights, batch):
  """Returns central differences of a loss, like `weights` without the target copy."""
  fixed = offline_equations.Networks(
    {name: [w.copy() for w in arrays] for name, arrays in weights.items()}
  )
  networks = offline_equations.Networks(weights, fixed)
  gradients, change = {}, 1e-6
  for name, arrays in weights.items():
    if name == 'target':
      continue
    gradients[name] = [np.zeros_like(array) for array in arrays]
    for array, result in zip(arrays, gradients[name], strict=True):
      for i in np.ndindex(array.shape):
        before, values = array[i], []
        for array[i] in (before + change, before - change):
          values.append(loss(networks, batch, ACTIONS))
        array[i] = before
        result[i] = (values[0] - values[1]) / (2 * change)
  return gradients


def largest(ours, expected):
  """Returns the largest error of arrays, relative to the largest expected value."""
  scale = max(np.abs(array).max() for array in expected)
  errors = zip(ours, expected, strict=True)
  return max(np.abs(a - b).max() for a, b in errors) / scale


def make_case(name):
  """Returns what `correctness.build_agent` reads, by the name of an equation."""
  configs = dict.fromkeys(['double', 'dueling'], 'dqn_adam')
  config = f'fixed_replay/configs/{configs.get(name, name)}.gin'
  if name == 'cal_ql':
    config = '../examples/cal_ql/cal_ql.gin'
  return types.SimpleNamespace(
    name=name,
    config=config,
    optimizer=functools.partial(
      correctness.ADAM,
      learning_rate=6.25e-5 if name == 'hl_gauss_cql' else 5e-5,
    ),
    horizon=1,
    arguments=ARGUMENTS.get(name, {}),
  )


@functools.cache  # Building one takes a second.
def run_agent(name):
  """Returns the first weights, and the losses, gradients and weights of two updates."""
  with tf.Graph().as_default():
    agent = correctness.build_agent(
      *(make_case(name), correctness.FixedBatch),
      units=UNITS,
      bindings=IQN if 'iqn' in name else [],
      batch=BATCHES[0],
    )
    variables = weights_of(agent)
    first, updates = {}, []
    for seed, (network, some) in enumerate(variables.items()):
      shapes = [variable.shape.as_list() for variable in some]
      first[network] = correctness.draw_weights(shapes, seed)
      for bias in first[network][1::2]:
        bias[bias == 0] = 0.05  # otherwise a ReLU may be at its kink
      names = [variable.op.name for variable in some]
      cartpole.load_values(agent, dict(zip(names, first[network], strict=True)))
    trained = {n: some for n, some in variables.items() if n != 'target'}
    gradients = {
      n: [agent.gradients.pop(variable.name) for variable in some]
      for n, some in trained.items()
    }
    assert not agent.gradients
    for step, batch in zip(correctness.STEPS, BATCHES, strict=True):
      agent.training_steps = step
      feed = {getattr(agent._replay, k): v for k, v in batch.items()}
      fetches = [agent.minimised, gradients, agent._train_op]
      loss, found, _ = agent._sess.run(fetches, feed)
      updates.append((loss, found, agent._sess.run(trained)))
  return first, updates


def compare(name):
  """Returns the relative errors of two updates, as `correctness.compare` does."""
  loss = offline_equations.LOSSES[name]
  first, updates = run_agent(name)
  weights = {
    n: [a.astype(np.float64) for a in some] for n, some in first.items()
  }
  optimizer = make_case(name).optimizer
  optimizers = {n: optimizer() for n in weights if n != 'target'}
  errors = {}
  for k, (found, gradients, after) in enumerate(updates):
    batch = minibatch(BATCHES[k], correctness.STEPS[k])
    value = loss(offline_equations.Networks(weights), batch, ACTIONS)
    expected = gradient(loss, weights, batch)

    def note(name, error):
      errors[name] = max(error, errors.get(name, 0))

    note('loss', abs(found - value) / abs(value))
    for n, optimizer in optimizers.items():
      note('gradient', largest(gradients[n], expected[n]))
      weights[n] = optimizer.step(weights[n], expected[n])
      note(f'weights {k + 1}', largest(after[n], weights[n]))
      # Weights that were zero, in kernels, keep all digits of their changes.
      changes = (
        [a[b == 0] for a, b in zip(some[::2], first[n][::2], strict=True)]
        for some in (after[n], weights[n])
      )
      note(f'step {k + 1}', largest(*changes))
  return errors
