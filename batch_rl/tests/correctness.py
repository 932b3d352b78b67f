"""Agents compared with the papers' equations on the same weights and batches."""

import dataclasses
import functools
import types
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import gin
import numpy as np
import tensorflow as tf
from dopamine.discrete_domains import run_experiment  # noqa: F401

from batch_rl.agents import backups, loss_agent
from batch_rl.baselines import agents as online_agents
from batch_rl.dataset.shards import replay_log
from batch_rl.fixed_replay import agents as offline_agents
from batch_rl.tests import cartpole, equations, gin_lines, offline_equations
from batch_rl.utils import seeding

NUM_ACTIONS = 3
BATCH_SIZE = 6
UNITS = 4  # of each hidden layer
GAMMA = 0.99
# Agent steps of two updates: Adam's and RMSProp's slots matter for the second.
STEPS = (0, 4)
SEED = 1
# With these, no unit is off in all transitions, and none is at its ReLU's kink.
BATCH_SEED, WEIGHTS_SEED = 20, 370

# Agarwal et al., 2020, and for RMSProp and C51 the papers they refer to.
RMSPROP = functools.partial(
  equations.CenteredRMSProp, learning_rate=2.5e-4, decay=0.95, epsilon=1e-5
)
# As after many updates, when epsilon and the mean of gradients matter.
RMSPROP_LATER = functools.partial(RMSPROP, n=1e-4)
# beta2 is 0.999 rounded to float32, as in TensorFlow: it makes 1 - beta2 smaller by
# a factor of 1.3e-5, which would be most of the remaining error.
BETA2 = float(np.float32(0.999))
ADAM = functools.partial(
  equations.Adam, learning_rate=5e-5, epsilon=0.01 / 32, beta2=BETA2
)
ADAM_C51 = functools.partial(ADAM, learning_rate=2.5e-4)
ADAM_ONLINE = functools.partial(ADAM, epsilon=3.125e-5)


def _draw(shape, step, purpose=None):
  """Returns the numbers of U[0, 1) that an agent draws, in float64."""
  with tf.Graph().as_default(), tf.compat.v1.Session() as session:
    seed = tf.constant([seeding.derive(SEED, 'mixtures'), step], tf.int64)
    if purpose:
      seed = loss_agent.Batch(*[None] * 9, seed=seed).seed_for(purpose)
    drawn = session.run(tf.random.stateless_uniform(shape, seed))
  return drawn.astype(np.float64)


def draw_mixtures(arguments, step):
  """Returns REM's numbers of U(0, 1), divided by their sums as in the paper."""
  num_heads = arguments.get('num_heads') or arguments['num_networks']
  shape = num_heads, arguments.get('num_convex_combinations', 1)
  numbers = 1 - _draw(shape, step)  # complements, since they cannot all be zero
  return {'mixtures': numbers / numbers.sum(axis=0)}


def draw_levels(step):
  """Returns the levels of quantiles that IQN draws."""
  shape = BATCH_SIZE, LEVELS
  return {
    'taus': _draw(shape, step, 'online'),
    'next_taus': _draw(shape, step, 'target'),
  }


@dataclasses.dataclass(frozen=True, eq=False)
class Case:
  """A shipped agent with a small network, and its equation."""

  name: str  # of the algorithm in the paper, or of its config
  config: str  # name of an offline one, or a path in the package
  loss: Callable[..., float]  # (networks, batch, num_actions)
  optimizer: Callable[[], Any] = ADAM  # makes that of `equations`
  horizon: int = 1  # the n of n-step returns
  # (agent step) -> further fields of `equations.Minibatch`
  draw: Callable[[int], Mapping[str, np.ndarray]] = lambda step: {}
  arguments: Mapping[str, Any] = dataclasses.field(default_factory=dict)
  bindings: Sequence[str] = ()

  @property
  def path(self):
    name = self.config
    return name if '/' in name else f'fixed_replay/configs/{name}.gin'


