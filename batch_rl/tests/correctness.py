"""Agents compared with the papers' equations on the same weights and batches."""

import dataclasses
import functools
import types
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import gin
import numpy as np
import tensorflow as tf
from dopamine.discrete_domains import gym_lib, run_experiment  # noqa: F401

from batch_rl.agents import loss_agent
from batch_rl.baselines import agents as online_agents
from batch_rl.dataset.shards import replay_log
from batch_rl.fixed_replay import agents as offline_agents
from batch_rl.multi_head import gym_helpers
from batch_rl.runs import command_line
from batch_rl.tests import cartpole, equations
from batch_rl.utils import seeding

NUM_ACTIONS = 3
BATCH_SIZE = 32
UNITS = 128  # of each hidden layer
GAMMA = 0.99
# Agent steps of two updates: Adam's and RMSProp's slots matter for the second.
STEPS = (0, 4)
SEED = 1

# Agarwal et al., 2020, and for RMSProp and C51 the papers they refer to.
RMSPROP = functools.partial(
  equations.CenteredRMSProp, learning_rate=2.5e-4, decay=0.95, epsilon=1e-5
)
# As after many updates, when epsilon and the mean of gradients matter.
RMSPROP_LATER = functools.partial(RMSPROP, start=1e-4)
# beta2 is 0.999 rounded to float32, as in TensorFlow: it makes 1 - beta2 smaller by
# a factor of 1.3e-5, which would be most of the remaining error.
ADAM = functools.partial(
  equations.Adam,
  learning_rate=5e-5,
  epsilon=0.01 / 32,
  beta2=float(np.float32(0.999)),
)
ADAM_C51 = functools.partial(ADAM, learning_rate=2.5e-4)
ADAM_ONLINE = functools.partial(ADAM, epsilon=3.125e-5)


@dataclasses.dataclass(frozen=True, eq=False)
class Case:
  """A shipped agent with a small network, and its equation.

  Attributes:
    name: Name of the algorithm in the paper.
    config: Shipped gin file of the agent, its optimiser and everything that is not
      in `arguments`.
    equation: Function `(q, target_q, transitions, ...)` in `equations`.
    optimizer: Function that makes the optimiser of `equations`.
    network: Network of the agent.
    estimates: Number of outputs per action; None for a Q-value without that axis.
    num_networks: Number of separate networks, each with one estimate.
    num_mixtures: Number of mixtures drawn for each update.
    horizon: The n of n-step returns.
    arguments: Arguments of the agent.
    terms: Further arguments of the equation.
  """

  name: str
  config: str
  equation: Callable[..., equations.Loss]
  optimizer: Callable[[], Any]
  network: Callable[..., tf.keras.Model]
  estimates: int | None = None
  num_networks: int = 1
  num_mixtures: int = 0
  horizon: int = 1
  arguments: Mapping[str, Any] = dataclasses.field(default_factory=dict)
  terms: Mapping[str, Any] = dataclasses.field(default_factory=dict)

  def __str__(self):
    return f'{self.name}, n = {self.horizon}'


def _heads(name, config, equation, num_mixtures=0, num_heads=200):
  arguments = {'num_heads': num_heads}
  if num_mixtures > 1:
    arguments['num_convex_combinations'] = num_mixtures
  return Case(
    name,
    f'fixed_replay/configs/{config}.gin',
    equation,
    ADAM,
    gym_helpers.CartpoleMultiHeadQNetwork,
    estimates=num_heads,
    num_mixtures=num_mixtures,
    arguments=arguments,
  )


def _networks(name, config, optimizer, strategy, equation, num_mixtures=0):
  arguments = {'num_networks': 3, 'transform_strategy': strategy, 'devices': ()}
  if num_mixtures > 1:
    arguments['num_convex_combinations'] = num_mixtures
  return Case(
    name,
    config,
    equation,
    optimizer,
    gym_helpers.CartpoleMultiNetworkQNetwork,
    estimates=3,
    num_networks=3,
    num_mixtures=num_mixtures,
    arguments=arguments,
  )


