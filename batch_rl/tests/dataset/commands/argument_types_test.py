"""Wrong arguments are refused in one line, before anything is written."""

import itertools

import pytest

from batch_rl.tests import shards
from batch_rl.tests.dataset.conftest import is_one_line
from batch_rl.tests.interchange_runs import SAMPLE

RUN = 'Pong/1'
FETCH = 'fetch {} --game Pong --run 1 --data_dir'
# Commands with `{}` in the place of a path that is read.
SOURCES = [
  *('compare {} run', 'fingerprint {}', 'verify {} --all'),
  *('inspect {}', 'subset {}', 'export {} ../new-v0 --format minari'),
  *('verify {}', 'convert {} ../new'),
  *('import {} ../new', f'{FETCH} ../new'),
]
# Commands with `{}` in the place of a path that is written.
WRITERS = [
  *(f'convert {RUN} {{}}', f'export {RUN} {{}} --format minari'),
  f'export {RUN} {{}} --format shards',
  *(f'import {RUN} {{}}', f'{FETCH.format(".")} {{}}'),
]
DESTINATIONS = [*WRITERS, f'inspect {RUN} --plot {{}}']


@pytest.fixture(scope='module')
def tree(tmp_path_factory):
  """A dataset, a file, folders and loops of links; no test may change it."""
  root = tmp_path_factory.mktemp('tree')
  data = root / 'data'
  for path, game in ((RUN, 'Pong'), ('Breakout', 'Breakout')):
    logs = data / path / 'replay_logs'
    shards.write_run(logs, [30, 30], 40, environment={'game': game})
  (data / 'loop-v0').symlink_to('loop-v0')
  (data / 'file-v0').write_text('text')
  for name in ('folder.png', '../minari'):
    (data / name).mkdir()
  return root


@pytest.fixture
def is_refused(tree, run, monkeypatch):
  """Runs a command on a path; returns whether it is one line that names a value."""
  monkeypatch.chdir(tree / 'data')
  monkeypatch.setenv('MINARI_DATASETS_PATH', str(tree / 'minari'))

  def snapshot():
    return {path: path.lstat().st_size for path in tree.rglob('*')}

  def refused(command, value, path=''):
    if 'minari' in command:
      pytest.importorskip('minari', reason='Minari is not installed')
    before = snapshot()
    arguments = [path if part == '{}' else part for part in command.split()]
    code, _, err = run(*arguments)
    # A source that was reached, but lacks the run.
    expected = 1 if arguments[:2] == ['fetch', 'folder.png'] else 2
    assert code == expected and is_one_line(err), err
    assert snapshot() == before
    return value in err

  return refused


WRONG_DESTINATIONS = [
  *('gs://bucket/new-v0', 'file-v0/below-v0', 'loop-v0/below-v0'),
  *('/proc/new-v0', f'{RUN}/../1/replay_logs/new-v0'),
  '.',  # in the source, or with other content
]


@pytest.mark.parametrize(
  'command, path',
  [
    *itertools.product(SOURCES, ['', 'missing', 'loop-v0']),
    *itertools.product(SOURCES[-4:], ['file-v0', 'folder.png']),
    *itertools.product(DESTINATIONS, ['\t', 'a\0b']),
    *itertools.product(WRITERS, WRONG_DESTINATIONS),
    *itertools.product(WRITERS[:3], ['/']),
  ],
)
def test_a_wrong_path_is_named(is_refused, command, path):
  named = path.strip().removesuffix('/new-v0').replace('\0', r'\x00') or 'empty'
  assert is_refused(command, named, path)


HUGE = '9' * 30
MINARI = f'export {RUN} ../new-v0 --format minari'
IMPORT = f'import {RUN} ../new'
FETCH_ALL = f'{FETCH.format(".")} ../new'
UNPLUGGED = f'{FETCH_ALL} --layout=unplugged'
# Commands, and the value or option that the error names.
MISTAKES = {
  '': 'COMMAND',
  f'look {RUN}': 'look',
  f'verify {RUN} --fast': '--fast',
  'fetch . --run 1 --game=..': '--game',
  f'{IMPORT} --game=a/b': '--game',
  f'{IMPORT} --game={"x" * 256}': '--game',
  'import gs://bucket/dqn ../new': '`fetch` it first',
  'import nowhere ../new --game=Pong': 'nowhere is not a directory',
  f'{IMPORT} --run=1': '--run does not apply',
  f'inspect {RUN} --video ../x.gif --episode={HUGE}': 'no episode',
  f'inspect {RUN} --video ../x.gif --episode=1.5': '--episode',
  f'inspect {RUN} --episode=1': '--video',
  f'inspect {RUN} --video a.avi': '.gif or .mp4',
  f'inspect {RUN} --video missing/a.gif': 'missing',
  f'inspect {RUN} --plot a.doc': '.png',
  f'inspect {RUN} --plot a.gif --video a.gif': 'a.gif: give two',
  f'inspect {RUN} --plot folder.png': 'folder.png',
  'inspect \x1b[31m': r'\x1b[31m',
  f'{FETCH_ALL} --shards=1-10001': '--shards=',
  f'{FETCH_ALL} --game Pong Pong': 'repeats a game',
  f'{FETCH.format("gopher://a")} ../new': 'cannot be fetched from',
  f'{FETCH.format("http://")} ../new': 'No host supplied',
  f'{UNPLUGGED} --game=Pnog': 'no Pnog (did you mean Pong?)',
  f'{UNPLUGGED} --game=Adventure': '46 games, and no Adventure',
  f'{UNPLUGGED} --shards=1': '--shards does not apply to --layout=unp',
  f'{FETCH_ALL} --checkpoints=1': '--layout=dopamine',
  f'subset {RUN} shards(-1,2)': 'shards(-1,2)',
  f'subset {RUN} {"(" * 9999}': '',
  f'{MINARI} --subset=x': 'x',
  f'{MINARI} --subset=': '',
  f'compare {RUN} Pong': f'e.g. {RUN}',
  f'compare {RUN} Breakout': 'Breakout',
  f'compare {RUN} {SAMPLE}': 'uint8 (84, 84)',
  f'verify {RUN} --fingerprints Pong-1': (
    'in the package: MinAtar-Breakout-1-sample, Pong-1-sample.'
  ),
  f'verify . --all --fingerprints {RUN}': '--all',
  f'verify {RUN} --fingerprints=': 'the path is empty',
} | {
  f'{command}={value}': command.rpartition(' ')[2]
  for value in ('', '-1', '1.5', HUGE)
  for command in (f'{FETCH_ALL} --jobs', f'{FETCH_ALL} --run')
}


@pytest.mark.parametrize('command', MISTAKES)
def test_a_mistake_names_the_value(is_refused, command):
  assert is_refused(command, MISTAKES[command])