def qr_dqn(kappa):
  return functools.partial(equations.qr_dqn, kappa=kappa)


def c51(vmax):
  return functools.partial(equations.c51, support=np.linspace(-vmax, vmax, 11))


_ATOMS, _HEADS = {'num_atoms': 5}, {'num_heads': 5}
_NETWORKS = {'num_networks': 3}
_MIXTURES = {'num_convex_combinations': 3}
_ONLINE = 'baselines/configs/rem.gin'
_rem, _ensemble = equations.rem, equations.ensemble_dqn
_averaged, _subnets = equations.averaged_ensemble_dqn, 'multi_network_rem'
_IDENTITY, _AVERAGE = (
  {**_NETWORKS, 'transform_strategy': name} for name in ('IDENTITY', 'AVERAGE')
)
# Names, configs, losses, the n of n-step returns, and arguments of agents. Not all with
# both n: building an agent takes a second, or with networks two.
_PAPER = (
  ('DQN (Nature)', 'dqn', equations.dqn, (1, 3), {}),
  ('DQN (Nature), later', 'dqn', equations.dqn, (1,), {}),
  ('DQN (Adam)', 'dqn_adam', equations.dqn, (1,), {}),
  ('C51', 'c51', c51(10), (1, 3), {'num_atoms': 11}),
  ('QR-DQN', 'quantile', qr_dqn(1.0), (1, 3), {**_ATOMS, 'kappa': 1.0}),
  ('QR-DQN-0', 'quantile', qr_dqn(0.0), (1,), {**_ATOMS, 'kappa': 0.0}),
  ('Ensemble-DQN', 'multi_head_dqn', _ensemble, (1, 3), _HEADS),
  ('Averaged Ensemble-DQN', 'averaged_ensemble_dqn', _averaged, (1, 3), _HEADS),
  ('REM', 'rem', _rem, (1, 3), _HEADS),
  ('REM, 3 mixtures', 'rem', _rem, (3,), {**_HEADS, **_MIXTURES}),
  ('REM, 1 head', 'rem', _rem, (1,), {'num_heads': 1}),
  ('REM, online', _ONLINE, _rem, (1,), _NETWORKS),
  ('Ensemble-DQN, networks', _subnets, _ensemble, (3,), _IDENTITY),
  ('Averaged Ensemble-DQN, networks', _subnets, _averaged, (3,), _AVERAGE),
  ('REM, networks, 3 mixtures', _subnets, _rem, (3,), _NETWORKS | _MIXTURES),
)
_OPTIMIZERS = {
  'DQN (Nature)': RMSPROP,
  'DQN (Nature), later': RMSPROP_LATER,
  'C51': ADAM_C51,
  'REM, online': ADAM_ONLINE,
}
CASES = {}
for _name, _config, _loss, _horizons, _arguments in _PAPER:
  _fields = {'arguments': _arguments}
  if _loss is _rem:
    _fields['draw'] = functools.partial(draw_mixtures, _arguments)
  for _n in _horizons:
    CASES[f'{_name}, n = {_n}'] = Case(
      *(_name, _config, _loss, _OPTIMIZERS.get(_name, ADAM), _n), **_fields
    )
CASES_ON_LOG = ('DQN (Nature), n = 3', 'C51, n = 3', 'REM, n = 3')

