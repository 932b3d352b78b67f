"""Base of agents that are a loss and a choice of actions.

An agent says in `loss` what it learns, and in `choose_actions` how it acts. The rest
is Dopamine's (online) or that of `FixedReplayAgentMixin` (offline).
"""

import contextlib
import hashlib
import random
import secrets
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
from absl import logging

from batch_rl.agents import action_choice, graph_checks
from batch_rl.utils import seeding
from batch_rl.utils.user_code import gin_signatures


class Batch(NamedTuple):
  """Transitions of an update, as tensors.

  Attributes:
    state: States, (n, *observation_shape, stack_size), of the observations' dtype.
    action: Actions, int32 (n,).
    reward: Sums of the discounted n-step rewards, float32 (n,).
    next_state: States after the n steps, of the shape of `state`.
    next_action: Actions in `next_state`, int32 (n,).
    next_reward: Rewards of `next_action`, float32 (n,).
    terminal: 1 if the episode ends within the n steps, else 0; uint8 (n,).
    indices: Indices in the replay memory, integers (n,).
    step: Agent step of the update, int64 ().
    seed: Seed for `tf.random.stateless_*`, int64 (2,); each update has another.
  """

  state: tf.Tensor
  action: tf.Tensor
  reward: tf.Tensor
  next_state: tf.Tensor
  next_action: tf.Tensor
  next_reward: tf.Tensor
  terminal: tf.Tensor
  indices: tf.Tensor
  step: tf.Tensor
  seed: tf.Tensor

  def seed_for(self, purpose: str) -> tf.Tensor:
    """Returns an independent seed for one of several draws of a loss, int64 (2,).

    Two draws of the same shape from `seed` are equal; draws from the seeds of two
    purposes are independent.

    Args:
      purpose: Name of the draw, e.g. 'tau'. Another name gives other numbers.
    """
    digest = hashlib.sha256(purpose.encode()).digest()
    # Six bytes: the sum with `seed`, which has 31 bits, cannot overflow.
    offset = int.from_bytes(digest[:6], 'little')
    return self.seed + tf.constant([offset, 0], tf.int64)


