import errno
import fcntl
import os
from unittest import mock

import pytest

from batch_rl.utils import locks


def test_lock_is_held_until_closed(tmp_path):
  path = str(tmp_path / '.lock')
  with locks.try_lock(path):
    assert locks.try_lock(path) is None
    assert locks.lock_holder(path).startswith('process ')
    assert locks.is_locked(path)
  assert not locks.is_locked(path) and not locks.is_locked(path + '2')
  with locks.try_lock(path) as held:
    os.dup(held._file.fileno())  # as a forked process has it
  with locks.try_lock(path) as held:
    assert held is not None


def test_a_removed_lock_takes_its_empty_folder_along(tmp_path):
  folder = tmp_path / 'folder'
  locks.acquire(str(folder / '.lock'), 'x').remove()
  assert not folder.exists()
  held = locks.acquire(str(folder / '.lock'), 'x')
  (folder / 'file').touch()
  held.remove()
  assert os.listdir(folder) == ['file']


def test_a_lock_that_its_holder_removed_is_made_again(tmp_path, monkeypatch):
  path, flock = str(tmp_path / '.lock'), fcntl.flock

  def remove_first(file, how):
    monkeypatch.undo()
    os.remove(path)
    flock(file, how)

  monkeypatch.setattr(fcntl, 'flock', remove_first)
  with locks.try_lock(path):
    assert locks.is_locked(path)


def test_missing_lock_support_is_an_error(tmp_path, monkeypatch):
  error = OSError(errno.ENOSYS, 'Function not implemented')
  monkeypatch.setattr(fcntl, 'flock', mock.Mock(side_effect=error))
  path = str(tmp_path / '.lock')
  with pytest.raises(OSError, match=f'{path}.*not implemented'):
    locks.try_lock(path)
