"""Batches of a run as JAX arrays on a device.

run = batch_rl.dataset.open('data/Pong/1')
for batch in DeviceBatches(run.transitions(seed=1), batch_size=32):
  ...
"""

import dataclasses
import functools
from typing import Any, NamedTuple

import jax
import numpy as np
from jax import numpy as jnp

from batch_rl.dataset.sampling import batch_stream, sampler

__all__ = ['DeviceBatches', 'SequenceBatch', 'TransitionBatch']


@functools.partial(
  jax.tree_util.register_dataclass,
  data_fields=['rows', 'windows', 'action', 'reward', 'terminal', 'steps'],
  meta_fields=['stack_size'],
)
@dataclasses.dataclass(frozen=True)
class TransitionBatch:
  """A batch of n transitions, an argument of jitted functions.

  Integers have 32 bits unless JAX has 64 enabled. w is `stack_size + update_horizon`.

  Attributes:
    rows: Integers (n,), row of each transition in the run.
    windows: (n, w, *frame_shape), consecutive frames.
    action: int32 (n,).
    reward: float32 (n,), n-step return.
    terminal: bool (n,), whether the episode terminates within the steps.
    steps: Integers (n,), `update_horizon`, or fewer if the episode ends earlier.
    stack_size: Number of frames in a state.
  """

  rows: jax.Array
  windows: jax.Array
  action: jax.Array
  reward: jax.Array
  terminal: jax.Array
  steps: jax.Array
  stack_size: int

  @property
  def state(self) -> jax.Array:
    """States (n, stack_size, *frame_shape), oldest frame first."""
    return self.windows[:, : self.stack_size]

  @property
  def next_state(self) -> jax.Array:
    """Next states, like `state`."""
    size = self.stack_size
    horizon = self.windows.shape[1] - size
    if horizon == 1:
      return self.windows[:, 1:]
    places = self.steps[:, None] + jnp.arange(size)
    return self.windows[jnp.arange(len(places))[:, None], places]


class SequenceBatch(NamedTuple):
  """A batch of n sequences of `length` agent steps; see `sequences.SequenceBatch`.

  Attributes:
    rows: Integers (n, length), row of each step in the run; -1 for padding.
    frames: (n, length + stack_size - 1, *frame_shape), consecutive frames.
    action: int32 (n, length).
    reward: float32 (n, length), rewards as logged.
    terminal: bool (n, length), whether the episode terminates with the step.
    timestep: Integers (n, length), agent steps since the trajectory's first logged one.
    return_to_go: float32 (n, length).
    mask: bool (n, length), whether a step is in the trajectory.
  """

  rows: jax.Array
  frames: jax.Array
  action: jax.Array
  reward: jax.Array
  terminal: jax.Array
  timestep: jax.Array
  return_to_go: jax.Array
  mask: jax.Array

  @property
  def state(self) -> jax.Array:
    """Stacks of frames, (n, length, stack_size, *frame_shape)."""
    length = self.rows.shape[1]
    stack_size = self.frames.shape[1] - length + 1
    return self.frames[:, jnp.arange(length)[:, None] + jnp.arange(stack_size)]


class DeviceBatches(batch_stream.BatchStream):
  """Batches 0, 1, 2, ... of a sampler on a device, which threads put there ahead.

  Batch k has the values of `sampler.batch(k, batch_size)`, as a `TransitionBatch` or
  `SequenceBatch`. See `BatchStream` for iterations, epochs and `state_dict`.

  Args:
    sampler: Sampler of the run, e.g. `run.transitions(seed=1)`, or of sequences.
    batch_size: Number of entries in a batch, at least 1.
    threads: Number of threads that prepare batches, at least 1.
    ahead: Number of batches prefetched, at least 1; of small ones, up to
      `ahead / threads - 1` more.
    batches_per_epoch: Number of batches after which an iteration ends, at least 1;
      None for an endless one. The next iteration has the batches that follow.
    device: Device or sharding for `jax.device_put`; None for the default device.

  Raises:
    ValueError: If an argument is out of range, the run cannot be packed, or JAX would
      cut its integer observations.
  """

  def __init__(
    self,
    sampler: batch_stream.NumberedSampler,
    batch_size: int = 32,
    *,
    device: Any = None,
    **kwargs: Any,
  ):
    self._device = device
    super().__init__(sampler, batch_size, **kwargs)
    if hasattr(sampler, 'store'):
      _check_integers(sampler.store.frame_dtype)

  def _convert(self, batch: Any) -> Any:
    is_transitions = isinstance(batch, sampler.Batch)
    kind = TransitionBatch if is_transitions else SequenceBatch
    batch = batch._replace(
      action=batch.action.astype(np.int32), terminal=batch.terminal.view(bool)
    )
    values = {name: getattr(batch, name) for name in kind.__annotations__}
    # JAX's context with 64 bits holds for its own thread only, not for this one.
    _check_integers(values['windows' if is_transitions else 'frames'].dtype)
    return jax.device_put(kind(**values), self._device)


def _check_integers(dtype: np.dtype) -> None:
  """Raises a ValueError if JAX would cut observations, integers of a dtype."""
  if dtype.kind in 'iu' and jax.dtypes.canonicalize_dtype(dtype) != dtype:
    raise ValueError(
      f'JAX would cut observations of {dtype} to 32 bits: '
      "jax.config.update('jax_enable_x64', True) keeps them."
    )