class LossAgent(gin_signatures.ForwardedParameters):
  """Mixin for a Dopamine agent that defines `loss(batch)`.

  It precedes Dopamine's agent among the base classes. A class without `loss`, or with
  a `_build_train_op` of its own, trains as Dopamine does.

  Args:
    *args: Arguments of the agent.
    seed: Seed of the run; None for an unseeded agent.
    **kwargs: Arguments of the agent.
  """

  def __init__(self, *args, seed=None, **kwargs):
    # The purpose has the name of its first use, so that runs of REM stay the same.
    self._loss_seed = seeding.derive(seed, 'mixtures')
    if self._loss_seed is None:
      self._loss_seed = secrets.randbits(31)
    self._outputs: dict[Any, Any] | None = None  # within `_update`
    self._scalars: dict[str, tf.Tensor] = {}
    self._choice: Any = None  # an `ActionChoice`, if actions are those of it
    if gin_signatures.next_accepts(self, LossAgent, 'seed'):
      kwargs['seed'] = seed
    super().__init__(*args, **kwargs)

  def loss(self, batch: Batch) -> tf.Tensor:
    """Returns the loss of each transition, float32 (n,).

    It is traced once, into a function of the graph. The optimiser minimises the mean
    over the batch. All weights are trained but those of the target network, and of
    layers with `trainable = False`. Further networks are made, and called once, in
    `_build_networks`.

    Args:
      batch: Transitions.
    """
    raise NotImplementedError(f'{type(self).__name__} defines no loss.')

  def choose_actions(self, outputs: Any, seed: tf.Tensor) -> tf.Tensor:
    """Returns an action for each state, integers (n,); the greedy ones by default.

    It is the only definition of how the agent acts, in training and evaluation, in
    one emulator or several. Random actions of epsilon-greedy acting come on top. An
    action depends on the outputs for its own state only.

    Args:
      outputs: Outputs of the online network for n states, of the type that its `call`
        returns.
      seed: Seed for `tf.random.stateless_*`, int64 (2,), for a policy that samples.
        Each state then has its own seed and its own call.
    """
    return tf.argmax(outputs.q_values, axis=1)

  def online(self, states: tf.Tensor) -> Any:
    """Returns the online network's outputs; once an update for each tensor."""
    return self._call(self.online_convnet, states)

  def target(self, states: tf.Tensor) -> Any:
    """Returns the target network's outputs; once an update for each tensor."""
    return self._call(self.target_convnet, states)

  def _call(self, network, states):
    if self._outputs is None:
      return network(states)
    key = id(network), states.ref()
    if key not in self._outputs:
      self._outputs[key] = network(states)
    return self._outputs[key]

  def log_scalar(self, name: str, value: tf.Tensor) -> None:
    """Shows a scalar of `loss` in TensorBoard, as `Losses/<name>`.

    Args:
      name: Name of the scalar.
      value: Scalar, or a tensor whose mean is shown.

    Raises:
      ValueError: If the name is taken, or the value is no number.
    """
    value = tf.convert_to_tensor(value)
    if not (
      value.dtype.is_floating or value.dtype.is_integer or value.dtype.is_bool
    ):
      raise ValueError(
        f'{type(self).__name__}.loss logs {name!r}, a {value.dtype.name}: log numbers.'
      )
    if name in ('Loss', *self._scalars):
      raise ValueError(
        f'{type(self).__name__}.loss logs another scalar by the name {name!r}: '
        'choose a name that is not taken.'
      )
    self._scalars[name] = tf.reduce_mean(tf.cast(value, tf.float32))

  @classmethod
  def learns_by_loss(cls) -> bool:
    """Whether `loss` defines the update, rather than a `_build_train_op`."""
    return cls._position('loss') < cls._position('_build_train_op')

  @classmethod
  def _position(cls, name: str) -> int:
    """Returns the index in the MRO of the first class to define a method.

    `LossAgent` itself does not count.
    """
    return next(
      (
        i
        for i, base in enumerate(cls.__mro__)
        if name in vars(base) and base is not LossAgent
      ),
      len(cls.__mro__),
    )

  @classmethod
  def _check_targets(cls) -> None:
    """Refuses targets as Dopamine's agents define them, which no `loss` here calls."""
    if not cls.loss.__module__.startswith('batch_rl.'):
      return
    for name in ('_build_target_q_op', '_build_target_distribution'):
      if cls._position(name) < cls._position('loss'):
        raise ValueError(
          f'{cls.__name__} overrides {name}, which its loss does not call: '
          'override loss(batch) instead, or _build_train_op, too.'
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
    # A loss or a learning rate that reads `training_steps` gets the update's step.
    steps, self.training_steps = self.training_steps, batch.step
    self._outputs, self._scalars = {}, {}
    try:
      update, loss = self._minimise(batch)
    finally:
      self.training_steps, self._outputs = steps, None
    return update, {'Loss': loss, **self._scalars}

  def _minimise(self, batch):
    """Builds an update; returns it, and the loss, float32 ()."""
    with self._no_new_weights():
      losses = self.loss(batch)
    graph_checks.check_losses(losses, batch.action, type(self))
    if self.online_convnet.losses:
      logging.warning(
        'Regularisation losses of the layers of %s are minimised only if %s.loss adds '
        'self.online_convnet.losses.',
        self.online_convnet.name,
        type(self).__name__,
      )
    loss = tf.reduce_mean(losses)
    frozen = self._frozen_weights()
    weights = [
      weight
      for weight in tf.compat.v1.trainable_variables()
      if weight.name not in frozen
    ]
    pairs = self.optimizer.compute_gradients(
      loss,
      weights,
      # Keeps the backward pass of each network on its device.
      colocate_gradients_with_ops=True,
    )
    graph_checks.check_gradients(pairs, self.online_convnet, type(self))
    return self.optimizer.apply_gradients(pairs), loss

  def _frozen_weights(self) -> set[str]:
    """Returns the names of the weights that are not trained.

    They are those of the target network and of layers with `trainable = False`.
    """
    # By name, since with mixed precision Keras wraps the variables.
    frozen = {weight.name for weight in self.target_convnet.weights}
    for value in vars(self).values():
      for part in value if isinstance(value, (list, tuple)) else [value]:
        if isinstance(part, tf.keras.layers.Layer):
          frozen |= {weight.name for weight in part.non_trainable_weights}
    return frozen

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
        'network, further networks and variables in _build_networks, after that of the '
        'base, and call each network once there, e.g. self.value(self.state_ph).'
      )

    with contextlib.ExitStack() as stack:
      stack.enter_context(tf.variable_creator_scope(refuse))
      with tf.init_scope():  # where Keras makes weights
        stack.enter_context(tf.variable_creator_scope(refuse))
      yield

  def _batch(
    self, transition: Mapping[str, tf.Tensor], step: tf.Tensor
  ) -> Batch:
    """Returns the batch of the update at an agent step, int64 ()."""
    arrays = {name: transition[name] for name in Batch._fields[:-2]}
    return Batch(**arrays, step=step, seed=tf.stack([self._loss_seed, step]))

  def _build_train_op(self):
    if self.learns_by_loss():
      self._check_targets()
      return self._build_update()
    if type(self).loss is not LossAgent.loss:
      raise ValueError(
        f'{type(self).__name__} calls _build_train_op of a base that learns by '
        '`loss`: override loss instead, or build all of the train op.'
      )
    return super()._build_train_op()

  def _build_update(self) -> tf.Operation:
    """Builds the update that trains on `self._replay`."""
    step = tf.numpy_function(
      lambda: np.int64(self.training_steps), [], tf.int64
    )
    step = tf.ensure_shape(step, ())
    update, scalars = self._update(self._batch(self._replay.transition, step))
    if self.summary_writer is not None:
      for name, value in scalars.items():
        tf.compat.v1.summary.scalar(f'Losses/{name}', value)
    return update

  def _build_sync_op(self):
    """Builds the assignments of the online network's weights to the target network's.

    An agent with target copies of further networks overrides it and adds theirs.
    """
    # Not by name as in Dopamine: networks of Keras' functional API have other names,
    # and further networks the same beginning.
    pairs = zip(
      self.online_convnet.weights, self.target_convnet.weights, strict=True
    )
    return [target.assign(online) for online, target in pairs]

  def _build_networks(self):
    """Builds the networks as Dopamine does, and `_q_argmax` by `choose_actions`."""
    self._build_base_networks()
    if not self._acts_greedily():
      if self._chooses():
        self._refuse_two_policies('_q_argmax')
      return
    name = f'{type(self).__name__}.choose_actions'
    before = self.eval_mode, self.training_steps
    self.eval_mode = self.training_steps = _Unknown(name)
    try:
      self._choice = action_choice.ActionChoice(
        self.choose_actions, self._net_outputs, name
      )
    finally:
      self.eval_mode, self.training_steps = before
    with tf.device('/cpu:*'):  # Python functions run on the CPU
      seeds = tf.numpy_function(_draw_seeds, [], tf.int64)
    actions = self._choice(self._net_outputs, tf.ensure_shape(seeds, (1, 2)))
    self._q_argmax = self._chosen = actions[0]

  def _build_base_networks(self):
    """Builds the networks as Dopamine does.

    Raises:
      ValueError: If the network does not return the values of the actions.
    """
    try:
      super()._build_networks()
    except (AttributeError, IndexError, TypeError, ValueError):
      if hasattr(self, '_net_outputs'):  # Dopamine's message names no network.
        self._check_outputs()
      raise
    self._check_outputs()

  def _check_outputs(self):
    graph_checks.check_outputs(
      self._net_outputs, self.num_actions, self.online_convnet
    )

  @classmethod
  def _chooses(cls) -> bool:
    """Whether a subclass overrides `choose_actions`."""
    return cls.choose_actions is not LossAgent.choose_actions

  def _acts_greedily(self):
    """Whether `_q_argmax` is Dopamine's: the greedy action of `_net_outputs`."""
    argmax = next((t.op for t in self._q_argmax.op.inputs), self._q_argmax.op)
    q_values = getattr(self._net_outputs, 'q_values', None)
    return argmax.type == 'ArgMax' and argmax.inputs[0] is q_values

  def _refuse_two_policies(self, other):
    raise ValueError(
      f'{type(self).__name__} overrides choose_actions and {other}, two definitions '
      f'of how it acts: remove {other}.'
    )


class _Unknown:
  """Stands for `eval_mode` and `training_steps`, which change after the tracing."""

  def __init__(self, method: str):
    self._method = method

  def _refuse(self, *_):
    raise ValueError(
      f'{self._method} uses eval_mode or training_steps, but is traced once, before '
      'they are known: let actions depend on outputs and seed only.'
    )

  __bool__ = __int__ = __float__ = __index__ = __array__ = _refuse
  __eq__ = __ne__ = __lt__ = __le__ = __gt__ = __ge__ = _refuse  # type: ignore
  __add__ = __sub__ = __mul__ = __truediv__ = __floordiv__ = __mod__ = _refuse
  __radd__ = __rsub__ = __rmul__ = __rtruediv__ = _refuse


def _draw_seeds() -> np.ndarray:
  """Draws a seed by `random`, whose state a run saves; int64 (1, 2)."""
  return np.array([[random.getrandbits(31), random.getrandbits(31)]])
