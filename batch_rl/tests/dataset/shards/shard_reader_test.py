"""Shards are read as they were written; damaged and foreign files are refused."""

import errno
import gzip
import io
import os
import pathlib
import pickle
import re
from unittest import mock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from batch_rl.dataset.shards import shard_files, shard_reader
from batch_rl.tests import shards
from batch_rl.tests.utils import safe_pickle_test


@pytest.fixture(scope='module')
def intact_run(tmp_path_factory):
  directory = tmp_path_factory.mktemp('log')
  shards.write_run(directory, [30], capacity=40)
  return directory


@settings(max_examples=150)
@given(data=st.data())
def test_damaged_files_are_refused(tmp_path_factory, intact_run, data):
  name = data.draw(st.sampled_from(shard_files.FILES))
  file_name = shard_files.file_name(name, 0)
  intact = shard_reader.read_array(str(intact_run / file_name))
  content = bytearray((intact_run / file_name).read_bytes())
  truncated = data.draw(st.booleans())
  if truncated:
    content = content[: data.draw(st.integers(0, len(content) - 1))]
  else:
    at = data.draw(st.integers(0, len(content) - 1))
    content[at] ^= 1 << data.draw(st.integers(0, 7))
  path = tmp_path_factory.getbasetemp() / file_name
  path.write_bytes(content)
  try:
    read = shard_reader.read_array(str(path))
  except ValueError as error:
    assert str(path) in str(error)
    assert '\n' not in str(error)
  else:
    # gzip has unused bits: its time stamp, and the padding after a block.
    assert not truncated
    np.testing.assert_array_equal(read, intact)


def test_pickles_and_odd_headers_are_refused(tmp_path, monkeypatch):
  monkeypatch.chdir(tmp_path)
  path = tmp_path / 'x.gz'
  exploit = safe_pickle_test.Exploit(os.mkdir, 'exploited')
  array = np.array([exploit], dtype=object)
  header = dict(descr='<f4', fortran_order=False, shape=(10**99, 'x'))
  for write in (
    lambda file: np.save(file, array, allow_pickle=True),
    lambda file: pickle.dump(exploit, file),
    lambda file: np.lib.format.write_array_header_1_0(file, header),
  ):
    with gzip.open(path, 'wb') as file:
      write(file)
    with pytest.raises(ValueError, match='x.gz is damaged'):
      shard_reader.read_array(str(path))
  assert not os.path.exists('exploited')


def test_wrong_dtype_and_length_are_refused(tmp_path):
  shards.write_run(tmp_path, [30], capacity=40)
  path = tmp_path / shard_files.file_name('action', 0)
  for array, message in (
    (np.zeros(40, np.float64), 'another dtype: float64, expected int32'),
    (np.zeros(39, np.int32), 'observation 40, action 39'),
  ):
    with gzip.open(path, 'wb') as file:
      np.save(file, array)
    with pytest.raises(ValueError, match=message):
      shard_reader.read_headers(str(tmp_path), 0)


@settings(max_examples=50)
@given(
  dtype=st.sampled_from(['u1', '<i4', '<f4', '<f8', '>i8', '?']),
  shape=st.lists(st.integers(0, 4), max_size=4),
)
def test_arrays_equal_those_numpy_reads(tmp_path_factory, dtype, shape):
  path = tmp_path_factory.mktemp('array') / 'x.gz'
  array = np.arange(np.prod(shape, dtype=int)).reshape(shape).astype(dtype)
  with gzip.open(path, 'wb') as file:
    np.save(file, array)
  read = shard_reader.read_array(str(path))
  np.testing.assert_array_equal(read, array)
  assert (read.dtype, read.shape) == (array.dtype, array.shape)


@pytest.mark.parametrize(
  'error, kind, message',
  [
    (MemoryError(), MemoryError, '^$'),
    (OSError(errno.EIO, 'disk'), shard_reader.ReadError, '^{path}.*disk'),
    (gzip.BadGzipFile('not gzip'), ValueError, '^{path}.*not gzip'),
  ],
)
def test_read_errors_are_no_damage(tmp_path, monkeypatch, error, kind, message):
  path = str(tmp_path / '$store$_reward_ckpt.0.gz')
  pathlib.Path(path).touch()
  file = io.BytesIO()
  file.read = file.readinto = mock.Mock(side_effect=error)
  opening = {'return_value': file}, {'side_effect': error}
  for options in opening[: 1 + (kind is shard_reader.ReadError)]:
    monkeypatch.setattr('builtins.open', mock.Mock(**options))
    with pytest.raises(kind, match=message.format(path=re.escape(path))):
      shard_reader.read_array(path)
