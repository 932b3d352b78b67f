"""Raw frames of a fixed replay in the memory of the agent's device.

The frames that valid transitions use, and no others, are decoded once and copied into
a variable of the graph. The graph then gathers states from it. The variable is in no
collection, so checkpoints do not hold it.

Every operation on frames has a GPU kernel for uint8, which `GatherV2`, for one, has not.
"""

import math
import os

import numpy as np
import tensorflow as tf
from absl import logging

from batch_rl.dataset.sampling import sampler as sampler_lib
from batch_rl.utils import machine

# Share of the free memory that frames may take; the rest is for the networks.
_SHARE = 0.9


class FramePlaces:
  """Places of the frames that the valid transitions of a sampler use.

  Frames are in time order, each once. A transition's state ends at its place, its
  next state `steps` places later. As in `Store.windows`, a frame after a gap or after
  the run's end is zero: there is a zero frame before each gap.

  Args:
    sampler: Sampler with at least one valid row.

  Attributes:
    count: Number of frames.
  """

  def __init__(self, sampler: sampler_lib.Sampler):
    store, rows = sampler.store, sampler.valid_rows()
    # Rows counted with a zero row before each gap: `row + gaps up to the row`.
    after_gap = np.append(store.breaks, store.rows)
    self._after_gap = np.unique(after_gap[after_gap > 0])
    self._zeros = self._after_gap + np.arange(len(self._after_gap))
    in_use = np.zeros(store.rows + len(self._zeros) + 1, bool)
    steps = sampler.named_columns(rows, ['steps'])['steps']
    for offset in range(1 - sampler.stack_size, sampler.update_horizon + 1):
      in_use[self._count(rows) + np.minimum(offset, steps)] = True
    self._counted = np.flatnonzero(in_use)
    self.count = len(self._counted)

  def _count(self, rows):
    return rows + np.searchsorted(self._after_gap, rows, side='right')

  def of(self, rows: np.ndarray) -> np.ndarray:
    """Returns the places of valid rows, int64 of the same shape."""
    return np.searchsorted(self._counted, self._count(rows))

  def rows(self) -> np.ndarray:
    """Returns the rows of the frames at all places, -1 for zero frames."""
    gaps = np.searchsorted(self._zeros, self._counted)
    is_zero = np.isin(self._counted, self._zeros)
    return np.where(is_zero, -1, self._counted - gaps)


