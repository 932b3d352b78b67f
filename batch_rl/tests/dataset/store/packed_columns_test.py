import hashlib

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from batch_rl.dataset.store import packed_columns
from batch_rl.tests.dataset.store import packing

ACTIONS = st.sampled_from([0, 1, 17, 255, 256, -1, 2**31 - 1, -(2**31)])
REWARDS = st.sampled_from(
  [-1, 0, 1, 127, 128, -128, -129, 0.5, 1e30, np.inf, -np.inf, np.nan]
)
BYTES = st.integers(0, 127)


@settings(max_examples=80)
@given(ring=packing.RINGS, is_small=st.booleans(), data=st.data())
def test_columns_omit_only_stale_rows(tmp_path_factory, ring, is_small, data):
  suffix, capacity, add_count = ring
  directory = tmp_path_factory.mktemp('logs')

  def draw(values, dtype):
    values = st.lists(values, min_size=capacity, max_size=capacity)
    return np.array(data.draw(values), dtype)

  action = draw(BYTES if is_small else ACTIONS, 'i4')
  reward = draw(BYTES if is_small else REWARDS, 'f4')
  terminal = draw(st.sampled_from([0, 0, 1, 2]), 'u1')
  values = {'action': action, 'reward': reward}
  packing.write(directory, suffix, add_count, terminal, **values)
  columns = packed_columns.read(str(directory), suffix)
  assert (columns.suffix, columns.capacity, columns.add_count) == ring
  assert columns.frame_shape == (2,) and columns.frame_dtype == np.uint8

  kept = packing.kept_rows(*ring[::2], capacity)
  assert columns.rows == len(kept)

  raw = action[kept], reward[kept], terminal[kept] != 0
  found = columns.action, columns.reward, columns.terminal
  for one, other in zip(found, raw, strict=True):
    np.testing.assert_array_equal(one, other)
    assert one.itemsize == 1 if is_small else one.itemsize <= 4
  assert columns.terminal.dtype == bool
  content = b''.join(column.tobytes() for column in raw)
  assert columns.digest == hashlib.sha256(content).hexdigest()
  assert len(columns.sources) == 5  # All files but that of the frames.
  for name, source in columns.sources.items():
    content = (directory / name).read_bytes()
    assert source['sha256'] == hashlib.sha256(content).hexdigest()
    assert source['bytes'] == len(content)
