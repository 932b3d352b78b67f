"""Packed shards on disk: damage, foreign files, and changed shards."""

import dataclasses
import errno
import json
import os
import resource

import numpy as np
import pytest

from batch_rl.dataset.shards import shard_files, shard_reader
from batch_rl.dataset.store import packed_columns, packed_shard
from batch_rl.tests.dataset.store import packing
from batch_rl.utils import files, locks


@pytest.fixture
def on_disk(tmp_path, pool):
  """A function that packs a shard; its attributes name the directories."""
  logs, directory = tmp_path / 'logs', tmp_path / 'store'
  packing.write(logs, 1, 99, np.arange(50) % 7 == 6)
  directory.mkdir()
  dictionary = b'some dictionary'

  def pack():
    columns = packed_columns.read(str(logs), 1)
    return packing.pack_to_disk(
      str(logs), columns, dictionary, str(directory), pool
    )

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


def test_foreign_and_incomplete_files_are_refused(on_disk):
  assert 'another dictionary' in refusal(on_disk, b'other')
  binary, description = packed_shard.paths(str(on_disk.directory), 1)
  content = open(binary, 'rb').read()
  for part in (content[:-1], content + b'x', b''):
    with open(binary, 'wb') as file:
      file.write(part)
    assert f'{len(part)} bytes, expected {len(content)}' in refusal(on_disk)
  os.remove(binary)
  assert 'No such file' in refusal(on_disk)
  on_disk()
  os.remove(description)
  assert f'{description} is missing' in refusal(on_disk)


def test_mapped_shards_may_take_all_descriptors(on_disk):
  kind = resource.RLIMIT_NOFILE
  soft, hard = resource.getrlimit(kind)
  resource.setrlimit(kind, (1024, hard))
  try:
    open_again(on_disk)
    assert resource.getrlimit(kind) == (hard, hard)
  finally:
    resource.setrlimit(kind, (soft, hard))


@pytest.mark.parametrize('value', [None, 'x', -1, [], {}, [1, 2], 1.5, 7])
def test_edited_description_is_refused(on_disk, value):
  _, description = packed_shard.paths(str(on_disk.directory), 1)
  about = json.loads(open(description, encoding='utf-8').read())
  for key in about:
    for changed in (
      {**about, key: value},
      {k: v for k, v in about.items() if k != key},
    ):
      if changed == about:
        continue  # The value of zero_rows, which is empty.
      with open(description, 'w', encoding='utf-8') as file:
        json.dump(changed, file)
      refusal(on_disk)
  with open(description, 'w', encoding='utf-8') as file:
    json.dump(value, file)
  refusal(on_disk)


def forget_checksums(directory, suffix):
  """Makes a packed shard as earlier versions of the package wrote it."""
  _, path = packed_shard.paths(str(directory), suffix)
  about = files.read_json(path)
  del about['running_crc32']
  files.write_json(path, files.with_hash(about))


def has_checksums(on_disk):
  _, path = packed_shard.paths(str(on_disk.directory), 1)
  return 'running_crc32' in files.read_json(path)


def open_again(on_disk):
  return packed_shard.open_packed(str(on_disk.directory), 1, on_disk.dictionary)


def test_checksums_are_added_to_an_old_shard(on_disk, monkeypatch):
  checksums = open_again(on_disk).running_crc32.tolist()
  assert checksums[0] == 0 and len(set(checksums)) == len(checksums)
  _, description = packed_shard.paths(str(on_disk.directory), 1)
  written = files.read_json(description)
  forget_checksums(on_disk.directory, 1)
  assert open_again(on_disk).running_crc32.tolist() == checksums
  assert files.read_json(description) == written
  # They are in the file now.
  monkeypatch.setattr(packed_shard, '_update_description', None)
  assert open_again(on_disk).running_crc32.tolist() == checksums


def test_damage_to_an_old_shard_is_found_on_opening(on_disk):
  forget_checksums(on_disk.directory, 1)
  path = on_disk.directory / 'shard-1.bin'
  content = bytearray(path.read_bytes())
  content[7] ^= 1
  path.write_bytes(content)
  assert 'its hash differs' in refusal(on_disk)
  assert not has_checksums(on_disk)


def test_checksums_are_not_stored_if_that_is_impossible(on_disk, monkeypatch):
  checksums = open_again(on_disk).running_crc32.tolist()
  forget_checksums(on_disk.directory, 1)
  with locks.try_lock(str(on_disk.directory / '.lock')):  # Of a writer.
    assert open_again(on_disk).running_crc32.tolist() == checksums
  assert not has_checksums(on_disk)
  with monkeypatch.context() as patch:
    patch.setattr(files, 'write_json', refuse)
    assert open_again(on_disk).running_crc32.tolist() == checksums
  assert not has_checksums(on_disk)
  open_again(on_disk)
  assert has_checksums(on_disk)