class DeviceFrames:
  """Frames in a variable on the current device.

  They are loaded in a `session.run` when they are first needed.

  Args:
    frame_shape: Shape of a frame.
    frame_dtype: NumPy dtype of a frame.
    stack_size: Number of frames in a state.

  Attributes:
    places: Places of the frames.
    ready: Operation to run before `states`. It loads the frames if they changed.
  """

  def __init__(
    self, frame_shape: tuple[int, ...], frame_dtype: np.dtype, stack_size: int
  ):
    self._device = tf.zeros(()).device
    self._shape = tuple(frame_shape)
    self._dtype = np.dtype(frame_dtype)
    self._stack_size = stack_size
    self._frame_bytes = math.prod(self._shape) * self._dtype.itemsize
    self._held = 0  # bytes
    self._loaded: FramePlaces | None = None
    with tf.device(self._device):
      self._frames = tf.raw_ops.VarHandleOp(
        dtype=tf.uint8,
        shape=(None, self._frame_bytes),
        name='frames',
        shared_name=f'frames of {id(self)}',  # Variables of one name are one.
      )
    exists = tf.raw_ops.VarIsInitializedOp(resource=self._frames)
    with tf.device('/cpu:*'):
      is_loaded = tf.numpy_function(self._is_loaded, [exists], tf.bool)
      self.ready = tf.cond(
        tf.ensure_shape(is_loaded, ()), lambda: tf.constant(True), self._load
      ).op

  def check(self, frames: int) -> None:
    """Checks that frames fit into the device's memory.

    Args:
      frames: Number of frames.

    Raises:
      ValueError: If they do not fit.
    """
    needed = frames * self._frame_bytes
    free = _free_memory(self._device)
    if free is None:
      return
    free += self._held
    if needed > _SHARE * free:
      where = 'of memory' if is_host(self._device) else f'on {self._device}'
      raise ValueError(
        f'frames_on_device=True needs {needed / 1e9:.3g} GB {where} for {frames:,} '
        f'frames, but of {free / 1e9:.3g} GB that are free, {_SHARE:.0%} may be used: '
        'choose a smaller FixedReplayBuffer.subset, or set frames_on_device to False.'
      )

  def use(self, sampler: sampler_lib.Sampler) -> None:
    """Has the frames of a sampler's valid transitions loaded.

    Raises:
      ValueError: If they do not fit into the device's memory.
    """
    places = FramePlaces(sampler)
    self.check(places.count)
    self._store, self.places = sampler.store, places

  def states(self, places: tf.Tensor) -> tf.Tensor:
    """Gathers states.

    Args:
      places: Place of the last frame of each state, int64 (n,).

    Returns:
      (n, *frame_shape, stack_size).
    """
    size = self._stack_size
    places = places[:, None] + tf.range(1 - size, 1, dtype=tf.int64)
    frames = tf.raw_ops.ResourceGather(
      resource=self._frames, indices=places, dtype=tf.uint8
    )
    leading = places.shape.as_list()
    if self._dtype == np.bool_:
      frames = tf.cast(frames, tf.bool)
    elif self._dtype != np.uint8:
      item = self._dtype.itemsize
      shape = (-1, item) if item > 1 else (-1,)
      frames = tf.bitcast(tf.reshape(frames, shape), self._dtype)
    frames = tf.reshape(frames, (*leading, -1))
    return tf.reshape(
      tf.transpose(frames, (0, 2, 1)), (leading[0], *self._shape, size)
    )

  # --- loading ---------------------------------------------------------------

  def _is_loaded(self, exists: np.bool_) -> np.bool_:
    return np.bool_(exists and self._loaded is self.places)

  def _load(self) -> tf.Tensor:
    """Builds the operations that load all frames."""
    # Frees what was loaded before: both may not fit.
    freed = self._assign(tf.zeros((0, self._frame_bytes), tf.uint8))
    with tf.control_dependencies([freed]), tf.device('/cpu:*'):
      frames = tf.numpy_function(self._decode, [], tf.uint8)
    loaded = self._assign(tf.ensure_shape(frames, (None, self._frame_bytes)))
    with tf.control_dependencies([loaded]), tf.device('/cpu:*'):
      return tf.ensure_shape(tf.numpy_function(self._finish, [], tf.bool), ())

  def _assign(self, frames: tf.Tensor) -> tf.Operation:
    with tf.device(self._device):
      return tf.raw_ops.AssignVariableOp(resource=self._frames, value=frames)

  def _decode(self) -> np.ndarray:
    """Returns the frames as bytes, uint8 (n, bytes)."""
    self._loading = self.places
    self._held = self._loading.count * self._frame_bytes
    logging.info(
      'Replay: loading %.3g GB of frames into memory of %s.',
      self._held / 1e9,
      'the host' if is_host(self._device) else self._device,
    )
    frames = self._store.frames(self._loading.rows())
    return frames.reshape(len(frames), -1).view(np.uint8)

  def _finish(self) -> np.bool_:
    self._loaded = self._loading
    return np.True_


def is_host(device: str) -> bool:
  """Returns whether operations on a device run on the host, maybe for lack of another.

  Args:
    device: Name of the device. A CPU with a number is another device.
  """
  spec = tf.DeviceSpec.from_string(device)
  if spec.device_type in (None, 'CPU'):
    return not spec.device_index
  return not tf.config.list_physical_devices(spec.device_type)


def _free_memory(device: str) -> int | None:
  """Returns the bytes that can be loaded into a device; None if they are unknown."""
  if is_host(device):
    # Of TensorFlow's allocator that keeps freed memory (`dopamine_compat`).
    most = int(os.environ.get('TF_CPU_BFC_MEM_LIMIT_IN_MB', 1 << 16)) << 20
    return min(machine.available_memory(), most)
  spec = tf.DeviceSpec.from_string(device)
  name = f'{spec.device_type}:{spec.device_index or 0}'
  # Otherwise TensorFlow would take all memory of the device.
  config = tf.compat.v1.ConfigProto()
  config.gpu_options.allow_growth = True
  try:
    with tf.compat.v1.Session(graph=tf.Graph(), config=config) as session:
      limits = {
        found.name.rpartition('/device:')[2]: found.memory_limit_bytes
        for found in session.list_devices()
      }
    used = tf.config.experimental.get_memory_info(name)['current']
    # All frames are in the host's memory on their way.
    return min(limits[name] - used, machine.available_memory())
  except (KeyError, RuntimeError, ValueError, tf.errors.OpError):
    return None
