"""Agents compared with the papers' equations on the same weights and batches."""

import dataclasses
import functools
import types
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import gin
import numpy as np
import tensorflow as tf
from dopamine.discrete_domains import run_experiment  # noqa: F401

from batch_rl.agents import loss_agent
from batch_rl.baselines import agents as online_agents
from batch_rl.dataset.shards import replay_log
from batch_rl.fixed_replay import agents as offline_agents
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
  """A shipped agent with a small network, and its equation."""

  name: str  # of the algorithm in the paper
  config: str  # gin file of all that is not in `arguments`
  equation: Callable[..., equations.Loss]  # (q, target_q, transitions, ...)
  optimizer: Callable[[], Any]  # makes that of `equations`
  estimates: int | None  # outputs per action; None: no such axis
  num_networks: int = 1  # separate networks, each with one estimate
  num_mixtures: int = 0  # drawn for each update
  horizon: int = 1  # the n of n-step returns
  arguments: Mapping[str, Any] = dataclasses.field(default_factory=dict)
  terms: Mapping[str, Any] = dataclasses.field(default_factory=dict)


def _case(name, config, equation, optimizer=ADAM, estimates=None, **kwargs):
  """Returns the case of an offline config; further keywords are the agent's."""
  fields = {
    field: kwargs.pop(field)
    for field in ('num_mixtures', 'terms')
    if field in kwargs
  }
  if 'kappa' in kwargs:
    fields['terms'] = {'kappa': kwargs['kappa']}
  if fields.get('num_mixtures', 0) > 1:
    kwargs['num_convex_combinations'] = fields['num_mixtures']
  return Case(
    name,
    f'fixed_replay/configs/{config}.gin',
    equation,
    optimizer,
    estimates,
    kwargs.get('num_networks', 1),
    arguments=kwargs,
    **fields,
  )


