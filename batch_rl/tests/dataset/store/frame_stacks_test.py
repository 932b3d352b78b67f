"""Memory of arrays is used again once no reference is left, and not before."""

import concurrent.futures
import gc

import hypothesis
import numpy as np
import pytest
from hypothesis import strategies as st

from batch_rl.dataset.store import frame_stacks

LARGE = (3, 100, 200)  # of uint8: enough to be kept
_BYTES = np.dtype(np.uint8)


@pytest.fixture(autouse=True, scope='module')
def no_garbage():
  """Frees arrays of other tests now, rather than during a test."""
  gc.collect()


@pytest.fixture(autouse=True)
def no_idle_memory():
  frame_stacks._idle.clear()
  yield
  frame_stacks._idle.clear()


def idle_bytes():
  return sum(size * len(rooms) for size, rooms in frame_stacks._idle.items())


@pytest.mark.parametrize('shape', [(), (0, 4), (7,), LARGE])
@pytest.mark.parametrize('dtype', [np.uint8, np.float32, np.int64])
def test_arrays_are_aligned_and_writable(shape, dtype):
  for _ in range(2):  # new memory, and the same again
    array = frame_stacks.aligned(shape, np.dtype(dtype))
    assert array.shape == shape and array.dtype == dtype
    assert array.ctypes.data % 64 == 0 or not array.size
    assert array.flags.c_contiguous and array.flags.writeable
    array[...] = 1


def test_memory_is_used_again():
  first = frame_stacks.aligned(LARGE, _BYTES)
  address = first.ctypes.data
  del first
  assert frame_stacks.aligned(LARGE, _BYTES).ctypes.data == address


REFERENCES = [
  lambda array: array,
  lambda array: array[1:2, 5],
  lambda array: array.reshape(-1)[::7],
  lambda array: array.view(np.int32),
  lambda array: np.asarray(array.T),
  lambda array: memoryview(array)[1:],
  lambda array: np.frombuffer(array, np.uint8, 10),
  lambda array: np.from_dlpack(array),
  lambda array: array.ctypes,
  lambda array: iter(array),
]
SHAPES = st.sampled_from([LARGE, (200, 300), (50_000,), (9,)])
STEPS = st.tuples(SHAPES, st.sampled_from(REFERENCES), st.integers(0, 5))


@hypothesis.settings(max_examples=60)
@hypothesis.given(st.lists(STEPS, max_size=40))
def test_memory_with_a_reference_is_left_alone(steps):
  """Whatever the reference, e.g. one of PyTorch, JAX or TensorFlow."""
  held = []  # a reference, the memory of its array, and the value in it
  for value, (shape, refer, dropped) in enumerate(steps):
    array = frame_stacks.aligned(shape, _BYTES)
    if array.ndim < 3:
      refer = REFERENCES[0]
    start, size = array.ctypes.data, array.nbytes
    for _, (other, length) in held:
      assert start + size <= other or other + length <= start
    array[...] = value
    held.append((refer(array), (start, size)))
    del array
    if dropped < len(held):
      del held[dropped]


def test_contents_stay_while_threads_make_arrays():
  def work(value):
    kept = []
    for i in range(300):
      array = frame_stacks.aligned(LARGE, _BYTES)
      array[...] = value
      kept.append(array[i % 3])
      del array
      kept = kept[-3:]
      assert all((view == value).all() for view in kept)

  with concurrent.futures.ThreadPoolExecutor(4) as threads:
    list(threads.map(work, range(4)))


def test_idle_memory_is_bounded():
  most = frame_stacks._Owner._MOST_BYTES
  arrays = [frame_stacks.aligned((most // 4,), _BYTES) for _ in range(6)]
  del arrays
  assert 0 < idle_bytes() <= most
  frame_stacks.aligned((most + 1,), _BYTES)
  assert idle_bytes() <= most
  for size in range(100_000, 100_100):
    frame_stacks.aligned((size,), _BYTES)
    assert len(frame_stacks._idle) <= frame_stacks._Owner._MOST_SIZES
