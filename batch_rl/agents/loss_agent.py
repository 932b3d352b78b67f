"""Base of agents that are a loss and a choice of actions.

An agent says in `loss` what it learns, and in `choose_actions` how it acts. Dopamine
does the rest online, `FixedReplayAgentMixin` offline. `ValueAgent` makes both from
parts.
"""

import contextlib
import copy
import difflib
import functools
import inspect
import pickle
import random
import secrets
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf
from absl import logging
from dopamine.tf.agents.dqn import dqn_agent

from batch_rl.agents import features, graph_checks, policies
from batch_rl.agents.batch import Batch
from batch_rl.utils import seeding
from batch_rl.utils.user_code import gin_signatures

# What a user's class may define.
_DEFINABLE = (
  'loss td_errors choose_actions acting_outputs build_networks needs uses_target '
  'estimates_returns display_name head backup terms policy'
).split()
# Arguments of methods.
_CALLED_WITH = {
  'loss': ['batch'],
  'acting_outputs': ['states'],
  'choose_actions': ['outputs', 'seed'],
}

if TYPE_CHECKING:
  DopamineAgent = dqn_agent.DQNAgent  # which a mixin precedes
else:
  DopamineAgent = object


def _is_of_user(definition: Any) -> bool:
  package = definition.__module__.partition('.')[0]
  return package not in ('batch_rl', 'dopamine', 'builtins')


