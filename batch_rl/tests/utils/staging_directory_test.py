"""Output appears when it is complete, and only where nothing else is."""

import os

import pytest

from batch_rl.utils import staging_directory
from batch_rl.utils.staging_directory import StagingDirectory


def make(stage, content='new'):
  with open(os.path.join(stage.create('made'), 'file'), 'w') as file:
    file.write(content)


def test_output_is_published_durably_and_at_once(tmp_path, synced):
  target = tmp_path / 'out'
  with StagingDirectory(str(target)) as stage:
    make(stage)
    assert not target.exists()
    with pytest.raises(ValueError, match=f'written by process {os.getpid()}'):
      StagingDirectory(str(target))
    stage.publish()
    assert (target / 'file').read_text() == 'new'
  assert os.listdir(tmp_path) == ['out']
  assert synced == ['file', 'made', tmp_path.name]


@pytest.mark.parametrize('replace', [False, True])
def test_failed_output_leaves_what_was_there(tmp_path, replace):
  """The next process replaces the files of a killed one."""
  target = tmp_path / 'out'
  if replace:
    target.mkdir()
    (target / 'old').touch()
  with pytest.raises(RuntimeError):
    with StagingDirectory(str(target), replace) as stage:
      make(stage)
      raise RuntimeError
  assert os.listdir(tmp_path) == ['out'] * replace
  killed = StagingDirectory(str(target), replace)
  (tmp_path / 'out.unfinished/state').touch()
  make(killed, 'of a killed process')
  killed._lock.close()
  with pytest.raises(RuntimeError), StagingDirectory(str(target), replace):
    raise RuntimeError
  with StagingDirectory(str(target), replace) as stage:
    assert os.path.exists(f'{stage.path}/state')
    make(stage)
    stage.publish()
  assert os.listdir(tmp_path) == ['out'] and os.listdir(target) == ['file']
  assert (target / 'file').read_text() == 'new'


@pytest.mark.parametrize(
  ('name', 'busy', 'left'), [('rename', 'made', 'old'), ('unlink', '', 'file')]
)
def test_a_failed_change_loses_nothing(tmp_path, monkeypatch, name, busy, left):
  """The new output cannot be moved, or the old one removed."""
  (tmp_path / 'out').mkdir()
  (tmp_path / 'out/old').touch()
  original = getattr(os, name)

  def fail(path, *more, **options):
    if path.endswith(busy):
      raise OSError(16, 'busy')
    return original(path, *more, **options)

  monkeypatch.setattr(os, name, fail)
  with pytest.raises(OSError, match='busy'):
    with StagingDirectory(str(tmp_path / 'out'), True) as stage:
      make(stage)
      stage.publish()
  assert os.listdir(tmp_path / 'out') == [left]
  assert left == 'file' or os.listdir(tmp_path) == ['out']


def test_destinations_that_are_refused(tmp_path):
  (tmp_path / 'file').touch()
  (tmp_path / 'full').mkdir()
  (tmp_path / 'full/file').touch()
  (tmp_path / 'empty').mkdir()
  (tmp_path / 'link').symlink_to('nowhere')
  staging_directory.check_new(str(tmp_path / 'empty'))
  for destination, message in (
    ('', 'empty name'),
    ('gs://bucket/out', 'remote'),
    ('/proc', 'mount point'),
    (str(tmp_path / 'file'), 'exists already'),
    (str(tmp_path / 'full'), 'exists already'),
    (str(tmp_path / 'link'), 'exists already'),
    (str(tmp_path / 'file/out'), 'cannot be written'),
  ):
    with pytest.raises(ValueError, match=message):
      StagingDirectory(destination)
  (tmp_path / 'out.unfinished').mkdir()
  (tmp_path / 'out.unfinished/file').touch()
  with pytest.raises(ValueError, match='holds something else; move it away'):
    StagingDirectory(str(tmp_path / 'out'))
  (tmp_path / 'out.unfinished/file').unlink()  # e.g. a process killed too early
  StagingDirectory(str(tmp_path / 'out'))._lock.close()
