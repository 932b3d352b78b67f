"""One packed shard: its columns, its blocks, its dictionary, and damage to it."""

import concurrent.futures
import ctypes
import dataclasses
import hashlib
import json
import os
import random
import shutil
import subprocess
import sys

import lz4.block
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from batch_rl.dataset.shards import shard_files, shard_reader
from batch_rl.dataset.store import lz4_blocks, packed_shard
from batch_rl.tests import ring_logs

SAMPLE = 'data/Pong/1/replay_logs'


@pytest.fixture(scope='module')
def pool():
  with concurrent.futures.ThreadPoolExecutor(2) as threads:
    yield threads


def write(directory, suffix, add_count, terminal, frames=None, **columns):
  """Writes a shard; every row has a frame and an action of its own."""
  capacity = len(terminal)
  if frames is None:
    frames = np.arange(1, 2 * capacity + 1, dtype=np.uint8).reshape(-1, 2)
  row = np.arange(capacity)
  columns = {'action': row, 'reward': row % 3 - 1, **columns}
  ring_logs.write_shard(
    str(directory), suffix, add_count, frames, terminal=terminal, **columns
  )
  return frames


def pack_to_memory(logs, columns, dictionary, pool, *progress):
  compress = packed_shard.compressor(dictionary)
  return packed_shard.pack_to_memory(
    str(logs), columns, compress, pool, *progress
  )


def pack_to_disk(logs, columns, dictionary, directory, pool):
  compress = packed_shard.compressor(dictionary)
  return packed_shard.pack_to_disk(
    str(logs), columns, dictionary, compress, str(directory), pool
  )


def kept_rows(suffix, add_count, capacity):
  """Ring positions that are not stale, as far as the format says."""
  kept = list(range(min(add_count, capacity)))
  if add_count < capacity and suffix > 0:
    # The last row of the ring precedes its first.
    kept += [capacity - 1]
  return kept


# A shard as the logger dumps it, a final one, and a ring that went on.
rings = st.tuples(
  st.integers(0, 3), st.integers(4, 60), st.integers(0, 200)
).map(lambda ring: (ring[0], ring[1], min(ring[2], (ring[0] + 1) * ring[1])))


# --- columns ------------------------------------------------------------------