class LossAgent(gin_signatures.ForwardedParameters, DopamineAgent):
  """Mixin for a Dopamine agent that defines `loss(batch)`.

  It precedes Dopamine's agent among the base classes. An agent without `loss`, or with
  a `_build_train_op` of its own, trains as Dopamine does.

  Args:
    *args: Arguments of the agent.
    seed: Seed of the run; None for an unseeded agent.
    display_name: Name in reports; None for that in the literature, else of the class.
    **kwargs: Arguments of the agent.

  Attributes:
    policy: Choice of actions; see `choose_actions`.
    needs: Names of further columns that `loss` reads, such as 'return_to_go'; see
      `dataset.sampling.columns`. `batch.return_to_go` is then a tensor.
    uses_target: Whether the agent has a target network.
    estimates_returns: Whether `q_values` are expected returns, rather than e.g. logits
      of a policy. Diagnostics compare them with logged returns.
    networks: Networks by name, 'online' first.
    targets: Target copies of `networks` that have one.
    frozen_policies: Trained policies of other runs that it reads, for the record of its
      run: `{'<base_dir>, <iteration>': identity}`, 'last' for the newest iteration.
  """

  policy: policies.Policy = policies.Greedy()
  needs: tuple[str, ...] = ()
  uses_target = True
  estimates_returns = True

  def __init__(
    self,
    *args: Any,
    seed: int | None = None,
    display_name: str | None = None,
    **kwargs: Any,
  ):
    if display_name is not None:
      self.display_name = display_name
    # Renaming this key would change the results of REM.
    self._loss_seed = seeding.derive(seed, 'mixtures')
    if self._loss_seed is None:
      self._loss_seed = secrets.randbits(31)
    self.networks: dict[str, tf.keras.Model] = {}
    self.targets: dict[str, tf.keras.Model] = {}
    self._inputs: dict[str, Callable[[tf.Tensor], tf.Tensor]] = {}
    self.frozen_policies: dict[str, dict[str, Any]] = {}
    self._calls: dict[Any, Any] | None = None  # within `_update`
    self._scalars: dict[str, tf.Tensor] = {}
    self._choice: Any = None  # an `ActionChoice`, if it defines the actions
    if isinstance(self.needs, str):  # one name
      self.needs = (self.needs,)
    self._check_definitions()
    if gin_signatures.next_accepts(self, LossAgent, 'seed'):
      kwargs['seed'] = seed
    wants_gpu = 'gpu' in str(kwargs.get('tf_device')).lower()
    if wants_gpu and not tf.config.list_physical_devices('GPU'):
      # TensorFlow would log hundreds of lines about operations that it moves there.
      kwargs['tf_device'] = '/cpu:*'
    super().__init__(*args, **kwargs)

  def _check_definitions(self):
    """Checks what the user's classes define.

    Names that are almost those of what they may define are a warning.

    Raises:
      ValueError: If a definition has no effect, or a method takes other arguments.
    """
    agent, bases = type(self).__name__, type(self).__mro__
    owners = [base for base in bases if _is_of_user(base)]
    own = {name for owner in owners for name in vars(owner) if name[0] != '_'}
    settings = {*inspect.signature(type(self).__init__).parameters} - {
      *_DEFINABLE
    }
    # A constructor of the user's may pass them on.
    if any(_is_of_user(vars(base).get('__init__', object)) for base in owners):
      settings.clear()
    for name in sorted(own):
      first = next(base for base in bases if name in vars(base))
      if name in _DEFINABLE and first not in owners:
        late = next(owner for owner in owners if name in vars(owner))
        raise ValueError(
          f'{late.__name__}.{name} has no effect, since {first.__name__} precedes it: '
          f'put {late.__name__} first among the base classes of {agent}.'
        )
      if name in settings and not hasattr(vars(first)[name], '__get__'):
        raise ValueError(
          f'{agent}.{name} does not set the argument {name}: bind it in gin, pass it to '
          'super().__init__, or rename the attribute.'
        )
      near = difflib.get_close_matches(name, _DEFINABLE, 1, 0.8)
      if near and near[0] not in own:
        logging.warning(
          '%s defines %s, which the package does not use: did you mean %s?',
          *(agent, name, near[0]),
        )
    for name, given in _CALLED_WITH.items():
      if name == 'loss' and not self.learns_by_loss():
        continue
      try:
        inspect.signature(getattr(self, name)).bind(*given)
      except TypeError as error:
        raise ValueError(
          f'{agent}.{name} is called with ({", ".join(given)}): {error}.'
        ) from error

  def loss(self, batch: Batch) -> tf.Tensor:
    """Returns the loss of each transition, float32 (n,).

    It is traced into functions of the graph, for the update and for diagnostics, and
    not called again. The optimiser minimises the mean over the batch. It trains all
    weights except target copies and layers with `trainable = False`.

    Args:
      batch: Transitions.
    """
    raise NotImplementedError(f'{type(self).__name__} defines no loss.')

  def acting_outputs(self, states: tf.Tensor) -> Any:
    """Returns the outputs, (n, ...), for `choose_actions`; by default `policy.outputs`.

    Args:
      states: States, (n, *observation_shape, stack_size).
    """
    return self.policy.outputs(self, states)

  def choose_actions(self, outputs: Any, seed: tf.Tensor) -> tf.Tensor:
    """Returns an action for each state, integers (n,); `policy` chooses by default.

    It is the only definition of how the agent acts, in training and evaluation, in
    one emulator or several. Epsilon-greedy exploration is added to it. An action
    depends on the outputs for its own state only.

    Args:
      outputs: Result of `acting_outputs` for n states.
      seed: Seed for `tf.random.stateless_*`, int64 (2,), for a policy that samples.
        In acting, each state has its own seed and its own call; `backups.Double`
        chooses for a batch with one seed.
    """
    return self.policy(outputs, seed)

  # Those of the package, see `_chooses`.
  _CHOICES: tuple[Callable[..., Any], ...] = (choose_actions,)

  def build_networks(self) -> None:
    """Makes further networks, by `add_network`; none by default."""

  def add_network(
    self,
    name: str,
    create: Callable[..., tf.keras.Model],
    target: bool = False,
    on_features: bool = False,
    on_torso: bool = False,
  ) -> None:
    """Adds a network, whose weights the loss trains.

    Args:
      name: Name for `network_outputs`, and scope of the variables.
      create: Function `(name=...)` that makes a Keras model or layer. Its first call
        has the states alone, so further arguments of its `call` need default values.
      target: Whether it has a target copy, synchronised when the online network's is.
      on_features: Whether it reads `features` instead of the states.
      on_torso: Whether it reads `torso` instead of the states.

    Raises:
      ValueError: If another network has the name, a target copy would not read the
        states, both `on_features` and `on_torso` are given, `create` is a network, or
        the agent is complete.
    """
    if hasattr(self, '_saver'):  # Checkpoints would not have the weights.
      raise ValueError(
        f'The network {name!r} is made when {type(self).__name__} is already built: '
        'call add_network in build_networks.'
      )
    if on_features and on_torso:
      raise ValueError(
        f'{name!r} reads either features or torso: give one of on_features and on_torso.'
      )
    if target and (on_features or on_torso):
      raise ValueError(
        f'The target copy of {name!r} would read the online network: give target=False, '
        'or let the network read the states.'
      )
    if name in self.networks:
      raise ValueError(
        f'{type(self).__name__} has two networks {name!r}: give each its own name.'
      )
    if isinstance(create, tf.keras.layers.Layer):
      kind = type(create).__name__
      raise ValueError(
        f'The network {name!r} is a {kind}: give the function that makes it, e.g. '
        f'lambda name: {kind}(..., name=name).'
      )
    self.networks[name] = create(name=name)
    if on_features or on_torso:
      self._inputs[name] = self.features if on_features else self.torso
    self.network_outputs(name, self.state_ph)  # makes the weights
    if target:
      self.targets[name] = create(name=f'{name}_target')
      self._call_copy(name)

  def _call_copy(self, name):
    """Calls a target copy, which makes its weights."""
    before = tf.compat.v1.trainable_variables()
    self.target_outputs(name, self.state_ph)
    owners = [c for c in type(self).__mro__ if '_build_sync_op' in vars(c)]
    # Another one may find weights by their scope.
    if owners == [LossAgent, dqn_agent.DQNAgent]:
      graph_checks.check_tracked(self.targets[name], before)

  def network_outputs(self, name: str, states: tf.Tensor, *inputs: Any) -> Any:
    """Returns a network's outputs, computed once per update for each input.

    Args:
      name: Name of the network, see `add_network`; 'online' for the online network.
      states: States, (n, *observation_shape, stack_size).
      *inputs: Further tensors that its `call` takes.

    Raises:
      ValueError: If there is no such network.
    """
    return self._call(self.networks, name, states, *inputs)[0]

  def target_outputs(self, name: str, states: tf.Tensor, *inputs: Any) -> Any:
    """Returns the outputs of a network's target copy, like `network_outputs`."""
    return self._call(self.targets, name, states, *inputs)[0]

  def online(self, states: tf.Tensor, *inputs: Any) -> Any:
    """Returns the online network's outputs, such as `q_values` (n, num_actions)."""
    return self.network_outputs('online', states, *inputs)

  def target(self, states: tf.Tensor, *inputs: Any) -> Any:
    """Returns the target network's outputs, such as `q_values` (n, num_actions)."""
    return self.target_outputs('online', states, *inputs)

  def features(self, states: tf.Tensor) -> tf.Tensor:
    """Returns the inputs of the online network's last layer, float32 (n, k).

    Fields `features` and `torso` of the network's outputs take precedence.

    Raises:
      ValueError: If the network's last layer is not found.
    """
    return self._inputs_of('last', 'features', states)

  def torso(self, states: tf.Tensor) -> tf.Tensor:
    """Returns the inputs of the layer before, the hidden one, float32 (n, k)."""
    return self._inputs_of('hidden', 'torso', states)

  def _inputs_of(self, layer, field, states):
    outputs, calls = self._call(self.networks, 'online', states)
    if hasattr(outputs, field):
      return getattr(outputs, field)
    return features.join(getattr(calls, layer), self.online_convnet)

  def _call(self, networks, name, states, *others):
    """Returns a network's outputs, and the last calls of its layers."""
    if 'online' not in self.networks:
      raise ValueError(
        f'{type(self).__name__}._build_networks does not call super(), which its loss '
        'needs: call it, or read online_convnet and target_convnet in your loss.'
      )
    if name not in networks:
      kind = 'network' if networks is self.networks else 'target copy'
      raise ValueError(
        f'{type(self).__name__} has no {kind} {name!r}, only '
        f'{", ".join(networks) or "none"}: make it by add_network, or by a term such as '
        '@Imitation(). The online network has a target copy if the backup needs one.'
      )
    network = networks[name]
    # A tensor of a branch or loop of `loss` is not to be read outside of it.
    graph = tf.compat.v1.get_default_graph()
    key = id(network), graph, *(tensor.ref() for tensor in (states, *others))
    calls = {} if self._calls is None else self._calls
    if key not in calls:
      read = self._inputs[name](states) if name in self._inputs else states
      if network is self.networks['online']:
        calls[key] = self._recorder(read, *others)
      else:  # Features are those of the online network.
        calls[key] = network(read, *others), None
    return calls[key]

  def log_scalar(self, name: str, value: tf.Tensor) -> None:
    """Shows a scalar of `loss` in TensorBoard, as `Losses/<name>`.

    Args:
      name: Name of the scalar.
      value: Scalar, or a tensor whose mean is shown.

    Raises:
      ValueError: If the name is taken, or the value is of Python's `bool`.
    """
    if isinstance(value, bool):
      raise ValueError(
        f'{type(self).__name__}.loss logs {name} = {value}, a value of Python: compare '
        'tensors by tf.equal or tf.not_equal, as == and != compare objects.'
      )
    if name in ('Loss', *self._scalars):
      raise ValueError(
        f'{type(self).__name__}.loss logs another scalar by the name {name!r}: '
        'choose a name that is not taken.'
      )
    self._scalars[name] = tf.reduce_mean(tf.cast(value, tf.float32))

  @classmethod
  def learns_by_loss(cls) -> bool:
    """Returns whether `loss` defines the update, rather than `_build_train_op`."""
    return (
      cls.loss is not LossAgent.loss
      and cls._build_train_op is LossAgent._build_train_op
    )

  def _update(self, batch: Batch) -> tuple[tf.Operation, dict[str, tf.Tensor]]:
    """Builds an update of the weights.

    Returns:
      The update, and the scalars to log by name, float32 (). Reading a scalar alone does
      not update the weights.

    Raises:
      ValueError: If `loss` returns something else than a loss for each transition,
        or one that does not depend on the online network, or creates weights; or if
        the optimiser is not one of `tf.compat.v1.train`.
    """
    graph_checks.check_optimizer(self.optimizer, type(self))
    given = inspect.signature(type(self)).parameters.get('optimizer')
    if given is not None and self.optimizer is given.default:
      # It is one object for all agents, Dopamine's too, and keeps their graphs.
      own = self.optimizer = copy.copy(self.optimizer)
      # Removes their variables.
      tf.compat.v1.train.Optimizer.__init__(own, own._use_locking, own._name)
    with self._tracing(batch.step):
      loss = self._mean_loss(batch)
      pairs = self.optimizer.compute_gradients(
        loss,
        self._trained_weights(),
        # Keeps the backward pass of a user's network on its device.
        colocate_gradients_with_ops=True,
      )
      graph_checks.check_gradients(pairs, self.networks, type(self))
      # A function orders reads and assignments; in a graph, the loss of one network
      # might read another one that is already updated.
      computed = []
      if not tf.compat.v1.get_default_graph().building_function:
        computed = [loss, *(gradient for gradient, _ in pairs)]
      with tf.control_dependencies([c for c in computed if c is not None]):
        update = self.optimizer.apply_gradients(pairs)
    if self.online_convnet.losses:
      logging.warning(
        'Regularisation losses of the layers of %s are minimised only if %s.loss adds '
        'self.online_convnet.losses.',
        self.online_convnet.name,
        type(self).__name__,
      )
    return update, {'Loss': loss, **self._scalars}

  @contextlib.contextmanager
  def _tracing(self, step: tf.Tensor) -> Iterator[None]:
    """Context in which a batch's networks are called once, and scalars are logged.

    Args:
      step: Agent step, int64 (). A loss or a learning rate that reads
        `training_steps` gets it.
    """
    steps, self.training_steps = self.training_steps, step
    self._calls, self._scalars = {}, {}
    try:
      yield
    finally:
      self.training_steps, self._calls = steps, None

  def _mean_loss(self, batch: Batch) -> tf.Tensor:
    """Returns the mean of `loss` over a batch, float32 (), after checking it.

    Raises:
      ValueError: If `loss` returns something else than a loss for each transition,
        creates weights, or draws random numbers of Python or NumPy.
    """
    before = self._random_states()
    with self._no_new_weights():
      losses = self.loss(batch)
    if self._random_states() != before:
      raise ValueError(
        f'{type(self).__name__}.loss draws random numbers by random, np.random or Keras, '
        'but is traced once, so all updates would have the same: use '
        'tf.random.stateless_* with batch.seed.'
      )
    graph_checks.check_losses(
      losses, batch.action, f'{type(self).__name__}.loss'
    )
    return tf.reduce_mean(losses)

  def _random_states(self) -> bytes:
    """Returns the states of Python's and NumPy's generators, and of the agent's own."""
    kinds = np.random.Generator, np.random.RandomState, random.Random
    own = [v for v in vars(self).values() if isinstance(v, kinds)]
    return pickle.dumps([random.getstate(), np.random.get_state(), own])

  def td_errors(self, batch: Batch) -> tf.Tensor | None:
    """Returns the temporal-difference errors that `loss` reduces, float32 (n,).

    Diagnostics show their mean absolute value, and call it after `loss`, in the same
    graph. None, the default, shows none.
    """

  def _trained_weights(self) -> list[tf.Variable]:
    """Returns the weights that the loss trains.

    They are the trainable variables of the graph, whether of a network or not, except
    target copies and layers with `trainable = False`.
    """
    self._register_networks()
    frozen = {w.name for copy in self.targets.values() for w in copy.weights}
    roles = [getattr(self, n, None) for n in ('head', 'backup', 'policy')]
    owners = self, *filter(None, roles), *getattr(self, 'terms', ())
    for value in [v for owner in owners for v in vars(owner).values()]:
      parts = value.values() if isinstance(value, dict) else value
      for part in parts if isinstance(value, dict | list | tuple) else [value]:
        if isinstance(part, tf.keras.layers.Layer):
          frozen |= {weight.name for weight in part.non_trainable_weights}
    weights = tf.compat.v1.trainable_variables()
    return [weight for weight in weights if weight.name not in frozen]

  @contextlib.contextmanager
  def _no_new_weights(self) -> Iterator[None]:
    """Refuses new weights: an agent that only acts would not have them.

    Raises:
      ValueError: If a variable is created within.
    """

    def refuse(_, **kwargs):
      raise ValueError(
        f'{type(self).__name__}.loss, or a network that it calls, creates the weights '
        f'{kwargs.get("name") or "without a name"}: build layers in __init__ of their '
        'network, and make further networks in build_networks by self.add_network.'
      )

    with tf.variable_creator_scope(refuse), contextlib.ExitStack() as outermost:
      with tf.init_scope():  # where Keras makes weights
        outermost.enter_context(tf.variable_creator_scope(refuse))
      yield

  def _batch(
    self, transition: Mapping[str, tf.Tensor], step: tf.Tensor
  ) -> Batch:
    """Returns the batch of the update at an agent step, int64 ()."""
    for name in self.needs:
      if name not in transition:
        raise ValueError(
          f'{type(self).__name__} needs the column {name}, which its replay memory '
          'lacks: online, choose another loss or backup; in a _build_replay_buffer of '
          'your own, pass columns=self.needs.'
        )
    return Batch(
      **{n: transition[n] for n in Batch._fields if n in transition},
      step=step,
      seed=tf.stack([self._loss_seed, step]),
      columns={name: transition[name] for name in self.needs},
    )

  def _replay_batch(self) -> Batch:
    """Returns the batch of `self._replay`, of the current agent step."""
    # TensorFlow leaks 32 B for each result without dimensions.
    step = tf.numpy_function(
      lambda: np.array([self.training_steps]), [], tf.int64
    )
    return self._batch(self._replay.transition, tf.reshape(step, ()))

  def _build_train_op(self):
    if type(self).loss is LossAgent.loss:
      return super()._build_train_op()
    return self._build_update()

  def _build_update(self) -> tf.Operation:
    """Builds the update that trains on `self._replay`."""
    update, scalars = self._update(self._replay_batch())
    if op := graph_checks.stateful_draw([scalars['Loss'], self._q_argmax]):
      logging.warning(
        'The loss of %s, or its network, draws random numbers by the stateful operation '
        '%s, so a resumed run differs: use tf.random.stateless_* with batch.seed.',
        *(type(self).__name__, op),
      )
    if self.summary_writer is not None:
      for name, value in scalars.items():
        tf.compat.v1.summary.scalar(f'Losses/{name}', value)
    return update

  def _build_sync_op(self):
    """Builds the assignments of weights to target copies."""
    self._register_networks()
    build: Any = super()._build_sync_op
    is_own = build.__func__ is not dqn_agent.DQNAgent._build_sync_op
    own = build() if is_own else []  # of an agent that the mixin precedes
    # Not by name as in Dopamine: networks of Keras' functional API have other names.
    return own + [
      weight.assign(online)
      for name, target in self.targets.items()
      if not is_own or name != 'online'
      for online, weight in zip(
        self.networks[name].weights, target.weights, strict=True
      )
    ]

  def bundle_and_checkpoint(
    self, checkpoint_dir: str, iteration_number: int
  ) -> dict[str, Any] | None:
    """Saves the agent, as Dopamine does.

    Raises:
      FloatingPointError: If a weight is not finite, since the previous checkpoint
        is better.
    """
    variables = self._sess.graph.get_collection('trainable_variables')
    if not all(np.isfinite(w).all() for w in self._sess.run(variables)):
      raise FloatingPointError(
        f'Weights are not finite at agent step {self.training_steps}: training has '
        'diverged. Earlier checkpoints are kept.'
      )
    return super().bundle_and_checkpoint(checkpoint_dir, iteration_number)

  def _build_networks(self):
    """Builds the networks, and `_q_argmax` by `choose_actions`."""
    build: Any = super()._build_networks
    if build.__func__ is not dqn_agent.DQNAgent._build_networks:
      # A Dopamine agent with networks and a policy of its own.
      build()
      self._register_networks()
      self.build_networks()
      if self._chooses():
        self._refuse_two_policies('_build_networks')
      return
    self.online_convnet = self._create_network(name='Online')
    self.target_convnet = None
    if self.uses_target:
      self.target_convnet = self._create_network(name='Target')
    self._register_networks()
    self._calls = {}
    self._net_outputs = self.online(self.state_ph)
    graph_checks.check_outputs(
      self.online_convnet, self._net_outputs, self._expected_outputs()
    )
    if self.uses_target:
      self._call_copy('online')
    self.build_networks()
    outputs = self.acting_outputs(self.state_ph)
    self._calls = None
    self._choice = policies.ActionChoice(self, outputs)
    with tf.device('/cpu:*'):  # Python functions run on the CPU
      seeds = tf.numpy_function(_draw_seeds, [], tf.int64)
    actions = self._choice(outputs, tf.ensure_shape(seeds, (1, 2)))
    self._q_argmax = self._chosen = actions[0]

  def _register_networks(self):
    """Names the networks; again for a subclass whose `_build_networks` did not."""
    if 'online' in self.networks or not hasattr(self, 'online_convnet'):
      return
    self.networks = {'online': self.online_convnet, **self.networks}
    self._recorder = features.Recorder(self.online_convnet)
    if (target := getattr(self, 'target_convnet', None)) is not None:
      self.targets['online'] = target

  def _expected_outputs(self) -> dict[str, tuple[int, ...]]:
    """Returns the shape of each output that the agent reads, without the states."""
    return {'q_values': (self.num_actions,)}

  # Outputs for Dopamine's own batch, which a `_build_train_op` of a user may read.

  @functools.cached_property
  def _replay_net_outputs(self) -> Any:
    with self.state_ph.graph.as_default():
      return self.online(self._replay.states)

  @functools.cached_property
  def _replay_next_target_net_outputs(self) -> Any:
    with self.state_ph.graph.as_default():
      return self.target(self._replay.next_states)

  @classmethod
  def _chooses(cls) -> bool:
    """Returns whether a user's class overrides `choose_actions`."""
    return cls.choose_actions not in cls._CHOICES

  def _refuse_two_policies(self, other):
    raise ValueError(
      f'{type(self).__name__} overrides choose_actions and {other}, two definitions '
      f'of how it acts: remove {other}.'
    )


def _draw_seeds() -> np.ndarray:
  """Draws a seed by `random`, whose state a run saves; int64 (1, 2)."""
  return np.array([[random.getrandbits(31), random.getrandbits(31)]])