_quantiles = functools.partial(
  _case,
  config='quantile',
  equation=equations.qr_dqn,
  estimates=20,
  num_atoms=20,
)
_networks = functools.partial(
  _case, config='multi_network_rem', estimates=3, num_networks=3
)
_ONE_AND_THREE_STEPS = (
  _case('DQN (Nature)', 'dqn', equations.dqn, RMSPROP),
  _case(
    'C51',
    'c51',
    equations.c51,
    ADAM_C51,
    51,
    terms={'support': np.linspace(-10, 10, 51)},
  ),
  _quantiles('QR-DQN', kappa=1.0),
  _case(
    'Ensemble-DQN', 'multi_head_dqn', equations.ensemble_dqn, estimates=200
  ),
  _case(
    'Averaged Ensemble-DQN',
    'averaged_ensemble_dqn',
    equations.averaged_ensemble_dqn,
    estimates=200,
  ),
  _case('REM', 'rem', equations.rem, estimates=200, num_mixtures=1),
)
# Not all with both: building an agent takes a second, or with networks two.
_ONE_STEP = (
  _case('DQN (Nature), later', 'dqn', equations.dqn, RMSPROP_LATER),
  _case('DQN (Adam)', 'dqn_adam', equations.dqn),
  _quantiles('QR-DQN-0', kappa=0.0),
  _case(
    'REM, 1 head', 'rem', equations.rem, ADAM, 1, num_mixtures=1, num_heads=1
  ),
  dataclasses.replace(
    _networks('REM, online', equation=equations.rem, num_mixtures=1),
    config='baselines/configs/rem.gin',
    optimizer=ADAM_ONLINE,
  ),
)
_THREE_STEPS = (
  _case('REM, 3 mixtures', 'rem', equations.rem, estimates=200, num_mixtures=3),
  *(
    _networks(
      f'{name}, networks', equation=equation, transform_strategy=strategy
    )
    for name, equation, strategy in (
      ('Ensemble-DQN', equations.ensemble_dqn, 'IDENTITY'),
      ('Averaged Ensemble-DQN', equations.averaged_ensemble_dqn, 'AVERAGE'),
    )
  ),
  _networks(
    'REM, networks, 3 mixtures', equation=equations.rem, num_mixtures=3
  ),
)
CASES = {
  f'{case.name}, n = {case.horizon}': case
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

  `rewards` are n-step returns without the bootstrap.
  """

  states: np.ndarray  # float64 (B, 4, 1, 1)
  next_states: np.ndarray  # float64 (B, 4, 1, 1)
  actions: np.ndarray  # int32 (B,)
  rewards: np.ndarray  # float32 (B,)
  terminals: np.ndarray  # uint8 (B,)


class Updates(NamedTuple):
  """The results of two updates; an empty list for what is unknown."""

  losses: list
  gradients: list  # of each update, a list as the weights
  weights: list  # arrays after each update, or after the last alone
  margins: list  # smallest absolute input of a ReLU in each update


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
  """Returns float32 arrays for kernels (inputs, outputs) and biases (outputs,).

  Every other weight is zero: in float32 a weight that starts at zero keeps all
  digits of its update; another keeps few of them.
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


class FixedBatch:
  """Mixin for an agent: `batch`, a `Batch` as a dict, is the replay memory.

  Tests run the updates, and may feed other batches to its tensors.
  """

  def _build_replay_buffer(self, use_staging):
    del use_staging
    tensors = {
      name: tf.compat.v1.placeholder_with_default(array, array.shape)
      for name, array in self.batch.items()
    }
    unused = dict.fromkeys(('next_action', 'next_reward', 'indices'))
    return types.SimpleNamespace(
      **tensors,
      transition={
        **unused,
        **{name.removesuffix('s'): tensors[name] for name in tensors},
      },
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


class Recorded:
  """Mixin for an agent: records the loss that is minimised, and its gradients."""

  def _build_networks(self):
    super()._build_networks()
    compute = self.optimizer.compute_gradients

    def record(loss, *args, **kwargs):
      pairs = compute(loss, *args, **kwargs)
      self.minimised = loss
      self.gradients = {v.name: g for g, v in pairs if g is not None}
      return pairs

    self.optimizer.compute_gradients = record


def build_agent(
  case, *mixins, data_dir='', units=UNITS, bindings=(), **attributes
):
  """Builds the agent of a shipped config, with CartPole's network.

  `mixins` precede the agent's class, which gets `attributes`. The weights are those of
  `draw_weights`.
  """
  gin.clear_config()
  command_line.load_gin([f'batch_rl/{case.config}'], bindings)
  registry, create = (
    (online_agents.REGISTRY, 'create_online_agent')
    if case.config.startswith('baselines')
    else (offline_agents.REGISTRY, 'create_offline_agent')
  )
  name = gin.query_parameter(f'{create}.agent_name')
  bases = (*mixins, Recorded, registry.find(name))
  arguments = {**case.arguments}
  arguments.setdefault('network', cartpole.SMALL.get(name, {}).get('network'))
  with cartpole.small_layers(units):
    agent = type('Test', bases, attributes)(
      None,
      NUM_ACTIONS,
      data_dir,
      **cartpole.OBSERVATION,
      update_horizon=case.horizon,
      tf_device='/cpu:*',
      seed=SEED,
      **arguments,
    )
  for seed, scope in enumerate(('Online', 'Target')):
    variables = trainable(agent, scope)
    arrays = draw_weights([v.shape.as_list() for v in variables], seed)
    names = [variable.op.name for variable in variables]
    cartpole.load_values(agent, dict(zip(names, arrays, strict=True)))
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
        [agent.minimised, gradients, agent._train_op], feed
      )
      updates.losses.append(loss)
      updates.gradients.append(values)
      updates.weights.append(agent._sess.run(online))
    np.testing.assert_equal(agent._sess.run(target), before)
  gin.clear_config()
  return updates


def draw_mixtures(case):
  """Makes mixtures, by the paper and in float64, of the numbers an agent draws.

  Returns `{agent step: (K, M)}`; empty for an agent that draws none.
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


def first_weights(case):
  """Returns the first weights of online and target network, lists of arrays."""
  last = NUM_ACTIONS * (case.estimates or 1) // case.num_networks
  hidden = [(4, UNITS), (UNITS,), (UNITS, UNITS), (UNITS,)]
  shapes = [*hidden, (UNITS, last), (last,)] * case.num_networks
  return tuple(
    [array.astype(np.float64) for array in draw_weights(shapes, seed)]
    for seed in (0, 1)
  )


def transcribe(
  case, batches=BATCHES, synchronise=False, mixtures=None, **changes
):
  """Computes the updates by the papers' equations alone, in float64.

  `batches` has one `Batch` for each update, `mixtures` those of each agent step (None
  for the agent's own). `changes` replace fields of the case, or 'discount'.
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
    passes, q = _outputs(case, weights, batch.states)
    _, target_q = _outputs(case, target_weights, batch.next_states)
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


def _outputs(case, weights, states):
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


def _largest(ours, expected):
  """Returns the largest max |ours - expected| / max |expected| of pairs of arrays."""
  return max(
    np.max(np.abs(np.float64(a) - b)) / np.max(np.abs(b))
    for a, b in zip(ours, expected, strict=True)
  )


def compare(case, ours, expected):
  """Returns relative errors, each the largest over the arrays.

  `step k` is the error of the change by k updates, relative to the largest change
  of the array so far. It counts weights that were zero before: float32 rounds off
  the last digits of the change of others.
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


def write_log(directory):
  """Logs episodes of random numbers in two shards."""
  random = np.random.default_rng(5)
  lengths = (1, 12, 2, 9, 20, 3, 15, 10)
  steps = sum(lengths)
  observations = random.uniform(-1, 1, (steps, 4, 1))
  actions = random.integers(NUM_ACTIONS, size=steps)
  rewards = random.normal(0, 2, steps)
  terminals = np.isin(np.arange(1, steps + 1), np.cumsum(lengths))
  with replay_log.ReplayLog(
    str(directory), (4, 1), np.float64, shard_capacity=50, stack_size=1
  ) as log:
    for row in zip(observations, actions, rewards, terminals, strict=True):
      log.add(*row)


def _logged_batch(log, rows, horizon):
  """Returns the `Batch` of transitions that begin at rows of a log."""
  returns = [
    equations.n_step(log['reward'], log['terminal'], row, horizon, GAMMA)
    for row in rows
  ]
  # The next state of a terminal transition is arbitrary.
  following = np.minimum(np.add(rows, horizon), len(log['reward']) - 1)
  return Batch(
    log['observation'][rows][..., None],
    log['observation'][following][..., None],
    log['action'][rows],
    np.array([total for total, _ in returns]),
    np.array([ended for _, ended in returns]),
  )


def compare_on_log(case, data_dir):
  """Compares two updates on data from disk, sampled as in training.

  The target network is synchronised after the first update.

  Returns the errors of `compare`, without gradients and first weights.
  """
  log = cartpole.read_log(data_dir)
  with tf.Graph().as_default():
    agent = build_agent(case, data_dir=str(data_dir))
    agent.begin_iteration(0)
    drawn = agent._replay.memory.sampler.batches(
      0, agent._replay.batch_size, len(STEPS), 'stacks'
    )
    batches = []
    for batch in drawn:
      states = batch.state[:, None, ..., 0]
      same = (states == log['observation']).all((2, 3))
      batches.append(_logged_batch(log, same.argmax(1), case.horizon))
    losses = list(agent.train_steps(STEPS[-1] + 1))
    weights = agent._sess.run(trainable(agent, 'Online'))
  gin.clear_config()
  expected = transcribe(case, batches, synchronise=True)
  return compare(case, Updates(losses, [], [weights], []), expected)