LEVELS = 4  # of IQN, N and N'
_IQN = {
  'draw': draw_levels,
  'bindings': (
    f'ImplicitQuantiles.num_tau_samples = {LEVELS}',
    'ImplicitQuantiles.num_quantile_samples = 3',
    'ImplicitQuantiles.quantile_embedding_dim = 5',
    'ImplicitQuantiles.kappa = 0.5',
  ),
}
# Fields of the cases of later algorithms, beside those of most.
_LATER = {
  'cql': {'arguments': _ATOMS},
  'cql_dr3': {'arguments': _ATOMS},
  'cal_ql': {
    'config': '../examples/cal_ql/cal_ql.gin',
    'arguments': {**_ATOMS, **cartpole.SMALL['dqn']},
  },
  'double': {'config': 'dqn_adam', 'arguments': {'backup': backups.Double()}},
  'dueling': {'config': 'dqn_adam', 'arguments': {'dueling': True}},
  'iqn': _IQN,
  'munchausen_iqn': {
    **_IQN,
    'bindings': (*_IQN['bindings'], 'Munchausen.tau = 0.5'),
  },
  'hl_gauss_cql': {'optimizer': functools.partial(ADAM, learning_rate=6.25e-5)},
}
for _name, _loss in offline_equations.LOSSES.items():
  _fields = {'config': _name, 'loss': _loss, **_LATER.get(_name, {})}
  CASES[_name] = Case(_name, **_fields)


class Update(NamedTuple):
  """The results of an update; None for what is unknown."""

  loss: float
  gradients: list | None  # of the arrays of all trained networks
  weights: list | None  # after the update


def make_batch(num_actions=NUM_ACTIONS, batch_size=BATCH_SIZE, seed=3):
  """Returns a batch with terminals, and errors for both pieces of the Huber loss."""
  random = np.random.default_rng(seed)
  states = random.uniform(-1, 1, (2, batch_size, 4, 1, 1))
  states *= equations.STATE_BOUNDS[:, None, None]
  actions = random.integers(num_actions, size=(2, batch_size), dtype=np.int32)
  rewards = random.normal(0, 2, (2, batch_size)).astype(np.float32)
  batch = dict(zip(('states', 'next_states'), states, strict=True))
  batch |= zip(('actions', 'next_actions'), actions, strict=True)
  # The first rewards are n-step returns without the bootstrap.
  batch |= zip(('rewards', 'return_to_go'), rewards, strict=True)
  return batch | {'terminals': np.uint8(np.arange(batch_size) % 3 == 1)}


# One per update: with the same batch twice, Adam's momentum would have no effect.
BATCHES = [make_batch(seed=BATCH_SEED + k) for k in range(len(STEPS))]


def draw_weights(shapes, seed):
  """Returns float32 arrays for kernels (inputs, outputs) and biases (outputs,).

  Every third weight and every other bias is zero: in float32 a weight that starts at
  zero keeps all digits of its update; another keeps few of them.
  """
  random = np.random.default_rng(seed)
  arrays = []
  for shape in shapes:
    if len(shape) == 2:
      # Not around zero, where the mean of many heads would vanish.
      array = random.normal(0.5, 1, shape) * np.sqrt(0.2 / shape[0])
      array[np.indices(shape).sum(axis=0) % 3 == 0] = 0
    else:
      # A unit with bias zero, whose inputs are all zero, would be at its ReLU's kink:
      # those with another bias pass most of theirs.
      array = random.uniform(0.5, 1, shape)
      array[::2] = 0
    arrays.append(array.astype(np.float32))
  return arrays


