import errno
import fcntl
from unittest import mock

import pytest

from batch_rl.utils import locks


def test_lock_is_held_until_closed(tmp_path):
  path = str(tmp_path / '.lock')
  with locks.try_lock(path):
    assert locks.try_lock(path) is None
    assert locks.lock_holder(path).startswith('process ')
  with locks.try_lock(path) as held:
    assert held is not None


def test_missing_lock_support_is_an_error(tmp_path, monkeypatch):
  error = OSError(errno.ENOSYS, 'Function not implemented')
  monkeypatch.setattr(fcntl, 'flock', mock.Mock(side_effect=error))
  path = str(tmp_path / '.lock')
  with pytest.raises(OSError, match=f'{path}.*not implemented'):
    locks.try_lock(path)
