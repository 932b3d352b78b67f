"""Packed shards on disk: damage, foreign files, and changed shards."""

import base64
import errno
import os
import resource
import zlib

import numpy as np
import pytest

from batch_rl.dataset.shards import shard_files, shard_reader
from batch_rl.dataset.store import packed_columns, packed_shard, shard_packing
from batch_rl.tests.dataset.checks import run_files
from batch_rl.tests.dataset.store import packing
from batch_rl.utils import files

DICTIONARY = b'some dictionary'


@pytest.fixture
def logs(tmp_path):
  """The directory of a shard, beside the one that it is packed into."""
  packing.write(tmp_path / 'logs', 1, 99, np.arange(50) % 7 == 6)
  return tmp_path / 'logs'


@pytest.fixture
def directory(logs, pool):
  """The directory of the packed shard."""
  directory = logs.parent / 'store'
  directory.mkdir()
  arguments = packed_columns.read(str(logs), 1), DICTIONARY, pool
  shard_packing.pack(str(logs), *arguments, directory=str(directory))
  return directory


def open_packed(directory, dictionary=DICTIONARY):
  return packed_shard.open_packed(str(directory), 1, dictionary)


def refusal(directory, dictionary=DICTIONARY):
  with pytest.raises(ValueError) as caught:
    open_packed(directory, dictionary)
  message = str(caught.value)
  assert f'{directory}/shard-1.bin' in message and '\n' not in message
  return message


def describe(directory, **changes):
  """Changes the description, with a hash that fits; None removes an entry."""
  path = str(directory / 'shard-1.json')
  about = {**files.read_json(path), **changes}
  about = {key: value for key, value in about.items() if value is not None}
  files.write_json(path, files.with_hash(about))


def test_a_truncated_or_extended_file_is_refused(directory):
  binary = directory / 'shard-1.bin'
  content = binary.read_bytes()
  for part in (content[:-1], content + b'x', b''):
    binary.write_bytes(part)
    assert f'{len(part)} bytes' in refusal(directory)
  assert 'differs' in packed_shard.verify_packed(str(directory), 1)


def test_a_damaged_or_missing_file_is_named(directory):
  assert packed_shard.verify_packed(str(directory), 1) is None
  path = directory / 'shard-1.json'
  text = path.read_text()
  for damaged in ('[]', '7', '{', text.replace('50', '51'), None, text):
    path.write_text(damaged) if damaged else path.unlink()
    if damaged == text:
      path = directory / 'shard-1.bin'
      path.unlink()
    refusal(directory)
    assert path.name in packed_shard.verify_packed(str(directory), 1)


def test_mapped_shards_may_take_all_descriptors(directory):
  kind = resource.RLIMIT_NOFILE
  with run_files.limited(kind, 1024) as (_, hard):
    open_packed(directory)
    assert resource.getrlimit(kind) == (hard, hard)


@pytest.mark.parametrize(
  'change, message',
  [
    ({'dictionary': 'x'}, 'another dictionary'),
    ({'suffix': 2}, 'shard 2'),
    ({'block_rows': 13}, '13 rows'),
    ({'running_crc32': None}, 'running_crc32'),
    ({'running_crc32': 7}, ''),
    ({'running_crc32': '?'}, ''),
    ({'running_crc32': 'AAA'}, ''),
    ({'running_crc32': 'AAAA'}, ''),
    ({'running_crc32': 'AAAAAA=='}, 'checksums'),
    ({'sections': {}}, ''),
    ({'crc32': {'reward': 5}}, 'reward is damaged'),
    ({'frame_dtype': 'x'}, ''),
    ({'frame_shape': 3}, ''),
    ({'add_count': 30}, 'action'),
    ({'truncated_rows': 7}, ''),
    ({'truncated_rows': [], 'capacity': 51}, 'its ring has 51'),
    ({'capacity': 0, 'add_count': 0}, ''),
    ({'padding': None}, 'padding'),
  ],
)
def test_a_wrong_description_is_refused(directory, change, message):
  describe(directory, **change)
  assert message in refusal(directory)


def test_wrong_lengths_and_offsets_are_refused(directory):
  """The decoder would use offsets as addresses in memory."""
  packed = open_packed(directory)
  good, size = packed.offsets.astype(np.int64), int(packed.offsets[-1])
  packed.check()
  for offsets in (
    good + 1,
    np.where(good == size, len(packed.blocks) + 1, good),
    np.where(good == good[2], good[1] - 1, good),
    np.where(good == good[2], 2**32 - 1, good),
    good[:-1],
    np.append(good, size),
    good[:0],
  ):
    for dtype in (np.uint32, np.uint64):
      damaged = packed._replace(offsets=offsets.astype(dtype))
      with pytest.raises(ValueError, match='offsets'):
        damaged.check()
  with pytest.raises(ValueError, match='offsets'):
    packed._replace(offsets=good).check()  # A signed dtype.
  for name in packed_columns.NAMES:
    column = getattr(packed.columns, name)
    shorter = packed.columns._replace(**{name: column[:-1]})
    other = packed.columns._replace(**{name: column.astype('M8[s]')})
    for wrong in (shorter, other):
      with pytest.raises(ValueError, match=name):
        packed._replace(columns=wrong).check()


def test_checksums_are_those_of_the_blocks_before(directory):
  packed = open_packed(directory)
  about = files.read_json(str(directory / 'shard-1.json'))
  stored = np.frombuffer(base64.b64decode(about['running_crc32']), '<u4')
  blocks = packed.blocks.tobytes()
  assert packed.running_crc32.tolist() == stored.tolist()
  expected = [zlib.crc32(blocks[:offset]) for offset in packed.offsets]
  assert stored.tolist() == expected


def test_a_shard_is_fresh_until_its_files_change(logs, directory, monkeypatch):
  packed = open_packed(directory)
  path = logs / shard_files.file_name('reward', 1)

  def is_fresh():
    return packed_shard.is_fresh(packed, str(logs))

  def fail(path):
    raise OSError(errno.EIO, os.strerror(errno.EIO), path)

  assert is_fresh()
  os.utime(path, (1, 1))
  assert is_fresh()  # As after a copy.
  os.utime(path, (2, 2))
  with monkeypatch.context() as patch:
    patch.setattr(files, 'sha256', fail)
    with pytest.raises(shard_reader.ReadError, match='reward_ckpt.1.gz'):
      is_fresh()
  run_files.flip_a_bit(path, 4)  # gzip's own time stamp.
  assert not is_fresh()
  path.write_bytes(path.read_bytes() + b'x')
  assert not is_fresh()
  path.unlink()
  with pytest.raises(ValueError, match='reward_ckpt.1.gz'):
    is_fresh()