def _quantiles(name, kappa):
  return Case(
    name,
    'fixed_replay/configs/quantile.gin',
    equations.qr_dqn,
    ADAM,
    gym_helpers.CartpoleQuantileNetwork,
    estimates=20,
    arguments={'num_atoms': 20, 'kappa': kappa},
    terms={'kappa': kappa},
  )


_ONE_AND_THREE_STEPS = (
  Case(
    'DQN (Nature)',
    'fixed_replay/configs/dqn.gin',
    equations.dqn,
    RMSPROP,
    gym_lib.CartpoleDQNNetwork,
  ),
  Case(
    'C51',
    'fixed_replay/configs/c51.gin',
    equations.c51,
    ADAM_C51,
    gym_lib.CartpoleRainbowNetwork,
    estimates=51,
    terms={'support': np.linspace(-10, 10, 51)},
  ),
  _quantiles('QR-DQN', 1.0),
  _heads('Ensemble-DQN', 'multi_head_dqn', equations.ensemble_dqn),
  _heads(
    'Averaged Ensemble-DQN',
    'averaged_ensemble_dqn',
    equations.averaged_ensemble_dqn,
  ),
  _heads('REM', 'rem', equations.rem, 1),
)
# Not all with both: building an agent takes a second, or with networks two.
_ONE_STEP = (
  Case(
    'DQN (Nature), later',
    'fixed_replay/configs/dqn.gin',
    equations.dqn,
    RMSPROP_LATER,
    gym_lib.CartpoleDQNNetwork,
  ),
  Case(
    'DQN (Adam)',
    'fixed_replay/configs/dqn_adam.gin',
    equations.dqn,
    ADAM,
    gym_lib.CartpoleDQNNetwork,
  ),
  _quantiles('QR-DQN-0', 0.0),
  _heads('REM, 1 head', 'rem', equations.rem, 1, num_heads=1),
  _networks(
    'REM, online',
    'baselines/configs/rem.gin',
    ADAM_ONLINE,
    'STOCHASTIC',
    equations.rem,
    1,
  ),
)
_OFFLINE = ('fixed_replay/configs/multi_network_rem.gin', ADAM)
_THREE_STEPS = (
  _heads('REM, 3 mixtures', 'rem', equations.rem, 3),
  _networks(
    'Ensemble-DQN, networks', *_OFFLINE, 'IDENTITY', equations.ensemble_dqn
  ),
  _networks(
    'Averaged Ensemble-DQN, networks',
    *_OFFLINE,
    'AVERAGE',
    equations.averaged_ensemble_dqn,
  ),
  _networks(
    'REM, networks, 3 mixtures', *_OFFLINE, 'STOCHASTIC', equations.rem, 3
  ),
)
CASES = {
  str(case): case
  for case in (
    *_ONE_AND_THREE_STEPS,
    *_ONE_STEP,
    *(
      dataclasses.replace(case, horizon=3)
      for case in (*_ONE_AND_THREE_STEPS, *_THREE_STEPS)
    ),
  )
}
# With data from a log, too.
CASES_ON_LOG = ('DQN (Nature), n = 3', 'C51, n = 3', 'REM, n = 3')


class Batch(NamedTuple):
  """A minibatch of CartPole's transitions.

  Attributes:
    states: float64 (B, 4, 1, 1).
    next_states: float64 (B, 4, 1, 1).
    actions: int32 (B,).
    rewards: N-step returns without the bootstrap, float32 (B,).
    terminals: uint8 (B,).
  """

  states: np.ndarray
  next_states: np.ndarray
  actions: np.ndarray
  rewards: np.ndarray
  terminals: np.ndarray


class Updates(NamedTuple):
  """The results of two updates.

  Attributes:
    losses: Loss of each update.
    gradients: Gradients of each update, a list as the weights; empty if unknown.
    weights: List of arrays after each update, or only after the last if the others
      are unknown.
    margins: Smallest absolute input of a ReLU in each update; empty if unknown.
  """

  losses: list
  gradients: list
  weights: list
  margins: list


