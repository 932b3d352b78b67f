"""Heads: what a value network predicts for each action, and its loss.

A head makes the network's last layer, reads returns from its outputs, and compares
them with targets. `Scalar` is here; heads with several outputs an action are in
`multi_head/`.
"""

import inspect
import types
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import gin
import tensorflow as tf

__all__ = ['Head', 'Returns', 'Scalar', 'huber', 'select_actions']

Network = Callable[..., tf.keras.Model]


class Returns(NamedTuple):
  """Returns of states, or of each action in states.

  Attributes:
    values: Samples or atoms of the distribution of the return, or the estimates of k
      heads, float32 (n, k) or (n, num_actions, k).
    probabilities: Probabilities of `values`, in their shape; None if all are 1 / k.
  """

  values: tf.Tensor
  probabilities: tf.Tensor | None = None

  def mean(self) -> tf.Tensor:
    """Returns the mean over the k values."""
    if self.probabilities is None:
      return tf.reduce_mean(self.values, axis=-1)
    return tf.reduce_sum(self.probabilities * self.values, axis=-1)

  def of_actions(self, actions: tf.Tensor) -> 'Returns':
    """Selects the returns of one action per state.

    Args:
      actions: Actions, integers (n,); or (n, k), an action for each of the k values.
    """
    return Returns(
      *(None if t is None else select_actions(t, actions) for t in self)
    )

  def without_gradient(self) -> 'Returns':
    """Returns the same returns as constants of the loss."""
    return Returns(*(None if t is None else tf.stop_gradient(t) for t in self))


class Head:
  """Base of the heads; the k values of a return are samples or atoms of a distribution.

  Attributes:
    reads: Names of outputs of its network besides `q_values`, float32 (n, num_actions,
      num_outputs) each. Their shapes are checked when an agent is built.
    num_outputs: Number of these outputs for each action.
  """

  reads: tuple[str, ...] = ()
  num_outputs: int = 1

  @property
  def arguments(self) -> tuple[Any, ...]:
    """Arguments of a network with these outputs, after `num_actions`."""
    return (self.num_outputs,)

  def widen(self, network: Network) -> Network:
    """Returns a network with these outputs, made from a plain one."""
    raise NotImplementedError(f'{type(self).__name__} has no method widen.')

  def create_network(
    self, network: Network, num_actions: int, name: str
  ) -> tf.keras.Model:
    """Returns a network whose outputs this head reads.

    Args:
      network: Plain network `(num_actions, name=...)`, or one with the outputs,
        `(num_actions, *arguments, name=...)`.
      num_actions: Number of actions.
      name: Scope of the variables.
    """
    if is_plain(network, self.arguments):
      network = self.widen(network)
    return network(num_actions, *self.arguments, name=name)

  def outputs(
    self, network: Callable[..., Any], states: tf.Tensor, seed: tf.Tensor
  ) -> Any:
    """Returns a network's outputs, for `returns` and `loss`.

    Args:
      network: Function of states, and of further inputs that this head draws.
      states: States, (n, ...).
      seed: Seed of the draw, int64 (2,).
    """
    return network(states)

  def returns(self, outputs: Any, batch: Any) -> Returns:
    """Returns the predicted returns of each action, (n, num_actions, k).

    Args:
      outputs: Outputs of a network for n states.
      batch: Batch of the update, for heads that draw random numbers.
    """
    raise NotImplementedError(f'{type(self).__name__} has no method returns.')

  def target_returns(self, outputs: Any, batch: Any) -> Returns:
    """Predicts the returns from which targets are made; `returns` by default."""
    return self.returns(outputs, batch)

  def greedy(self, returns: Returns, outputs: Any) -> tf.Tensor:
    """Returns the best actions, integers (n,), or (n, k) if each value has its own."""
    return tf.argmax(outputs.q_values, axis=1)

  def under(self, policy: tf.Tensor, returns: Returns) -> Returns:
    """Returns the mixture of returns over actions, with num_actions * k values.

    Args:
      policy: Probabilities of the actions, float32 (n, num_actions).
      returns: Returns of each action, (n, num_actions, k).
    """
    values, probabilities = returns
    _, num_actions, k = values.shape.as_list()
    if probabilities is None:
      probabilities = tf.fill(tf.shape(values), 1.0 / k)
    return Returns(
      tf.reshape(values, (-1, num_actions * k)),
      tf.reshape(policy[:, :, None] * probabilities, (-1, num_actions * k)),
    )

  def loss(self, outputs: Any, batch: Any, targets: Returns) -> tf.Tensor:
    """Returns the loss of each transition, float32 (n,).

    Args:
      outputs: Outputs of the online network for `batch.state`.
      batch: Batch of the update.
      targets: Targets of the returns, (n, k'), without gradient.
    """
    raise NotImplementedError(f'{type(self).__name__} has no method loss.')


