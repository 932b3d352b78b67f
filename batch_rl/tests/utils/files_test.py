"""Atomic and durable writes, and the reading of JSON."""

import hashlib
import os
import subprocess
import sys

import pytest

from batch_rl.utils import files


def test_a_file_is_durable_before_it_is_renamed(tmp_path, synced):
  files.write_bytes(str(tmp_path / 'file'), b'content')
  assert (tmp_path / 'file').read_bytes() == b'content'
  assert synced == ['file.tmp', tmp_path.name]
  files.write_json(str(tmp_path / 'file'), [1])
  assert files.read_json(str(tmp_path / 'file')) == [1]
  assert synced[2:] == ['file.tmp', tmp_path.name]
  files.write_json(str(tmp_path / 'other'), [1], durable=False)
  assert not synced[4:]
  # As any new file.
  (tmp_path / 'new').write_bytes(b'')
  assert len({os.stat(path).st_mode for path in tmp_path.iterdir()}) == 1


def test_a_failed_write_leaves_the_old_file_only(tmp_path, monkeypatch):
  path = tmp_path / 'file'
  path.write_bytes(b'old')

  def fail(*_):
    (name,) = set(os.listdir(tmp_path)) - {'file'}
    assert files.final_name(name) == 'file'
    raise OSError(28, 'No space left on device')

  for function in ('fsync', 'replace'):
    with monkeypatch.context() as patch:
      patch.setattr(os, function, fail)
      with pytest.raises(OSError, match='No space left'):
        files.write_bytes(str(path), b'new')
    assert os.listdir(tmp_path) == ['file']
  assert path.read_bytes() == b'old'
  for name in ('a.tmp.json', '.lock', 'tmp'):
    assert files.final_name(name) == name
  # As older versions named them.
  assert files.final_name('run.json.tmp') == 'run.json'


_WRITER = """
import os, sys
os.fsync = os.fstat
from batch_rl.utils import files
path, number = sys.argv[1:]
for i in range(100):
  files.write_json(path, {'writer': number, 'numbers': [i] * 2000})
  content = files.read_json(path)
  assert len(set(content['numbers'])) == 1 and len(content['numbers']) == 2000
"""


def test_processes_that_write_one_file_do_not_disturb_each_other(tmp_path):
  path = tmp_path / 'folder' / 'file.json'
  line = sys.executable, '-c', _WRITER, path
  writers = [
    subprocess.Popen([*line, number], stderr=subprocess.PIPE)
    for number in '1234'
  ]
  errors = [writer.communicate()[1].decode() for writer in writers]
  assert [w.returncode for w in writers] == [0] * 4, '\n'.join(errors)
  assert os.listdir(path.parent) == ['file.json']


def test_damaged_json_names_file_key_and_value(tmp_path):
  path = tmp_path / 'file.json'
  assert files.read_json(str(path)) is None
  for content, found in ((b'{"size": "big"}', "'big'"), (b'{"a": 1', 'JSON')):
    path.write_bytes(content)
    with pytest.raises(ValueError, match=f'{path} .*{found}') as error:
      files.read_json(str(path), {'size': int})
    assert '\n' not in str(error.value)


def test_a_hashed_file_updates_its_digest_with_what_is_read(tmp_path):
  path = tmp_path / 'file'
  path.write_bytes(b'twelve bytes')
  digest = hashlib.sha256()
  with open(path, 'rb') as file:
    stream = files.HashedFile(file, digest)
    assert stream.read(6) == b'twelve'
    assert digest.hexdigest() == hashlib.sha256(b'twelve').hexdigest()
    assert stream.read() == b' bytes' and stream.read(1) == b''
  assert digest.hexdigest() == files.sha256(str(path))