def make_batch(num_actions=NUM_ACTIONS, batch_size=BATCH_SIZE, seed=3):
  """Returns a batch with terminals, and errors for both pieces of the Huber loss."""
  random = np.random.default_rng(seed)
  return Batch(
    states=random.uniform(-1, 1, (batch_size, 4, 1, 1)),
    next_states=random.uniform(-1, 1, (batch_size, 4, 1, 1)),
    actions=random.integers(num_actions, size=batch_size, dtype=np.int32),
    rewards=random.normal(0, 2, batch_size).astype(np.float32),
    terminals=(np.arange(batch_size) % 3 == 1).astype(np.uint8),
  )


# One per update: with the same batch twice, Adam's momentum would have no effect.
BATCHES = [make_batch(seed=10 + k) for k in range(len(STEPS))]


def draw_weights(shapes, seed):
  """Draws weights, every other one zero.

  In float32 a weight that starts at zero keeps all digits of its update; another
  keeps few of them.

  Args:
    shapes: Shapes of the arrays, kernels (inputs, outputs) and biases (outputs,).
    seed: Seed of the numbers.

  Returns:
    List of float32 arrays.
  """
  random = np.random.default_rng(seed)
  arrays = []
  for shape in shapes:
    scale = np.sqrt(0.2 / shape[0]) if len(shape) == 2 else 0.1
    # Not around zero, where the mean of many heads would vanish.
    array = (scale * random.normal(0.5, 1, shape)).astype(np.float32)
    array[np.indices(shape).sum(axis=0) % 2 == 0] = 0
    arrays.append(array)
  return arrays


# --- the agents ---------------------------------------------------------------


class FixedBatch:
  """Mixin for an agent: one batch is the replay memory, and tests run the updates.

  Tests may feed other batches to its tensors.

  Attributes:
    batch: Arrays of a `Batch`, `{name: array}`.
  """

  def _build_replay_buffer(self, use_staging):
    del use_staging
    tensors = {
      name: tf.compat.v1.placeholder_with_default(array, array.shape)
      for name, array in self.batch.items()
    }
    names = {
      'states': 'state',
      'next_states': 'next_state',
      'actions': 'action',
      'rewards': 'reward',
      'terminals': 'terminal',
    }
    transition = {names[name]: tensor for name, tensor in tensors.items()}
    unused = dict.fromkeys(('next_action', 'next_reward', 'indices'))
    return types.SimpleNamespace(
      **tensors,
      transition={**unused, **transition},
      batch_size=len(self.batch['actions']),
      save=lambda *args: None,
      load=lambda *args: None,
    )

  # One update per `session.run`, in offline agents, too.
  _build_update = loss_agent.LossAgent._build_update

  def _train_step(self):
    self.training_steps += 1

  def _store_transition(self, *args):
    pass


class _Recorded:
  """Mixin for an agent: records the inputs of its optimiser.

  Attributes:
    loss: Tensor that is minimised.
    gradients: Gradients applied to the variables, `{variable name: tensor}`.
  """

  def _build_networks(self):
    super()._build_networks()
    optimizer = self.optimizer
    compute, apply = optimizer.compute_gradients, optimizer.apply_gradients

    def keep_loss(loss, *args, **kwargs):
      self.loss = loss
      return compute(loss, *args, **kwargs)

    def keep_gradients(pairs, *args, **kwargs):
      self.gradients = {
        variable.name: gradient
        for gradient, variable in pairs
        if gradient is not None
      }
      return apply(pairs, *args, **kwargs)

    optimizer.compute_gradients = keep_loss
    optimizer.apply_gradients = keep_gradients