@settings(max_examples=60, deadline=None)
@given(ring=rings, data=st.data())
def test_columns_are_those_on_disk_without_stale_rows(
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
  write(directory, suffix, add_count, **drawn)
  columns = packed_shard.read_columns(str(directory), suffix)
  kept = kept_rows(suffix, add_count, capacity)
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
  assert len(columns.sources) == 5  # all but the frames


@settings(max_examples=100, deadline=None)
@given(ring=rings)
def test_positions_and_ring_positions_are_inverse(ring):
  suffix, capacity, add_count = ring
  nothing = np.empty(0)
  columns = packed_shard.Columns(
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
  kept = kept_rows(suffix, add_count, capacity)
  expected = [kept.index(r) if r in kept else -1 for r in range(capacity)]
  assert columns.positions(np.arange(capacity)).tolist() == expected
  assert columns.ring_positions(np.arange(len(kept))).tolist() == kept


def test_common_columns_take_a_byte_a_row(tmp_path):
  write(tmp_path, 0, 50, np.zeros(50), action=np.arange(50) % 18)
  columns = packed_shard.read_columns(str(tmp_path), 0)
  for column in (columns.action, columns.reward, columns.terminal):
    assert column.itemsize == 1


# --- frames -------------------------------------------------------------------


def unpack(packed, dictionary):
  """All rows of a packed shard, by the lz4 package alone."""
  shape = packed.columns.frame_shape
  dtype = packed.columns.frame_dtype
  size = dtype.itemsize * int(np.prod(shape)) * packed_shard.BLOCK_ROWS
  data = b''.join(
    lz4.block.decompress(
      packed.blocks[start:stop].tobytes(), size, False, dict=dictionary
    )
    for start, stop in zip(packed.offsets, packed.offsets[1:], strict=False)
  )
  return np.frombuffer(data, dtype).reshape(-1, *shape)


@settings(max_examples=60, deadline=None)
@given(
  ring=rings,
  chunk=st.integers(1, 400),
  kind=st.sampled_from(
    [((), 'u1'), ((3,), 'u1'), ((2, 2), 'f8'), ((1,), '<i2')]
  ),
  data=st.data(),
)
def test_frames_are_those_on_disk_however_they_are_read(
  tmp_path_factory, pool, ring, chunk, kind, data
):
  """In pieces of any size, with the last row of the ring apart."""
  suffix, capacity, add_count = ring
  shape, dtype = kind
  seed = data.draw(st.integers(0, 99))
  rng = np.random.default_rng(seed)
  frames = rng.integers(0, 100, (capacity, *shape)).astype(dtype)
  logs = tmp_path_factory.mktemp('logs')
  write(logs, suffix, add_count, np.zeros(capacity), frames)
  columns = packed_shard.read_columns(str(logs), suffix)
  dictionary = rng.bytes(data.draw(st.sampled_from([0, 9, 1000])))
  passed = []
  with pytest.MonkeyPatch.context() as patch:
    patch.setattr(shard_reader, '_CHUNK_BYTES', chunk)
    in_memory = pack_to_memory(
      str(logs), columns, dictionary, pool, passed.append
    )
  assert sum(passed) == capacity
  kept = kept_rows(suffix, add_count, capacity)
  np.testing.assert_array_equal(unpack(in_memory, dictionary), frames[kept])
  assert len(in_memory.offsets) == -(-len(kept) // packed_shard.BLOCK_ROWS) + 1
  assert in_memory.offsets[-1] == len(in_memory.blocks)

  directory = tmp_path_factory.mktemp('store')
  on_disk = pack_to_disk(str(logs), columns, dictionary, str(directory), pool)
  again = [
    packed_shard.open_packed(str(directory), suffix, dictionary, preload)
    for preload in (False, True)
  ]
  for packed in (on_disk, *again):
    np.testing.assert_array_equal(unpack(packed, dictionary), frames[kept])
    assert (packed.padding, packed.zero_rows) == (
      in_memory.padding,
      in_memory.zero_rows,
    )
    for name in ('action', 'reward', 'terminal'):
      one, other = getattr(packed.columns, name), getattr(columns, name)
      assert one.dtype == other.dtype
      np.testing.assert_array_equal(one, other)
    assert packed.columns.digest == columns.digest
    assert packed.columns.frame_dtype == np.dtype(dtype)
    assert len(packed.columns.sources) == 6
    assert packed_shard.is_fresh(packed, str(logs), str(directory))
  assert packed_shard.verify_packed(str(directory), suffix) is None
  assert sorted(os.listdir(directory)) == [
    f'shard-{suffix}.bin',
    f'shard-{suffix}.json',
  ]


@settings(max_examples=100, deadline=None)
@given(ring=rings, data=st.data())
def test_padding_is_what_every_episode_starts_with(
  tmp_path_factory, pool, ring, data
):
  """At most three rows of it, since games may begin with black screens."""
  suffix, capacity, add_count = ring
  flags = st.lists(st.booleans(), min_size=capacity, max_size=capacity)
  terminal = np.array(data.draw(flags)) & np.array(data.draw(flags))
  black = np.array(data.draw(flags)) | np.array(data.draw(flags))
  for row in np.flatnonzero(terminal):  # or there would hardly ever be padding
    black[row + 1 : row + 1 + data.draw(st.integers(1, 3))] = True
  frames = np.where(black, 0, 7).astype(np.uint8)[:, None]
  logs = tmp_path_factory.mktemp('logs')
  write(logs, suffix, add_count, terminal, frames)
  columns = packed_shard.read_columns(str(logs), suffix)
  packed = pack_to_memory(str(logs), columns, b'', pool)

  cursor = add_count % capacity
  if add_count < capacity:
    order = list(range(cursor))
  else:
    order = [(cursor + i) % capacity for i in range(capacity)]
  zero_after = [
    [black[order[at + step]] for step in (1, 2, 3)]
    for at, row in enumerate(order[:-3])
    if terminal[row]
  ]
  padding = 0
  while padding < 3 and all(zeros[padding] for zeros in zero_after):
    padding += 1
  assert packed.padding == padding
  kept = kept_rows(*ring[::2], capacity)
  for row in {0, 1, 2, *order[:3], capacity - 1} & set(kept):
    assert (row in packed.zero_rows) == black[row], row
  assert all(black[row] for row in packed.zero_rows)


def test_a_shard_that_changes_while_it_is_read_is_noticed(tmp_path, pool):
  write(tmp_path, 0, 50, np.zeros(50))
  columns = packed_shard.read_columns(str(tmp_path), 0)
  path = tmp_path / shard_files.file_name('observation', 0)
  path.write_bytes(path.read_bytes()[:-9])
  directory = tmp_path / 'store'
  directory.mkdir()
  for _ in range(2):
    with pytest.raises(ValueError, match='observation_ckpt.0.gz is damaged'):
      pack_to_disk(str(tmp_path), columns, b'', str(directory), pool)
    assert os.listdir(directory) == []


# --- files that are not what they were ----------------------------------------


@pytest.fixture
def on_disk(tmp_path, pool):
  """A function that packs a shard anew: the directory, its dictionary."""
  logs, directory = tmp_path / 'logs', tmp_path / 'store'
  write(logs, 1, 99, np.arange(50) % 7 == 6)
  directory.mkdir()
  dictionary = b'some dictionary'

  def pack():
    columns = packed_shard.read_columns(str(logs), 1)
    return pack_to_disk(str(logs), columns, dictionary, str(directory), pool)

  pack()
  pack.logs, pack.directory, pack.dictionary = logs, directory, dictionary
  return pack


def refusal(on_disk, dictionary=None):
  with pytest.raises(ValueError) as caught:
    packed_shard.open_packed(
      str(on_disk.directory), 1, dictionary or on_disk.dictionary
    )
  message = str(caught.value)
  assert str(on_disk.directory) in message and len(message.splitlines()) == 1
  return message


def test_what_is_no_packed_shard_is_refused(on_disk):
  assert 'another dictionary' in refusal(on_disk, b'other')
  binary, description = packed_shard.paths(str(on_disk.directory), 1)
  content = open(binary, 'rb').read()
  for part in (content[:-1], content + b'x', b''):
    with open(binary, 'wb') as file:
      file.write(part)
    assert f'{len(part)} bytes in place of {len(content)}' in refusal(on_disk)
  os.remove(binary)
  assert 'No such file' in refusal(on_disk)
  on_disk()
  os.remove(description)
  assert f'there is no {description}' in refusal(on_disk)


@pytest.mark.parametrize('value', [None, 'x', -1, [], {}, [1, 2], 1.5, 7])
def test_a_description_that_was_changed_is_refused(on_disk, value):
  _, description = packed_shard.paths(str(on_disk.directory), 1)
  about = json.loads(open(description, encoding='utf-8').read())
  for key in about:
    for changed in (
      {**about, key: value},
      {k: v for k, v in about.items() if k != key},
    ):
      if changed == about:
        continue  # no row is zero
      with open(description, 'w', encoding='utf-8') as file:
        json.dump(changed, file)
      refusal(on_disk)
  with open(description, 'w', encoding='utf-8') as file:
    json.dump(value, file)
  refusal(on_disk)


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_a_flipped_bit_is_found(tmp_path_factory, pool, data):
  """Of the small columns and offsets at once, of frames by `verify_packed`."""
  logs = tmp_path_factory.mktemp('logs')
  write(logs, 0, 50, np.arange(50) % 7 == 6)
  columns = packed_shard.read_columns(str(logs), 0)
  directory = tmp_path_factory.mktemp('store')
  packed = pack_to_disk(str(logs), columns, b'', str(directory), pool)
  path = directory / 'shard-0.bin'
  content = bytearray(path.read_bytes())
  at = data.draw(st.integers(0, len(content) - 1))
  content[at] ^= 1 << data.draw(st.integers(0, 7))
  path.write_bytes(content)
  assert 'shard-0.bin is damaged' in packed_shard.verify_packed(
    str(directory), 0
  )
  try:
    damaged = packed_shard.open_packed(str(directory), 0, b'')
  except ValueError as error:
    assert 'shard-0.bin cannot be used' in str(error)
    return
  # In a block, or in what lies between sections.
  assert damaged.offsets.tolist() == packed.offsets.tolist()
  for name in ('action', 'reward', 'terminal'):
    np.testing.assert_array_equal(
      getattr(damaged.columns, name), getattr(columns, name)
    )


def test_offsets_that_point_elsewhere_are_refused(tmp_path, pool):
  """They are addresses in memory."""
  write(tmp_path, 0, 50, np.zeros(50))
  columns = packed_shard.read_columns(str(tmp_path), 0)
  packed = pack_to_memory(tmp_path, columns, b'', pool)
  good = packed.offsets.astype(np.int64)
  size = len(packed.blocks)
  packed.check()
  for wrong in (
    good + 1,
    np.where(good == size, size + 1, good),
    np.where(good == good[2], good[1] - 1, good),
    np.where(good == good[2], 2**32 - 1, good),
    good[:-1],
    np.append(good, size),
    good[:0],
  ):
    for dtype in (np.uint32, np.uint64):
      damaged = dataclasses.replace(packed, offsets=wrong.astype(dtype))
      with pytest.raises(ValueError, match='offsets'):
        damaged.check()
  with pytest.raises(ValueError, match='offsets'):
    dataclasses.replace(packed, offsets=good).check()  # signed
  for name in ('action', 'reward', 'terminal'):
    shorter = dataclasses.replace(
      columns, **{name: getattr(columns, name)[:-1]}
    )
    with pytest.raises(ValueError, match=name):
      dataclasses.replace(packed, columns=shorter).check()


def test_a_shard_is_fresh_while_its_files_are_the_same(on_disk):
  directory = str(on_disk.directory)
  packed = packed_shard.open_packed(directory, 1, on_disk.dictionary)
  name = shard_files.file_name('reward', 1)
  path, logs = on_disk.logs / name, str(on_disk.logs)
  assert packed_shard.is_fresh(packed, logs, directory)
  os.utime(path, (1, 1))
  assert packed_shard.is_fresh(packed, logs, directory)  # copied, say
  again = packed_shard.open_packed(directory, 1, on_disk.dictionary)
  assert again.columns.sources[name]['mtime_ns'] == 10**9  # so it was noted
  content = bytearray(path.read_bytes())
  content[4] ^= 1  # gzip's own time stamp
  path.write_bytes(content)
  os.utime(path, (1, 1))
  assert not packed_shard.is_fresh(packed, logs, directory)
  path.write_bytes(bytes(content) + b'x')
  assert not packed_shard.is_fresh(packed, logs, directory)
  os.remove(path)
  with pytest.raises(ValueError, match='reward_ckpt.1.gz'):
    packed_shard.is_fresh(packed, logs, directory)


def test_verifying_says_what_is_missing(on_disk):
  binary, description = packed_shard.paths(str(on_disk.directory), 1)
  assert packed_shard.verify_packed(str(on_disk.directory), 1) is None
  os.remove(binary)
  assert 'No such file' in packed_shard.verify_packed(str(on_disk.directory), 1)
  os.remove(description)
  on_disk()
  os.remove(description)
  assert f'no {description}' in packed_shard.verify_packed(
    str(on_disk.directory), 1
  )
  with open(description, 'w', encoding='utf-8') as file:
    file.write('[]')
  assert 'cannot be verified' in packed_shard.verify_packed(
    str(on_disk.directory), 1
  )


def test_a_shard_packed_again_replaces_the_old_one(on_disk):
  shutil.rmtree(on_disk.logs)
  frames = write(on_disk.logs, 1, 71, np.zeros(36))
  packed = on_disk()
  np.testing.assert_array_equal(unpack(packed, on_disk.dictionary), frames)
  assert packed_shard.verify_packed(str(on_disk.directory), 1) is None


# --- the dictionary -----------------------------------------------------------


@pytest.fixture(scope='module')
def real_frames():
  path = f'{SAMPLE}/{shard_files.file_name("observation", 6)}'
  return np.concatenate(
    [c.copy() for _, c in shard_reader.iterate_rows(path, 1200)]
  )


def test_a_dictionary_is_small_and_the_same_every_time(real_frames):
  runs = [real_frames[:600], real_frames[600:]]
  dictionary = packed_shard.train_dictionary(runs)
  assert dictionary == packed_shard.train_dictionary([r.copy() for r in runs])
  # LZ4 sees 64 KB back, and of that the frame of a block that it decodes first.
  assert 10_000 < len(dictionary) <= 62 << 10


def test_a_dictionary_makes_other_frames_smaller(real_frames):
  dictionary = packed_shard.train_dictionary([real_frames[:500]])
  size = packed_shard.BLOCK_ROWS
  blocks = [real_frames[at : at + size] for at in range(600, 1200 - size, size)]

  def packed_bytes(words):
    compress = lz4_blocks.compressor(words, 5)
    return sum(len(compress(block.tobytes())) for block in blocks)

  assert packed_bytes(dictionary) < 0.95 * packed_bytes(b'')


@pytest.mark.parametrize(
  'frames',
  [
    np.zeros((400, 8, 8), np.uint8),  # padding and nothing else
    np.ones((199, 8, 8), np.uint8),  # few
    np.concatenate([np.zeros((300, 9), 'u1'), np.ones((100, 9), 'u1')]),
    np.ones((201, 300, 300), np.uint8),  # large
  ],
  ids=lambda frames: str(frames.shape),
)
def test_there_is_no_dictionary_of_nothing_or_for_nothing(frames):
  assert packed_shard.train_dictionary([frames]) == b''


@pytest.mark.parametrize(
  'frames',
  [
    np.ones((400, 8, 8), np.uint8),
    np.random.default_rng(0).integers(0, 256, (300, 40, 40)).astype(np.uint8),
    np.random.default_rng(0).normal(size=(500, 4, 1)),
    np.arange(300, dtype=np.int64)[:, None] % 256,
    np.arange(1, 251, dtype=np.uint8),
    np.random.default_rng(0)
    .integers(0, 9, (250, 210, 160, 3))
    .astype('u1')[..., :1],
  ],
  ids=lambda frames: f'{frames.dtype}{frames.shape}',
)
def test_frames_of_any_kind_have_a_dictionary_that_works(frames):
  dictionary = packed_shard.train_dictionary([frames[:100], frames[100:]])
  assert len(dictionary) <= 62 << 10
  block = frames[: packed_shard.BLOCK_ROWS].tobytes()
  made = lz4_blocks.compressor(dictionary, 5)(block)
  found = lz4.block.decompress(made, len(block), False, dict=dictionary)
  assert found == block


# --- LZ4 blocks ---------------------------------------------------------------


@pytest.fixture(params=['direct', 'package'])
def library(request, monkeypatch):
  """The LZ4 library called directly, and the package as it is."""
  if request.param == 'direct':
    assert lz4_blocks._library() is not None
  else:
    monkeypatch.setattr(lz4_blocks, '_library', lambda: None)


def decode(decoder, block, wanted, room=None):
  """Decodes; what lies around the target must stay as it was."""
  room = wanted if room is None else room
  memory = (ctypes.c_uint8 * (room + 200))(*b'\xaa' * (room + 200))
  source = ctypes.create_string_buffer(block, len(block))
  target = ctypes.addressof(memory) + 100
  decoder(ctypes.addressof(source), len(block), target, wanted)
  content = bytes(memory)
  assert set(content[:100] + content[100 + wanted :]) == {0xAA}
  return content[100 : 100 + wanted]


# Bytes with something in common, as frames have.
words = st.lists(
  st.sampled_from(
    [b'', b'\0' * 40, b'frame', b'abcdefgh' * 9, bytes(range(256))]
  ),
  max_size=12,
).map(b''.join)


@settings(max_examples=60, deadline=None)
@given(
  dictionary=words,
  blocks=st.lists(words.filter(bool), min_size=1, max_size=5),
  level=st.sampled_from([3, 5, 9, 12]),
  data=st.data(),
)
def test_blocks_are_decoded_as_far_as_they_are_wanted(
  dictionary, blocks, level, data
):
  """Whichever of the two made them, and whichever reads them."""
  size = max(map(len, blocks)) + data.draw(st.integers(0, 9))
  compressors = [lz4_blocks.compressor(dictionary, level)]
  decoders = [lz4_blocks.decoder(dictionary, size)]
  with pytest.MonkeyPatch.context() as patch:
    patch.setattr(lz4_blocks, '_library', lambda: None)
    compressors.append(lz4_blocks.compressor(dictionary, level))
    decoders.append(lz4_blocks.decoder(dictionary, size))
  for compress in compressors:
    for block in blocks:
      compressed = compress(memoryview(block))
      wanted = data.draw(st.integers(1, len(block)))
      for decoder in decoders:
        assert decode(decoder, compressed, wanted) == block[:wanted]
        assert decode(decoder, compressed, len(block)) == block
        with pytest.raises(lz4_blocks.DamagedBlock):
          decode(decoder, compressed, len(block) + 1)


def test_threads_share_a_compressor(library, pool):
  rng = np.random.default_rng(0)
  dictionary = rng.bytes(60_000)
  blocks = [
    dictionary[i : i + 2000] + rng.bytes(100) + dictionary[-i - 500 :][:400]
    for i in range(0, 40_000, 100)
  ]
  compress = lz4_blocks.compressor(dictionary, 5)
  alone = [lz4_blocks.compressor(dictionary, 5)(block) for block in blocks[:20]]
  with concurrent.futures.ThreadPoolExecutor(8) as threads:
    together = list(threads.map(compress, blocks))
  assert together[:20] == alone
  decoder = lz4_blocks.decoder(dictionary, 3000)
  with concurrent.futures.ThreadPoolExecutor(8) as threads:
    found = threads.map(
      lambda pair: decode(decoder, pair[0], len(pair[1])),
      zip(together, blocks, strict=True),
    )
  assert list(found) == blocks
  assert sum(map(len, together)) < sum(map(len, blocks)) / 4


def damage(block, rng):
  """A block that was cut, changed, extended, or never was one."""
  content = bytearray(block)
  for _ in range(rng.randint(1, 4)):
    kind = rng.randrange(5)
    at = rng.randrange(len(content) + 1)
    if kind == 0 and content:
      content[at % len(content)] ^= 1 << rng.randrange(8)
    elif kind == 1 and content:
      content[at % len(content)] = rng.choice([0, 15, 240, 255])
    elif kind == 2:
      del content[at:]
    elif kind == 3:
      content[at:at] = rng.randbytes(rng.randint(1, 9))
    elif kind == 4:
      content = bytearray(rng.randbytes(rng.randint(1, 60)))
  return bytes(content)


def test_damaged_blocks_are_refused_or_of_the_wanted_size(library):
  rng = random.Random(0)
  dictionary = rng.randbytes(500) + b'frame' * 99
  block = (dictionary[100:300] + b'\0' * 400 + rng.randbytes(30)) * 3
  good = lz4_blocks.compressor(dictionary, 5)(block)
  decoder = lz4_blocks.decoder(dictionary, len(block))
  refused = 0
  for _ in range(3000):
    wanted = rng.randint(1, len(block))
    try:
      assert len(decode(decoder, damage(good, rng), wanted)) == wanted
    except lz4_blocks.DamagedBlock as error:
      assert '\n' not in str(error)
      refused += 1
  assert 500 < refused < 3000


_AT_THE_EDGE = """
import ctypes, mmap, random, sys
from batch_rl.dataset.store import lz4_blocks
from batch_rl.tests.dataset.store import packed_shard_test

if sys.argv[1] == 'package':
  lz4_blocks._library = lambda: None
libc = ctypes.CDLL(None, use_errno=True)
page = mmap.PAGESIZE

def room():
  # Pages, the first and the last of which can be neither read nor written.
  memory = mmap.mmap(-1, 6 * page)
  start = ctypes.addressof(ctypes.c_char.from_buffer(memory))
  for at in (start, start + 5 * page):
    assert libc.mprotect(ctypes.c_void_p(at), page, 0) == 0
  return memory, start + page, start + 5 * page

keep_source, first, after = room()
keep_target, target_first, target_after = room()
rng = random.Random(int(sys.argv[2]))
dictionary = rng.randbytes(500) + b'frame' * 99
block = (dictionary[100:300] + bytes(400) + rng.randbytes(30)) * 3
good = lz4_blocks.compressor(dictionary, 5)(block)
decode = lz4_blocks.decoder(dictionary, len(block))
for i in range(20_000):
  damaged = packed_shard_test.damage(good, rng) if i % 50 else good
  wanted = rng.randint(1, len(block))
  source = rng.choice([first, after - len(damaged)])
  target = rng.choice([target_first, target_after - wanted])
  ctypes.memmove(source, damaged, len(damaged))
  try:
    decode(source, len(damaged), target, wanted)
    ok = True
  except lz4_blocks.DamagedBlock:
    ok = False
  if damaged is good:
    assert ok and ctypes.string_at(target, wanted) == block[:wanted]
if sys.argv[1] == 'beyond':
  ctypes.string_at(after, 1)
print('survived')
"""


@pytest.mark.parametrize('mode', ['direct', 'package', 'beyond'])
def test_no_byte_beyond_a_damaged_block_or_its_target_is_touched(mode):
  """Both lie at the edge of memory, in a process that would not survive it."""
  done = subprocess.run(
    [sys.executable, '-c', _AT_THE_EDGE, mode, '1'],
    capture_output=True,
    text=True,
  )
  if mode == 'beyond':  # the edge is one
    assert done.returncode < 0
  else:
    assert (done.returncode, done.stdout) == (0, 'survived\n'), done.stderr
