"""Wrong arguments are refused in one line, before anything is written."""

import os

import pytest

from batch_rl.tests import shards
from batch_rl.tests.dataset.conftest import is_one_line

RUN = 'Pong/1'
FETCH = ['fetch', '.', '--game', 'Pong', '--run', '1', '--data_dir', '../new']
# Commands with `{}` in the place of a path that is read.
SOURCES = {
  'compare': ['compare', '{}', 'run'],
  'fingerprint': ['fingerprint', '{}'],
  'verify': ['verify', '{}'],
  'verify --all': ['verify', '{}', '--all'],
  'inspect': ['inspect', '{}'],
  'subset': ['subset', '{}'],
  'convert': ['convert', '{}', '../new'],
  'export': ['export', '{}', '../new-v0', '--format', 'minari'],
  'import': ['import', '{}', '../new'],
  'import --format': ['import', '{}', '../new', '--format', 'rlds'],
  'fetch': ['fetch', '{}', *FETCH[2:]],
}
# Commands with `{}` in the place of a path that is written.
DESTINATIONS = {
  'convert': ['convert', RUN, '{}'],
  'export': ['export', RUN, '{}', '--format', 'minari'],
  'import': ['import', RUN, '{}'],
  'import --shards': ['import', RUN, '{}', '--shards'],
  'fetch': [*FETCH[:-1], '{}'],
  'inspect --plot': ['inspect', RUN, '--plot', '{}'],
  'inspect --video': ['inspect', RUN, '--video', '{}'],
}


@pytest.fixture(scope='module')
def tree(tmp_path_factory):
  """A dataset, a file, folders and loops of links; no test may change it."""
  root = tmp_path_factory.mktemp('tree')
  data = root / 'data'
  shards.write_run(data / RUN / 'replay_logs', [30, 30], capacity=40)
  (data / 'loop-v0').symlink_to('loop-v0')
  (data / 'file-v0').write_text('text')
  for name in ('folder.png', '../minari'):
    (data / name).mkdir()
  return root


@pytest.fixture
def is_refused(tree, run, monkeypatch):
  """Runs a command; returns whether it is one line that names a value."""
  monkeypatch.chdir(tree / 'data')
  monkeypatch.setenv('MINARI_DATASETS_PATH', str(tree / 'minari'))

  def snapshot():
    return {
      os.path.join(folder, name): os.lstat(os.path.join(folder, name)).st_size
      for folder, folders, names in os.walk(tree)
      for name in [*folders, *names]
    }

  def refused(arguments, value):
    before = snapshot()
    code, _, err = run(*arguments)
    # A source that was reached, but lacks the run.
    expected = 1 if arguments[:2] == ['fetch', 'folder.png'] else 2
    assert code == expected and is_one_line(err), err
    assert snapshot() == before
    return str(value) in err

  return refused


def fill(template, value):
  return [value if part == '{}' else part for part in template]


@pytest.mark.parametrize('command', SOURCES)
@pytest.mark.parametrize('path', ['', 'missing', 'loop-v0'])
def test_wrong_sources(is_refused, command, path):
  assert is_refused(fill(SOURCES[command], path), path or 'empty')


@pytest.mark.parametrize('command', ['verify', 'convert', 'import', 'fetch'])
@pytest.mark.parametrize('path', ['file-v0', 'folder.png'])
def test_sources_without_a_run(is_refused, command, path):
  assert is_refused(fill(SOURCES[command], path), path)


@pytest.mark.parametrize('command', DESTINATIONS)
@pytest.mark.parametrize('path', ['\t', 'a\0b'])
def test_wrong_names_of_destinations(is_refused, command, path):
  named = repr(path).strip("'") if path.strip() else 'empty'
  assert is_refused(fill(DESTINATIONS[command], path), named)


@pytest.mark.parametrize(
  'command', ['convert', 'export', 'import', 'import --shards', 'fetch']
)
@pytest.mark.parametrize(
  'path',
  [
    'gs://bucket/new-v0',
    'file-v0/below-v0',
    'loop-v0/below-v0',
    '/proc/new-v0',
    f'{RUN}/../1/replay_logs/new-v0',
  ],
)
def test_wrong_destinations(is_refused, command, path):
  assert is_refused(fill(DESTINATIONS[command], path), '')


@pytest.mark.parametrize('command', ['convert', 'export', 'import', 'fetch'])
@pytest.mark.parametrize('path', ['.', '/'])
def test_destinations_in_the_source_or_with_other_content(
  is_refused, command, path
):
  if (command, path) != ('fetch', '/'):
    assert is_refused(fill(DESTINATIONS[command], path), path)


@pytest.mark.parametrize('game', ['', '..', 'a/b', 'x' * 256])
def test_wrong_games(is_refused, game):
  arguments = [*FETCH[:3], game, *FETCH[4:]]
  assert is_refused(arguments, '--game')
  arguments = ['import', RUN, '../new', '--format', 'rlds', '--game', game]
  assert is_refused(arguments, '--game')


@pytest.mark.parametrize('value', ['', '-1', '1.5', '9' * 30])
@pytest.mark.parametrize(
  'arguments',
  [
    [*FETCH, '--jobs'],
    [*FETCH[:6], '--data_dir', '../new', '--run'],
    ['inspect', RUN, '--video', '../x.gif', '--episode'],
    ['export', RUN, '../new-v0', '--format', 'minari', '--stack'],
    ['import', RUN, '../new', '--format', 'rlds', '--shard_rows'],
  ],
  ids=lambda arguments: ' '.join([arguments[0], arguments[-1]]),
)
def test_wrong_numbers(is_refused, arguments, value):
  name = '' if arguments[-1] == '--episode' else arguments[-1]
  assert is_refused([*arguments[:-1], f'{arguments[-1]}={value}'], name)


@pytest.mark.parametrize('text', ['1-10001', '2-1'])
def test_wrong_ranges(is_refused, text):
  assert is_refused([*FETCH, f'--shards={text}'], '--shards=')


@pytest.mark.parametrize('subset', ['', 'x', 'shards(-1, 2)'])
def test_wrong_subsets(is_refused, subset):
  assert is_refused(['subset', RUN, subset], '')
  export = ['export', RUN, '../new-v0', '--format', 'minari', '--subset']
  assert is_refused([*export, subset], '')