def build_agent(case, *mixins, data_dir='', **attributes):
  """Builds the agent of a shipped config, with CartPole's network.

  Args:
    case: Agent to build.
    *mixins: Classes to put before the agent's class.
    data_dir: Directory of the shards.
    **attributes: Attributes of the class.

  Returns:
    The agent, with weights of `draw_weights` and the first slots of the case.
  """
  gin.clear_config()
  command_line.load_gin([f'batch_rl/{case.config}'], [])
  registry, create = (
    (online_agents.REGISTRY, 'create_online_agent')
    if case.config.startswith('baselines')
    else (offline_agents.REGISTRY, 'create_offline_agent')
  )
  agent_class = registry.find(gin.query_parameter(f'{create}.agent_name'))
  test_class = type('Test', (*mixins, _Recorded, agent_class), attributes)
  with cartpole.small_layers(UNITS):
    agent = test_class(
      None,
      NUM_ACTIONS,
      data_dir,
      network=case.network,
      **cartpole.OBSERVATION,
      update_horizon=case.horizon,
      tf_device='/cpu:*',
      seed=SEED,
      **case.arguments,
    )
  for seed, scope in enumerate(('Online', 'Target')):
    variables = trainable(agent, scope)
    arrays = draw_weights([v.shape.as_list() for v in variables], seed)
    initializers = [variable.initializer for variable in variables]
    values = [initializer.inputs[1] for initializer in initializers]
    agent._sess.run(initializers, dict(zip(values, arrays, strict=True)))
  start = getattr(case.optimizer(), 'start', 1)
  if start != 1:
    for variable in trainable(agent, 'Online'):
      slot = agent.optimizer.get_slot(variable, 'rms')
      agent._sess.run(slot.assign(tf.fill(slot.shape, start)))
  return agent


def trainable(agent, scope):
  """Returns the variables of the 'Online' or the 'Target' network, layer by layer."""
  return agent._sess.graph.get_collection('trainable_variables', f'{scope}/')


def run_agent(case):
  """Updates the agent on `BATCHES`; returns `Updates`."""
  updates = Updates([], [], [], [])
  with tf.Graph().as_default():
    agent = build_agent(case, FixedBatch, batch=BATCHES[0]._asdict())
    online, target = trainable(agent, 'Online'), trainable(agent, 'Target')
    gradients = [agent.gradients.pop(variable.name) for variable in online]
    if agent.gradients:
      raise ValueError(f'{case} changes {", ".join(agent.gradients)}')
    before = agent._sess.run(target)
    for step, batch in zip(STEPS, BATCHES, strict=True):
      agent.training_steps = step
      feed = {
        getattr(agent._replay, name): array
        for name, array in batch._asdict().items()
      }
      loss, values, _ = agent._sess.run(
        [agent.loss, gradients, agent._train_op], feed
      )
      updates.losses.append(loss)
      updates.gradients.append(values)
      updates.weights.append(agent._sess.run(online))
    for array, variable in zip(before, target, strict=True):
      np.testing.assert_array_equal(array, agent._sess.run(variable))
  gin.clear_config()
  return updates


def draw_mixtures(case):
  """Makes mixtures, by the paper and in float64, of the numbers an agent draws.

  Returns:
    Mixtures `{agent step: (K, M)}`; empty for an agent that draws none.
  """
  if not case.num_mixtures:
    return {}
  base = seeding.derive(SEED, 'mixtures')
  shape = (case.estimates, case.num_mixtures)
  with tf.Graph().as_default(), tf.compat.v1.Session() as session:
    numbers = session.run(
      {
        step: tf.random.stateless_uniform(shape, tf.constant([base, step]))
        for step in STEPS
      }
    )
  # The complements of U[0, 1) cannot all be zero.
  return {
    step: equations.simplex_points(1 - np.asarray(drawn, np.float64))
    for step, drawn in numbers.items()
  }


# --- a log --------------------------------------------------------------------


