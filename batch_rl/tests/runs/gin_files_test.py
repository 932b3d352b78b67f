"""gin files are found, and can include others, from any directory."""

import os

import gin
import pytest

from batch_rl.runs import gin_files
from batch_rl.tests import user_code
from batch_rl.utils.user_code import user_modules

PACKAGED = 'batch_rl/fixed_replay/configs/rem.gin'


@gin.configurable
def configured(first=None, second=None):
  """Has parameters to bind."""
  return first, second


# Each test runs in a directory outside the repository.
pytestmark = pytest.mark.usefixtures('own_folder')


def parse(paths, bindings=()):
  return gin_files.apply(gin_files.read(paths, bindings))


def write(path, *lines):
  return str(user_code.write(path, '\n'.join(lines)))


def test_includes_are_found_here_or_else_beside_the_file(tmp_path):
  path = write(tmp_path / 'conf/a.gin', "include 'more/b.gin'")
  write(tmp_path / 'conf/more/b.gin', "include 'c.gin'", "include 'd.gin'")
  write(tmp_path / 'conf/more/c.gin', 'configured.second = 2')
  write(tmp_path / 'conf/more/d.gin', '\ufeffconfigured.first = 1')
  write(tmp_path / 'own/d.gin', 'configured.first = 3')
  parse([path])
  assert configured() == (3, 2)
  copy = write(tmp_path / 'own' / PACKAGED, 'configured.first = 4')
  assert not os.path.samefile(gin_files.find(PACKAGED), copy)


def test_files_are_found_in_any_package_and_in_a_pipe(tmp_path, monkeypatch):
  """With or without an `__init__.py`, which gin alone requires."""
  monkeypatch.syspath_prepend(str(tmp_path / 'site'))
  write(tmp_path / 'site/mylab/__init__.py')
  write(tmp_path / 'site/mylab/configs/a.gin', 'configured.first = 1')
  reader, writer = os.pipe()
  os.write(writer, b'configured.second = 2')
  os.close(writer)
  try:
    parse(['mylab/configs/a.gin', f'/dev/fd/{reader}'], [])
  finally:
    os.close(reader)
  assert configured() == (1, 2)


@pytest.mark.parametrize(
  ('include', 'message'),
  [
    ('b.gin', 'There is no gin file b.gin.'),
    ('/none/b.gin', 'There is no gin file /none/b.gin.'),
    ('/none/b', r'no gin file /none/b \(did you mean /none/b.gin\?\)'),
    ('/', '/ is a directory: give a gin file'),
    ('minatar/configs/offline.gin', 'did you mean batch_rl/minatar/configs/o'),
    ('batch_rl/fixed_replay/configs/renn.gin', 'no gin file batch_rl.*renn'),
  ],
)
def test_a_missing_include_is_named(tmp_path, include, message):
  path = write(tmp_path / 'a.gin', f"include '{include}'")
  with pytest.raises(ValueError, match=message) as error:
    parse([path])
  assert path in str(error.value)  # the including file
  (tmp_path / 'a.gin').write_bytes('# é'.encode('latin-1'))
  with pytest.raises(ValueError, match='a.gin is not in UTF-8'):
    parse([path])


def test_statements_take_effect_in_their_order(tmp_path):
  inner = write(tmp_path / 'b.gin', 'configured.first = 2')
  lines = 'configured.first = 1', 'configured.second = 3'
  outer = write(tmp_path / 'a.gin', *lines)
  given = [f"include '{inner}'", 'configured.second = [%four]', 'four = 4']
  bindings = parse([outer], given)
  assert configured() == (2, [4])
  first, second = 'configured.first', 'configured.second'
  expected = [(first, outer), (second, outer), (first, inner), (second, None)]
  assert [(b.name, b.file) for b in bindings] == [*expected, ('four', None)]


@pytest.mark.parametrize(
  'imported',
  ['import mine', "a = 'mine.MyAgent'\ncreate_offline_agent.agent_name = %a"],
)
def test_modules_are_imported_from_beside_the_file(tmp_path, imported):
  write(tmp_path / 'conf/mine.py', user_code.AGENT)
  lines = f"include '{PACKAGED}'", imported, 'MyAgent.weight = 2'
  write(tmp_path / 'conf/a.gin', *lines)
  path = write(tmp_path / 'b.gin', "include 'conf/a.gin'")
  parse([path], ['MyAgent.gamma = 0.5'])
  assert gin.query_parameter('WrappedFixedReplayBuffer.batch_size') == 32
  assert gin.query_parameter('mine.MyAgent.weight') == 2
  assert str(tmp_path / 'conf') in user_modules.loaded_folders()
  path = write(tmp_path / 'conf/a.gin', 'import mien')
  with pytest.raises(ValueError, match=f"(?s)'mien'.*{tmp_path}"):
    parse([path])


def test_files_of_the_user_are_listed_with_their_includes(tmp_path):
  """Also if they include each other, which is an error elsewhere."""
  include = "\ufeffinclude 'a.gin'"  # as editors on Windows begin
  other = write(tmp_path / 'conf/b.gin', include, "include 'gone.gin'")
  lines = f"include '{PACKAGED}'", "  include 'b.gin'"
  path = write(tmp_path / 'conf/a.gin', *lines)
  assert gin_files.user_files([path, PACKAGED]) == [path, other]
  assert gin_files.user_files([], f"a = 1\ninclude '{path}'") == [path, other]
  with pytest.raises(ValueError, match='includes itself'):
    parse([path])