def refuse(*_):
  raise OSError(errno.EROFS, os.strerror(errno.EROFS))


def test_a_shard_packed_meanwhile_keeps_its_description(on_disk):
  """A process that found an older one fresh must not write that back."""
  old = open_again(on_disk)
  name = shard_files.file_name('reward', 1)
  os.utime(on_disk.logs / name, (1, 1))
  packing.write(on_disk.logs, 1, 99, np.arange(50) % 7 == 5)
  on_disk()
  _, path = packed_shard.paths(str(on_disk.directory), 1)
  written = open(path, encoding='utf-8').read()
  sources = {**old.columns.sources, name: {}}
  packed_shard._update_description(
    str(on_disk.directory),
    1,
    {'sources': old.columns.sources},
    {'sources': sources},
  )
  assert open(path, encoding='utf-8').read() == written


@pytest.mark.parametrize(
  'checksums', [None, 7, '', 'AAA', '?', 'AAAA', 'AAAAAA==']
)
def test_invalid_checksums_are_refused(on_disk, checksums):
  _, path = packed_shard.paths(str(on_disk.directory), 1)
  about = {**files.read_json(path), 'running_crc32': checksums}
  files.write_json(path, files.with_hash(about))
  refusal(on_disk)


def test_invalid_offsets_are_refused(tmp_path, pool):
  """The decoder would use them as addresses in memory."""
  packing.write(tmp_path, 0, 50, np.zeros(50))
  columns = packed_columns.read(str(tmp_path), 0)
  packed = packing.pack_to_memory(tmp_path, columns, b'', pool)
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
    dataclasses.replace(packed, offsets=good).check()  # A signed dtype.
  for name in ('action', 'reward', 'terminal'):
    shorter = dataclasses.replace(
      columns, **{name: getattr(columns, name)[:-1]}
    )
    with pytest.raises(ValueError, match=name):
      dataclasses.replace(packed, columns=shorter).check()


def test_packed_shard_is_fresh_until_its_files_change(on_disk):
  directory = str(on_disk.directory)
  packed = packed_shard.open_packed(directory, 1, on_disk.dictionary)
  name = shard_files.file_name('reward', 1)
  path, logs = on_disk.logs / name, str(on_disk.logs)
  assert packed_shard.is_fresh(packed, logs, directory)
  os.utime(path, (1, 1))
  assert packed_shard.is_fresh(packed, logs, directory)  # As after a copy.
  again = packed_shard.open_packed(directory, 1, on_disk.dictionary)
  assert again.columns.sources[name]['mtime_ns'] == 10**9  # Stored by is_fresh.
  content = bytearray(path.read_bytes())
  content[4] ^= 1  # gzip's own time stamp.
  path.write_bytes(content)
  os.utime(path, (1, 1))
  assert not packed_shard.is_fresh(packed, logs, directory)
  path.write_bytes(bytes(content) + b'x')
  assert not packed_shard.is_fresh(packed, logs, directory)
  os.remove(path)
  with pytest.raises(ValueError, match='reward_ckpt.1.gz'):
    packed_shard.is_fresh(packed, logs, directory)


def test_verification_names_missing_files(on_disk):
  binary, description = packed_shard.paths(str(on_disk.directory), 1)
  assert packed_shard.verify_packed(str(on_disk.directory), 1) is None
  os.remove(binary)
  assert 'No such file' in packed_shard.verify_packed(str(on_disk.directory), 1)
  os.remove(description)
  on_disk()
  os.remove(description)
  assert f'{description} is missing' in packed_shard.verify_packed(
    str(on_disk.directory), 1
  )
  with open(description, 'w', encoding='utf-8') as file:
    file.write('[]')
  assert 'cannot be verified' in packed_shard.verify_packed(
    str(on_disk.directory), 1
  )


def test_a_source_that_cannot_be_read_is_not_stale(on_disk, monkeypatch):
  packed = open_again(on_disk)
  os.utime(on_disk.logs / shard_files.file_name('reward', 1), (1, 1))

  def fail(path):
    raise OSError(errno.EIO, os.strerror(errno.EIO), path)

  monkeypatch.setattr(files, 'sha256', fail)
  with pytest.raises(
    shard_reader.ReadError,
    match='reward_ckpt.1.gz cannot be read: Input/output',
  ):
    packed_shard.is_fresh(packed, str(on_disk.logs), str(on_disk.directory))