class Log(NamedTuple):
  """The experience of an agent, step by step.

  Attributes:
    observations: float64 (T, 4, 1).
    actions: int (T,).
    rewards: float32 (T,).
    terminals: bool (T,).
  """

  observations: np.ndarray
  actions: np.ndarray
  rewards: np.ndarray
  terminals: np.ndarray

  def find(self, states):
    """Returns the steps of states (B, 4, 1, 1)."""
    return [
      int(np.flatnonzero((self.observations == state[..., 0]).all((1, 2)))[0])
      for state in states
    ]

  def batch(self, steps, horizon):
    """Returns the `Batch` of transitions that begin at these steps."""
    returns = [
      equations.n_step(self.rewards, self.terminals, t, horizon, GAMMA)
      for t in steps
    ]
    # The next state of a terminal transition is arbitrary.
    last = len(self.rewards) - 1
    following = [min(t + horizon, last) for t in steps]
    return Batch(
      self.observations[steps][..., None],
      self.observations[following][..., None],
      self.actions[steps],
      np.array([total for total, _ in returns]),
      np.array([ended for _, ended in returns]),
    )


def write_log(directory):
  """Logs episodes of random numbers in two shards; returns the `Log`."""
  random = np.random.default_rng(5)
  lengths = (1, 12, 2, 9, 20, 3, 15, 10)
  steps = sum(lengths)
  log = Log(
    random.uniform(-1, 1, (steps, 4, 1)),
    random.integers(NUM_ACTIONS, size=steps),
    random.normal(0, 2, steps).astype(np.float32),
    np.isin(np.arange(1, steps + 1), np.cumsum(lengths)),
  )
  writer = replay_log.ReplayLog(
    str(directory), (4, 1), np.float64, shard_capacity=50, stack_size=1
  )
  for step in zip(*log, strict=True):
    writer.add(*step)
  writer.close()
  return log


# --- the transcription --------------------------------------------------------


def network_shapes(case):
  """Returns the shapes of the weights, in the order of `trainable`."""
  last = NUM_ACTIONS * (case.estimates or 1) // case.num_networks
  hidden = [(4, UNITS), (UNITS,), (UNITS, UNITS), (UNITS,)]
  network = [*hidden, (UNITS, last), (last,)]
  return network * case.num_networks


def first_weights(case):
  """Returns the first weights of online and target network, lists of arrays."""
  return tuple(
    [
      np.asarray(array, np.float64)
      for array in draw_weights(network_shapes(case), seed)
    ]
    for seed in (0, 1)
  )


def transcribe(
  case, batches=BATCHES, synchronise=False, mixtures=None, **changes
):
  """Computes the updates by the papers' equations alone, in float64.

  Args:
    case: Agent to transcribe.
    batches: One `Batch` for each update.
    synchronise: Whether the target network is synchronised after the first update.
    mixtures: Mixtures `{agent step: (K, M)}`; None for the agent's own.
    **changes: Values that replace fields of `case`, or 'discount'.

  Returns:
    `Updates`.
  """
  discount = changes.pop('discount', GAMMA**case.horizon)
  case = dataclasses.replace(case, **changes)
  mixtures = mixtures or draw_mixtures(case)
  optimizer = case.optimizer()
  weights, target_weights = first_weights(case)
  updates = Updates([], [], [], [])
  for step, batch in zip(STEPS, batches, strict=True):
    transitions = equations.Transitions(
      batch.actions, np.float64(batch.rewards), batch.terminals, discount
    )
    terms = dict(case.terms)
    if mixtures:
      terms['mixtures'] = mixtures[step]
    passes, q = outputs(case, weights, batch.states)
    _, target_q = outputs(case, target_weights, batch.next_states)
    loss = case.equation(q, target_q, transitions, **terms)
    gradients = _gradients(case, weights, passes, loss.gradient)
    weights = optimizer.step(weights, gradients)
    if synchronise:
      target_weights = weights
    updates.losses.append(loss.value)
    updates.gradients.append(gradients)
    updates.weights.append(weights)
    updates.margins.append(
      min(np.abs(sums).min() for one in passes for sums in one.sums)
    )
  return updates


