"""The small columns of a shard, without stale rows."""

import hashlib

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from batch_rl.dataset.store import packed_columns
from batch_rl.tests.dataset.store import packing


@settings(max_examples=60, deadline=None)
@given(ring=packing.RINGS, data=st.data())
def test_columns_equal_the_files_without_stale_rows(
  tmp_path_factory, ring, data
):
  suffix, capacity, add_count = ring
  directory = tmp_path_factory.mktemp('logs')
  actions = st.sampled_from([0, 1, 17, 255, 256, -1, 2**31 - 1, -(2**31)])
  rewards = st.sampled_from(
    [-1, 0, 1, 127, 128, -128, -129, 0.5, 1e30, np.inf, -np.inf, np.nan]
  )
  drawn = {
    name: np.array(
      data.draw(st.lists(values, min_size=capacity, max_size=capacity)), dtype
    )
    for name, values, dtype in (
      (
        'action',
        data.draw(st.sampled_from([actions, st.integers(0, 255)])),
        'i4',
      ),
      (
        'reward',
        data.draw(st.sampled_from([rewards, st.integers(-1, 1)])),
        'f4',
      ),
      ('terminal', st.sampled_from([0, 0, 1, 2]), 'u1'),
    )
  }
  packing.write(directory, suffix, add_count, **drawn)
  columns = packed_columns.read(str(directory), suffix)
  kept = packing.kept_rows(suffix, add_count, capacity)
  for name in ('action', 'reward'):
    np.testing.assert_array_equal(getattr(columns, name), drawn[name][kept])
    assert not np.issubdtype(getattr(columns, name).dtype, np.float64)
  np.testing.assert_array_equal(columns.terminal, drawn['terminal'][kept] != 0)
  assert columns.terminal.dtype == bool
  assert (columns.suffix, columns.capacity, columns.add_count) == ring
  assert columns.rows == len(kept)
  assert columns.frame_shape == (2,) and columns.frame_dtype == np.uint8
  raw = b''.join(
    (
      drawn['action'][kept].tobytes(),
      drawn['reward'][kept].tobytes(),
      (drawn['terminal'][kept] != 0).tobytes(),
    )
  )
  assert columns.digest == hashlib.sha256(raw).hexdigest()
  for name, source in columns.sources.items():
    content = (directory / name).read_bytes()
    assert source['sha256'] == hashlib.sha256(content).hexdigest()
    assert source['bytes'] == len(content)
  assert len(columns.sources) == 5  # All files but that of the frames.


@settings(max_examples=100, deadline=None)
@given(ring=packing.RINGS)
def test_positions_and_ring_positions_are_inverse(ring):
  suffix, capacity, add_count = ring
  nothing = np.empty(0)
  columns = packed_columns.Columns(
    suffix,
    capacity,
    add_count,
    nothing,
    nothing,
    nothing,
    (),
    np.dtype('u1'),
    {},
  )
  kept = packing.kept_rows(suffix, add_count, capacity)
  expected = [kept.index(r) if r in kept else -1 for r in range(capacity)]
  assert columns.positions(np.arange(capacity)).tolist() == expected
  assert columns.ring_positions(np.arange(len(kept))).tolist() == kept


def test_common_columns_use_one_byte_per_row(tmp_path):
  packing.write(tmp_path, 0, 50, np.zeros(50), action=np.arange(50) % 18)
  columns = packed_columns.read(str(tmp_path), 0)
  for column in (columns.action, columns.reward, columns.terminal):
    assert column.itemsize == 1
