import os

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from batch_rl.dataset.shards import shard_files, shard_reader
from batch_rl.dataset.store import packed_columns, packed_shard, shard_packing
from batch_rl.tests.dataset.store import packing


@settings(max_examples=60)
@given(
  ring=packing.RINGS,
  chunk=st.integers(1, 400),
  kind=st.sampled_from(
    [((), 'u1'), ((3,), 'u1'), ((2, 2), 'f8'), ((1,), '>i2')]
  ),
  data=st.data(),
)
def test_packing_keeps_frames(tmp_path_factory, pool, ring, chunk, kind, data):
  """Chunks have any size; the ring's last row may be a chunk of its own."""
  suffix, capacity, add_count = ring
  shape, dtype = kind
  rng = np.random.default_rng(data.draw(st.integers(0, 99)))
  frames = rng.integers(0, 100, (capacity, *shape)).astype(dtype)
  logs = tmp_path_factory.mktemp('logs')
  packing.write(logs, suffix, add_count, np.zeros(capacity), frames)
  columns = packed_columns.read(str(logs), suffix)
  dictionary = rng.bytes(data.draw(st.sampled_from([0, 9, 1000])))
  progress, arguments = [], (str(logs), columns, dictionary, pool)
  with pytest.MonkeyPatch.context() as patch:
    patch.setattr(shard_reader, '_CHUNK_BYTES', chunk)
    in_memory = shard_packing.pack(*arguments, progress.append)
  assert sum(progress) == capacity
  kept = packing.kept_rows(suffix, add_count, capacity)
  unpacked = packing.unpack(in_memory, dictionary)
  np.testing.assert_array_equal(unpacked, frames[kept])
  assert len(in_memory.offsets) == -(-len(kept) // packed_shard.BLOCK_ROWS) + 1
  assert in_memory.offsets[-1] == len(in_memory.blocks)

  directory = tmp_path_factory.mktemp('store')
  on_disk = shard_packing.pack(*arguments, directory=str(directory))
  again = [
    packed_shard.open_packed(str(directory), suffix, dictionary, preload)
    for preload in (False, True)
  ]
  for packed in (on_disk, *again):
    unpacked = packing.unpack(packed, dictionary)
    np.testing.assert_array_equal(unpacked, frames[kept])
    assert packed.padding == in_memory.padding
    for name in packed_columns.NAMES:
      one, other = getattr(packed.columns, name), getattr(columns, name)
      assert one.dtype == other.dtype and one.tolist() == other.tolist()
    assert packed.columns.digest == columns.digest
    assert packed.columns.frame_dtype == np.dtype(dtype)
    assert len(packed.columns.sources) == 6
    assert packed_shard.is_fresh(packed, str(logs))
  assert packed_shard.verify_packed(str(directory), suffix) is None
  names = [f'shard-{suffix}.bin', f'shard-{suffix}.json']
  assert sorted(os.listdir(directory)) == names


@settings(max_examples=100)
@given(ring=packing.RINGS, data=st.data())
def test_padding_is_detected(tmp_path_factory, pool, ring, data):
  """At most three rows count, since games may begin with black screens."""
  suffix, capacity, add_count = ring
  flags = st.lists(st.booleans(), min_size=capacity, max_size=capacity)
  terminal = np.array(data.draw(flags)) & np.array(data.draw(flags))
  black = np.array(data.draw(flags)) | np.array(data.draw(flags))
  for row in np.flatnonzero(terminal):  # Otherwise padding would be rare.
    black[row + 1 : row + 1 + data.draw(st.integers(1, 3))] = True
  frames = np.where(black, 0, 7).astype(np.uint8)[:, None]
  logs = tmp_path_factory.mktemp('logs')
  packing.write(logs, suffix, add_count, terminal, frames)
  columns = packed_columns.read(str(logs), suffix)
  packed = shard_packing.pack(str(logs), columns, b'', pool)

  added = range(max(0, add_count - capacity), add_count)
  order = [row % capacity for row in added]
  zero_after = [
    [black[order[at + step]] for step in (1, 2, 3)]
    for at, row in enumerate(order[:-3])
    if terminal[row]
  ]
  padding = 0
  while padding < 3 and all(zeros[padding] for zeros in zero_after):
    padding += 1
  assert packed.padding == padding


def test_a_packed_shard_appears_only_when_complete(tmp_path, pool, synced):
  logs, directory = tmp_path / 'logs', tmp_path / 'store'
  directory.mkdir()
  packing.write(logs, 0, 50, np.zeros(50))
  columns = packed_columns.read(str(logs), 0)
  path = logs / shard_files.file_name('observation', 0)
  content = path.read_bytes()
  path.write_bytes(content[:-9])
  arguments = str(logs), columns, b'', pool, int, str(directory)
  with pytest.raises(ValueError, match='observation_ckpt.0.gz is damaged'):
    shard_packing.pack(*arguments)
  assert os.listdir(directory) == []
  path.write_bytes(content)
  reward = logs / shard_files.file_name('reward', 0)
  content = reward.read_bytes()
  reward.write_bytes(content + b'x')
  with pytest.raises(ValueError, match='changed while it was packed'):
    shard_packing.pack(*arguments)
  assert os.listdir(directory) == []
  reward.write_bytes(content)
  del synced[:]
  shard_packing.pack(*arguments)
  assert synced == ['shard-0.bin.tmp', 'store', 'shard-0.json.tmp', 'store']