def _networks_of(case, weights):
  """Returns [(kernel, bias), ...] for each network."""
  layers = list(zip(weights[::2], weights[1::2], strict=True))
  size = len(layers) // case.num_networks
  return [layers[i : i + size] for i in range(0, len(layers), size)]


def outputs(case, weights, states):
  """Returns the activations of each network, and the joint outputs per action."""
  states = states.reshape(len(states), 4)
  passes = [
    equations.forward(layers, states) for layers in _networks_of(case, weights)
  ]
  if case.num_networks > 1:
    return passes, np.stack([p.outputs for p in passes], axis=2)
  shape = (len(states), NUM_ACTIONS)
  if case.estimates:
    shape += (case.estimates,)
  return passes, passes[0].outputs.reshape(shape)


def _gradients(case, weights, passes, gradient):
  """Returns the gradient of each array of weights, from that of the outputs."""
  gradients = []
  for k, (layers, activations) in enumerate(
    zip(_networks_of(case, weights), passes, strict=True)
  ):
    own = gradient[:, :, k] if case.num_networks > 1 else gradient
    own = own.reshape(len(own), -1)
    for pair in equations.backward(layers, activations, own):
      gradients.extend(pair)
  return gradients


# --- how far apart they are ---------------------------------------------------


def relative_error(ours, expected):
  """max |ours - expected| / max |expected|."""
  expected = np.asarray(expected, np.float64)
  return np.max(np.abs(np.asarray(ours, np.float64) - expected)) / np.max(
    np.abs(expected)
  )


def _largest(ours, expected):
  """Returns the largest relative error of arrays in a list."""
  return max(map(relative_error, ours, expected))


def compare(case, ours, expected):
  """Returns relative errors, each the largest over the arrays.

  `step k` is the error of the change by k updates, relative to the largest change
  of the array so far. It counts weights that were zero before: float32 rounds off
  the last digits of the change of others.

  Args:
    case: Agent to compare.
    ours: The agent's `Updates`.
    expected: `Updates` by the equations.

  Returns:
    Errors `{name: error}`.
  """
  errors = {'loss': _largest(ours.losses, expected.losses)}
  if ours.gradients:
    errors['gradient'] = max(map(_largest, ours.gradients, expected.gradients))
  zeros = [array == 0 for array in first_weights(case)[0]]
  changes = [
    [array[zero] for array, zero in zip(weights, zeros, strict=True)]
    for weights in expected.weights
  ]
  known = range(len(STEPS))[-len(ours.weights) :]
  for k, weights in zip(known, ours.weights, strict=True):
    errors[f'weights {k + 1}'] = _largest(weights, expected.weights[k])
    errors[f'step {k + 1}'] = max(
      np.abs(array[zero] - changes[k][i]).max()
      / max(np.abs(change[i]).max() for change in changes[: k + 1])
      for i, (array, zero) in enumerate(zip(weights, zeros, strict=True))
    )
  return errors


def compare_on_log(case, data_dir, log):
  """Compares two updates on data from disk, sampled as in training.

  The target network is synchronised after the first update.

  Args:
    case: Offline agent.
    data_dir: Directory of the log.
    log: Content of the log.

  Returns:
    Relative errors of `compare`, without gradients and first weights, and the list
    of steps at which the transitions of each update begin.
  """
  with tf.Graph().as_default():
    agent = build_agent(case, data_dir=str(data_dir))
    agent.begin_iteration(0)
    memory = agent._replay.memory
    batches = memory.sampler.batches(
      0, agent._replay.batch_size, len(STEPS), 'stacks'
    )
    steps = [log.find(batch.state) for batch in batches]
    losses = list(agent.train_steps(STEPS[-1] + 1))
    weights = agent._sess.run(trainable(agent, 'Online'))
  gin.clear_config()
  batches = [log.batch(some, case.horizon) for some in steps]
  expected = transcribe(case, batches, synchronise=True)
  return compare(case, Updates(losses, [], [weights], []), expected), steps