def average(policy: tf.Tensor, returns: Returns) -> Returns:
  """Returns the mean of each of the k values over the actions, (n, k); see `under`."""
  return Returns(tf.reduce_sum(policy[:, :, None] * returns.values, axis=1))


class Estimates(Head):
  """Base of heads whose k values are estimates of the mean return, not samples."""

  def under(self, policy: tf.Tensor, returns: Returns) -> Returns:
    """Returns the mean of each estimate over the actions, (n, k)."""
    return average(policy, returns)


@gin.configurable
class Scalar(Estimates):
  """Q(s, a), by the Huber loss of the temporal-difference error (DQN).

  Its minimiser is the mean target only for squared errors, `delta` = None.

  Args:
    delta: Largest error with a quadratic loss, as in `huber`; None for squared errors.
      A binding has an effect only with `head = @Scalar()`.

  Raises:
    ValueError: If `delta` is not above 0.
  """

  def __init__(self, delta: float | None = 1.0):
    if delta is not None and not delta > 0:
      raise ValueError(f'delta={delta}: give a number above 0.')
    self.delta = delta

  def create_network(
    self, network: Network, num_actions: int, name: str
  ) -> tf.keras.Model:
    """Returns the network itself."""
    return network(num_actions, name=name)

  def returns(self, outputs: Any, batch: Any) -> Returns:
    """Returns the Q-values, (n, num_actions, 1)."""
    return Returns(outputs.q_values[:, :, None])

  def loss(self, outputs: Any, batch: Any, targets: Returns) -> tf.Tensor:
    """Returns Huber(target - Q(s, a)).

    Raises:
      ValueError: If there are several targets a state.
    """
    if not targets.values.shape.is_compatible_with((None, 1)):
      raise ValueError(
        f'Scalar has targets {targets.values.shape}; expected (n, 1), e.g. their mean.'
      )
    values = select_actions(outputs.q_values[:, :, None], batch.action)[:, 0]
    return huber(targets.mean(), values, self.delta)


_NUMBERS_OF_OUTPUTS = 'num_atoms', 'num_heads', 'num_networks', 'num_outputs'


def signature_of(network: Network) -> inspect.Signature:
  """Returns the signature of a network's function or constructor."""
  if isinstance(network, type):
    # Python 3.10 returns the signature of `Model.__new__` for a Keras class that
    # inherits its constructor.
    constructor = inspect.getattr_static(network, '__init__')
    network = types.MethodType(constructor, network)
  return inspect.signature(network)


def is_plain(network: Network, arguments: Sequence[Any]) -> bool:
  """Returns whether a network has no parameter for the number of outputs per action.

  It would be the second parameter, without a default or with a name such as
  `num_atoms`. Others are settings of a plain network, e.g. the size of a layer.
  """
  signature = signature_of(network)
  try:
    signature.bind(1, *arguments, name='')
  except TypeError:
    return True
  _, second, *_ = signature.parameters.values()
  return (
    second.kind is second.POSITIONAL_OR_KEYWORD
    and second.default is not second.empty
    and second.name not in _NUMBERS_OF_OUTPUTS
  )


def check_plain(network: Network, owner: Any) -> None:
  """Checks that a network is made by `(num_actions, name=...)`.

  Raises:
    ValueError: If it is not.
  """
  try:
    signature_of(network).bind(1, name='')
  except TypeError as error:
    raise ValueError(
      f'{type(owner).__name__}: {getattr(network, "__name__", network)} has several '
      f'outputs per action, or other parameters ({error}); bind a network with one, '
      'made by (num_actions, name=...), e.g. @AtariNetwork.'
    ) from None


def huber(
  targets: tf.Tensor, values: tf.Tensor, delta: float | None = 1.0
) -> tf.Tensor:
  """Returns the Huber losses of values, in their shape.

  u^2 / 2 for errors |u| <= delta, and delta (|u| - delta / 2) for larger ones.

  Args:
    targets: Targets.
    values: Values, in the shape of the targets.
    delta: Largest error with a quadratic loss, above 0; None for u^2 / 2 throughout.
  """
  if delta is None:
    return 0.5 * tf.math.squared_difference(targets, values)
  return tf.compat.v1.losses.huber_loss(
    targets, values, delta=delta, reduction=tf.compat.v1.losses.Reduction.NONE
  )


def select_actions(values: tf.Tensor, actions: tf.Tensor) -> tf.Tensor:
  """Returns the values of one action for each state, (n, k).

  Args:
    values: Values of each action, float32 (n, num_actions, k).
    actions: Actions, integers (n,); or (n, k), an action for each of the k values.
  """
  if actions.shape.rank == 1:
    actions = actions[:, None]
  one_hot = tf.one_hot(actions, tf.shape(values)[1], axis=1, dtype=values.dtype)
  return tf.reduce_sum(values * one_hot, axis=1)
