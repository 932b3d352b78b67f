"""gin files are found, and can include others, from any directory."""

import os

import gin
import pytest
from gin import resource_reader

from batch_rl.runs import gin_files

PACKAGED = 'batch_rl/fixed_replay/configs/rem.gin'


@gin.configurable
def configured(first=None, second=None):
  """Has parameters to bind."""
  return first, second


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path, monkeypatch):
  """Each test runs in a directory outside the repository."""
  (tmp_path / 'elsewhere').mkdir()
  monkeypatch.chdir(tmp_path / 'elsewhere')


def write(path, *lines):
  path.parent.mkdir(parents=True, exist_ok=True)
  path.write_text('\n'.join(lines) + '\n', encoding='utf-8')
  return str(path)


def test_a_users_file_includes_a_packaged_one(tmp_path):
  path = write(tmp_path / 'mine.gin', f"include '{PACKAGED}'")
  gin_files.parse([path], ['FixedReplayRunner.num_iterations = 3'])
  assert gin.query_parameter('create_offline_agent.agent_name') == (
    'multi_head_dqn'
  )
  assert gin.query_parameter('WrappedFixedReplayBuffer.batch_size') == 32
  assert gin.query_parameter('FixedReplayRunner.num_iterations') == 3


def test_a_pipe_of_the_shell_is_read():
  reader, writer = os.pipe()
  os.write(writer, b'configured.first = 1')
  os.close(writer)
  try:
    gin_files.parse([f'/dev/fd/{reader}'], [])
  finally:
    os.close(reader)
  assert configured() == (1, None)


def test_includes_are_relative_to_the_including_file(tmp_path):
  path = write(tmp_path / 'conf/a.gin', "include 'more/b.gin'")
  write(tmp_path / 'conf/more/b.gin', "include 'c.gin'", 'configured.first = 1')
  write(tmp_path / 'conf/more/c.gin', 'configured.second = 2')
  gin_files.parse([path], [])
  assert configured() == (1, 2)


def test_the_working_directory_comes_first(tmp_path):
  path = write(tmp_path / 'conf/a.gin', "include 'b.gin'")
  write(tmp_path / 'conf/b.gin', 'configured.first = 1')
  write(tmp_path / 'elsewhere/b.gin', 'configured.first = 2')
  gin_files.parse([path], [])
  assert configured() == (2, None)


def test_files_are_found_in_any_package(tmp_path, monkeypatch):
  """With or without an `__init__.py`, which gin alone requires."""
  monkeypatch.syspath_prepend(str(tmp_path / 'site'))
  write(tmp_path / 'site/mylab/__init__.py')
  write(tmp_path / 'site/mylab/configs/a.gin', 'configured.first = 1')
  gin_files.parse(['mylab/configs/a.gin'], [])
  assert configured() == (1, None)


def test_bindings_override_files_and_may_include(tmp_path):
  path = write(tmp_path / 'a.gin', 'configured.first = 1')
  gin_files.parse([], [f"include '{path}'", 'configured.second = 2'])
  assert configured() == (1, 2)


@pytest.mark.parametrize(
  ('include', 'message'),
  [
    ('b.gin', 'There is no gin file b.gin; that folder has a.gin.'),
    ('none/b.gin', 'There is no gin file none/b.gin.'),
    ('elsewhere/b.gin', 'There is no gin file elsewhere/b.gin.'),
    ('/none/b.gin', 'There is no gin file /none/b.gin.'),
    ('json/b.gin', 'There is no gin file json/b.gin.'),
    ('batch_rl/fixed_replay/configs/renn.gin', 'that folder has average'),
  ],
)
def test_a_missing_include_is_named_with_its_neighbours(
  tmp_path, include, message, caplog
):
  path = write(tmp_path / 'a.gin', f"include '{include}'")
  with pytest.raises(ValueError) as error:
    gin_files.parse([path], [])
  assert message in str(error.value)
  assert path in str(error.value)  # the including file
  assert not caplog.records


def test_nothing_is_left_in_gin(tmp_path):
  before = list(gin.config._FILE_READERS)
  with pytest.raises(ValueError, match='no gin file'):
    gin_files.parse([str(tmp_path / 'none.gin')], [])
  assert gin.config._FILE_READERS == before


def test_gin_alone_finds_packaged_files():
  assert resource_reader.system_path_file_exists(PACKAGED)
