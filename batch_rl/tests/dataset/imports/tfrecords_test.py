import gzip
import hashlib
import pathlib
import tracemalloc
from unittest import mock

import google_crc32c
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from batch_rl.dataset.imports import tfrecords
from batch_rl.dataset.shards.shard_reader import ReadError
from batch_rl.tests.dataset.checks.run_files import flipped
from batch_rl.tests.dataset.unplugged import unplugged_files

# Beyond a buffer of igzip, too.
RECORDS = [b'', b'one', np.random.default_rng(0).bytes(1_300_000), b'x' * 5000]


@pytest.fixture(scope='module', params=['GZIP', ''])
def path(request, tmp_path_factory):
  folder = tmp_path_factory.mktemp('records')
  return unplugged_files.write_records(folder / 'file', RECORDS, request.param)


def read(path):
  return [record for record, _ in tfrecords.read(str(path))]


def masked(data):
  crc = google_crc32c.value(data)
  crc = (crc >> 15 | crc << 17) & 0xFFFFFFFF
  return ((crc + 0xA282EAD8) & 0xFFFFFFFF).to_bytes(4, 'little')


def record(data, length=None):
  head = (len(data) if length is None else length).to_bytes(8, 'little')
  return head + masked(head) + data + masked(data)


def test_records_positions_and_digest(path):
  content = pathlib.Path(path).read_bytes()
  digest = hashlib.sha256()
  found = list(tfrecords.read(path, digest))
  assert [data for data, _ in found] == RECORDS
  positions = [position for _, position in found]
  assert positions == sorted(positions) and positions[-1] == len(content)
  assert digest.hexdigest() == hashlib.sha256(content).hexdigest()


def test_several_gzip_members(tmp_path):
  path = tmp_path / 'file'
  path.write_bytes(b''.join([gzip.compress(record(data)) for data in RECORDS]))
  assert read(path) == RECORDS
  # A record may lie in two members.
  whole = record(b'one') + record(b'two')
  path.write_bytes(gzip.compress(whole[:25]) + gzip.compress(whole[25:]))
  assert read(path) == [b'one', b'two']


@pytest.mark.parametrize('error', [MemoryError(), OSError(5, 'D')])
def test_a_failed_read_is_no_damage(path, monkeypatch, error):
  for name in ('batch_rl.utils.files.HashedFile.readinto', 'builtins.open'):
    monkeypatch.setattr(name, mock.Mock(side_effect=error))
    with pytest.raises((MemoryError, ReadError)):
      read(path)


def test_a_length_that_looks_like_gzip(tmp_path):
  data = bytes(0x8B1F)  # The file begins with 1f 8b.
  path = unplugged_files.write_records(tmp_path / 'file', [data], '')
  assert pathlib.Path(path).read_bytes()[:2] == b'\x1f\x8b'
  assert read(path) == [data]


FIRST, SECOND = record(b'first record'), record(b'second')
BOTH = FIRST + SECOND
AT = f'the record at offset {len(FIRST)}'


def zipped(content):
  # Without the time, so that the names of the tests are always the same.
  return gzip.compress(content, mtime=0)


@pytest.mark.parametrize(
  'content, message',
  [
    (b'', 'it is empty'),
    (zipped(b''), 'has no records'),
    (b'some text, not records', 'is not a TFRecord file'),
    (flipped(BOTH, 0), 'is not a TFRecord file'),
    (zipped(flipped(BOTH, 0)), 'wrong checksum of the length of the rec'),
    (BOTH[: len(FIRST) + 5], f'ends within the length of {AT}'),
    (zipped(BOTH[:-1]), f'ends within {AT}'),
    (zipped(flipped(BOTH, -7)), f'wrong checksum of {AT}'),
    (FIRST + record(b'', 1 << 40), f'claims 1,099,511,627,776 B, .* for {AT}'),
    (zipped(FIRST + record(b'', 1 << 27)), f'ends within {AT}'),
    (zipped(BOTH)[:-9], 'were read'),
    (flipped(zipped(BOTH), -1), 'were read'),
    (flipped(zipped(BOTH), 12, 0xFF), 'is damaged'),
    (zipped(BOTH) + b'rest', 'were read'),
  ],
)
def test_damage_is_one_line_that_names_the_file(tmp_path, content, message):
  path = tmp_path / 'file'
  path.write_bytes(content)
  tracemalloc.start()
  try:
    with pytest.raises(ValueError, match=message) as raised:
      read(path)
    peak = tracemalloc.get_traced_memory()[1]
  finally:
    tracemalloc.stop()
  assert str(path) in str(raised.value) and '\n' not in str(raised.value)
  # Memory for a claimed length is reserved, up to the limit, and not touched.
  assert peak < 1.1 * tfrecords.MAX_RECORD_BYTES


@settings(max_examples=130)
@given(st.data(), st.booleans(), st.booleans())
def test_no_damage_passes(tmp_path_factory, draw, zipped, cut):
  """A byte is changed, or the file ends early."""
  content = gzip.compress(BOTH, mtime=0) if zipped else BOTH
  path = tmp_path_factory.mktemp('damaged') / 'file'
  if cut:
    size = draw.draw(st.integers(1, len(content) - 1))
    path.write_bytes(content[:size])
    if size == len(FIRST) and not zipped:
      assert read(path) == [b'first record']
      return
  else:
    # The header of gzip has no checksum; it begins with flags that change nothing.
    at = draw.draw(st.integers(10 if zipped else 0, len(content) - 1))
    path.write_bytes(flipped(content, at, draw.draw(st.integers(1, 255))))
  with pytest.raises(ValueError, match='damaged'):
    read(path)
