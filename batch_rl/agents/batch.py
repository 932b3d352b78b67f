"""Batch of transitions, as a loss reads it."""

import hashlib
import types
from collections.abc import Mapping
from typing import NamedTuple

import tensorflow as tf

from batch_rl.utils import choices


class Batch(NamedTuple):
  """Transitions of an update, as tensors.

  A column that an agent asks for by `needs` is an attribute, too, such as
  `batch.return_to_go`.

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
    columns: Columns of `needs` by name, (n, ...).
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
  columns: Mapping[str, tf.Tensor] = types.MappingProxyType({})

  def __getattr__(self, name: str) -> tf.Tensor:
    """Returns a column of `needs`.

    Raises:
      AttributeError: If the agent does not ask for it.
    """
    if name in self.columns:
      return self.columns[name]
    raise AttributeError(
      f'The batch has no column {name}{choices.hint(name, self._fields)}: add '
      f'{name!r} to `needs` of the agent.'
    )

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