class FixedBatch:
  """Mixin for an agent: `batch`, as of `make_batch`, is the replay memory.

  Tests run the updates, and may feed other batches to its tensors.
  """

  def _build_replay_buffer(self, use_staging):
    del use_staging
    tensors = {
      name: tf.compat.v1.placeholder_with_default(array, array.shape)
      for name, array in self.batch.items()
    }
    return types.SimpleNamespace(
      **tensors,
      transition={
        **dict.fromkeys(('next_action', 'next_reward', 'indices')),
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


def build_agent(case, *mixins, data_dir='', **attributes):
  """Builds the agent of a shipped config, with CartPole's network.

  `mixins` precede the agent's class, which gets `attributes`. The weights are those of
  `draw_weights`.
  """
  gin.clear_config()
  gin_lines.load([f'batch_rl/{case.path}'], case.bindings)
  kind = 'online' if case.config.startswith('baselines') else 'offline'
  agents = {'online': online_agents, 'offline': offline_agents}[kind]
  name = gin.query_parameter(f'create_{kind}_agent.agent_name')
  bases = (*mixins, Recorded, agents.REGISTRY.find(name))
  arguments = {'tf_device': '/cpu:*', 'seed': SEED, **case.arguments}
  arguments |= {'update_horizon': case.horizon, **cartpole.OBSERVATION}
  arguments.setdefault('network', cartpole.SMALL.get(name, {}).get('network'))
  agent_class = type('Test', bases, attributes)
  with cartpole.small_layers(UNITS):
    agent = agent_class(None, NUM_ACTIONS, data_dir, **arguments)
  networks = variables_of(agent)
  for seed, variables in enumerate(networks.values(), WEIGHTS_SEED):
    arrays = draw_weights([v.shape.as_list() for v in variables], seed)
    names = [variable.op.name for variable in variables]
    cartpole.load_values(agent, dict(zip(names, arrays, strict=True)))
  start = getattr(case.optimizer(), 'n', 1)
  if start != 1:
    for variable in networks['online']:
      slot = agent.optimizer.get_slot(variable, 'rms')
      agent._sess.run(slot.assign(tf.fill(slot.shape, start)))
  return agent


def variables_of(agent):
  """Returns the variables of each network, by its name, and of the target copy."""
  networks = {name: net.weights for name, net in agent.networks.items()}
  if agent.targets:
    networks['target'] = agent.targets['online'].weights
  return networks


def _trained(networks):
  """Returns the arrays of all networks but the target copy."""
  return [a for name in networks if name != 'target' for a in networks[name]]


@functools.cache  # Building one takes a second.
def run_agent(case):
  """Returns the first weights, and an `Update` for each of `BATCHES`."""
  with tf.Graph().as_default():
    agent = build_agent(case, FixedBatch, batch=BATCHES[0])
    networks = variables_of(agent)
    first, updates = agent._sess.run(networks), []
    gradients = [agent.gradients.pop(v.name) for v in _trained(networks)]
    if agent.gradients:
      raise ValueError(f'{case} changes {", ".join(agent.gradients)}')
    for step, batch in zip(STEPS, BATCHES, strict=True):
      agent.training_steps = step
      feed = {getattr(agent._replay, k): array for k, array in batch.items()}
      fetched = [agent.minimised, gradients, agent._train_op]
      loss, values, _ = agent._sess.run(fetched, feed)
      weights = agent._sess.run(networks)
      np.testing.assert_equal(weights.get('target'), first.get('target'))
      updates.append(Update(float(loss), values, _trained(weights)))
  gin.clear_config()
  return first, updates


def transcribe(case, first, batches=BATCHES, synchronise=False):
  """Computes the updates by the papers' equations alone, in float64.

  `first` has the first weights of each network and the target copy, to which weights
  may be copied after each update.
  """
  weights = tf.nest.map_structure(np.float64, first)
  optimizers = [case.optimizer() for _ in _trained(weights)]
  updates = []
  for step, arrays in zip(STEPS, batches, strict=True):
    arrays = {name.removesuffix('s'): array for name, array in arrays.items()}
    for name in {'reward', 'return_to_go'} & arrays.keys():
      arrays[name] = arrays[name].astype(np.float64)
    discount = GAMMA**case.horizon
    batch = equations.Minibatch(**arrays, discount=discount, **case.draw(step))
    loss = functools.partial(case.loss, batch=batch, actions=NUM_ACTIONS)
    value = loss(equations.Networks(weights))
    gradients = _trained(equations.differentiate(loss, weights))
    pairs = zip(_trained(weights), gradients, strict=True)
    for optimizer, (w, g) in zip(optimizers, pairs, strict=True):
      w[...] = optimizer.step(w, g)
    after = [w.copy() for w in _trained(weights)]
    updates.append(Update(value, gradients, after))
    if synchronise:
      weights['target'] = after
  return updates


def _error(ours, expected, scales=None):
  """Returns the largest max |ours - expected| / max |expected| of pairs of arrays.

  `scales` may replace the denominators.
  """
  pairs = zip(ours, expected, strict=True)
  errors = [np.abs(a.astype(np.float64) - b).max() for a, b in pairs]
  with np.errstate(divide='ignore'):  # of a wrong equation without a gradient
    return np.max(np.divide(errors, scales or _scales(expected)))


def _scales(arrays):
  return [np.abs(array).max() for array in arrays]


def compare(first, ours, expected):
  """Returns relative errors, each the largest over the arrays.

  `step k` is the error of the change by k updates, relative to the largest change
  of the array so far. It counts weights that were zero before: float32 rounds off
  the last digits of the change of others.
  """
  zeros = [array == 0 for array in _trained(first)]

  def changes(update):
    return [w[z] for w, z in zip(update.weights, zeros, strict=True)]

  scales = np.maximum.accumulate([_scales(changes(one)) for one in expected])
  pairs = [*zip(ours, expected, strict=True)]
  errors = {'loss': max(abs(our.loss / one.loss - 1) for our, one in pairs)}
  if ours[0].gradients:
    errors['gradient'] = np.max(
      [_error(our.gradients, one.gradients) for our, one in pairs]
    )
  for k, (our, one) in enumerate(pairs):
    if our.weights:
      errors[f'weights {k + 1}'] = _error(our.weights, one.weights)
      errors[f'step {k + 1}'] = _error(changes(our), changes(one), [*scales[k]])
  return errors


def find_errors(case, batches=BATCHES, **mistake):
  """Returns the errors of an agent; `mistake` replaces fields of the equations' case."""
  first, updates = run_agent(case)
  case = dataclasses.replace(case, **mistake)
  return compare(first, updates, transcribe(case, first, batches))


def write_log(directory):
  """Logs episodes of random numbers in two shards."""
  random = np.random.default_rng(5)
  lengths = (1, 12, 2, 9, 20, 3, 15, 10)
  steps = sum(lengths)
  columns = (
    random.uniform(-1, 1, (steps, 4, 1)),
    random.integers(NUM_ACTIONS, size=steps),
    random.normal(0, 2, steps),
    np.isin(np.arange(1, steps + 1), np.cumsum(lengths)),
  )
  with replay_log.ReplayLog(directory, (4, 1), np.float64, 50, 1) as log:
    for row in zip(*columns, strict=True):
      log.add(*row)


def _logged_batch(log, rows, horizon):
  """Returns the batch of transitions that begin at rows of a log."""
  returns = [
    equations.n_step(log['reward'], log['terminal'], row, horizon, GAMMA)
    for row in rows
  ]
  # The next state of a terminal transition is arbitrary.
  following = np.minimum(np.add(rows, horizon), len(log['reward']) - 1)
  return {
    'states': log['observation'][rows],
    'next_states': log['observation'][following],
    'actions': log['action'][rows],
    'rewards': np.array([total for total, _ in returns]),
    'terminals': np.array([ended for _, ended in returns]),
  }


def compare_on_log(case, data_dir):
  """Compares two updates on data from disk, sampled as in training.

  The target network is synchronised after the first update. Gradients and the weights
  after it are unknown.
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
      same = (batch.state[:, None, ..., 0] == log['observation']).all((2, 3))
      batches.append(_logged_batch(log, same.argmax(1), case.horizon))
    first = agent._sess.run(variables_of(agent))
    losses = [float(loss) for loss in agent.train_steps(STEPS[-1] + 1)]
    weights = _trained(agent._sess.run(variables_of(agent)))
  gin.clear_config()
  ours = [Update(losses[0], None, None), Update(losses[1], None, weights)]
  expected = transcribe(case, first, batches, synchronise=True)
  return compare(first, ours, expected)
