"""The tools' command line: what they print, and their exit codes."""

import json
import pathlib
import subprocess
import sys

import pytest

from batch_rl.dataset.shards import manifests, shard_files
from batch_rl.tests import shards
from batch_rl.tests.dataset.conftest import is_one_line

SAMPLE = pathlib.Path(__file__).parents[4] / 'data' / 'Pong' / '1'


@pytest.fixture
def root(tmp_path):
  for run in ('1', '2'):
    logs = tmp_path / 'Pong' / run / 'replay_logs'
    shards.write_run(logs, [30, 30], capacity=40)
  return tmp_path


def run_process(*arguments):
  command = [sys.executable, '-m', 'batch_rl.dataset', *map(str, arguments)]
  done = subprocess.run(command, capture_output=True, text=True, check=False)
  return done.returncode, done.stdout, done.stderr


def damage(path):
  content = bytearray(path.read_bytes())
  content[len(content) // 2] ^= 1
  path.write_bytes(content)


def test_verify_the_sample():
  code, out, err = run_process('verify', SAMPLE)
  assert code == 0 and not err
  assert 'shard 0: 29,999 rows, 31 episodes end, mean return -20.39' in out
  assert out.endswith('all is well (11 shards, 16.9 MB, 1 note)\n')


def test_inspect_the_sample_with_pictures(tmp_path):
  plot, video = tmp_path / 'plot.png', tmp_path / 'episode.gif'
  code, out, err = run_process(
    'inspect', SAMPLE, '--plot', plot, '--video', video, '--episode', 0
  )
  assert code == 0 and not err
  assert out.startswith(f'{SAMPLE}: Pong by dqn, observations 84 x 84 uint8')
  (total,) = [line for line in out.splitlines() if line.startswith('total')]
  assert total.split()[1:5] == ['312,040', '311,539', '501', '167']
  assert 'action  0:  10.7 %       33,422' in out
  assert 'episode 0: 884 agent steps, return -21, ends in shard 0' in out
  assert plot.stat().st_size > 10_000 and video.stat().st_size > 10_000


def test_a_wrong_argument_is_one_line():
  code, out, err = run_process('verify', SAMPLE, '--fast')
  assert code == 2 and not out and is_one_line(err) and '--fast' in err


def test_damage_is_named_and_exits_with_1(root, run):
  path = (
    root / 'Pong' / '1' / 'replay_logs' / shard_files.file_name('reward', 1)
  )
  damage(path)
  code, out, err = run('verify', root / 'Pong' / '1')
  assert code == 1 and not err
  (line,) = [line for line in out.splitlines() if line.startswith('error:')]
  assert str(path) in line
  assert 'NOT well (2 shards' in out and '1 error' in out


def test_suspicious_data_exits_with_1(root, run):
  logs = root / 'Pong' / '1' / 'replay_logs'
  (logs / manifests.FILE_NAME).unlink()
  frames = [logs / shard_files.file_name('observation', n) for n in (0, 1)]
  frames[1].write_bytes(frames[0].read_bytes())
  code, out, _ = run('verify', logs)
  assert code == 1 and 'suspicious: ' in out and 'error: ' not in out


def test_json_is_all_there_is(root):
  code, out, err = run_process('verify', '--json', root / 'Pong' / '1')
  document = json.loads(out)
  assert code == 0 and not err and document['ok']
  assert [entry['rows'] for entry in document['shards']] == [39, 27]
  assert document['findings'][0]['level'] == 'note'
  code, out, err = run_process('inspect', '--json', root / 'Pong' / '1')
  document = json.loads(out)
  assert code == 0 and not err
  assert document['total']['episodes'] == 2
  assert document['frames'] == {'shape': [2, 2], 'dtype': 'uint8'}


def test_several_runs_are_listed(root, run):
  code, out, err = run('inspect', root)
  assert code == 0 and not err
  assert [line.split()[:4] for line in out.splitlines()[1:]] == [
    ['Pong', '1', '2', '66'],
    ['Pong', '2', '2', '66'],
  ]
  code, listed, err = run('verify', root / 'Pong')
  assert code == 2 and listed == out and is_one_line(err) and '--all' in err
  code, out, _ = run('inspect', '--json', root)
  assert [entry['run'] for entry in json.loads(out)['runs']] == ['1', '2']


@pytest.mark.parametrize('command', ['convert', 'subset'])
def test_runs_are_listed_to_choose_from(root, run, command):
  target = [root / 'store'] if command == 'convert' else []
  listed = run('inspect', root)[1]
  code, out, err = run(command, root, *target)
  assert code == 2 and out == listed and is_one_line(err)
  assert 'choose one' in err and not (root / 'store').exists()


def test_a_store_takes_the_place_of_its_run(root, run, tmp_path):
  directory, path = root / 'Pong' / '1', root / 'stores' / 'pong'
  code, out, err = run('convert', directory, path)
  assert code == 0 and not err.replace('\r', '').startswith('error')
  assert out.startswith(f'{path}: 2 shards, 66 rows')
  for arguments in (['inspect', '--json'], ['subset', '--json']):
    _, of_run, _ = run(*arguments, directory)
    code, of_store, _ = run(*arguments, path)
    assert code == 0
    documents = [json.loads(text) for text in (of_run, of_store)]
    for document in documents:
      document.pop('directory', None)
      document.pop('run', None)
      for entry in [*document.get('shards', []), document.get('total', {})]:
        entry.pop('bytes', None)
        entry.pop('bytes_per_transition', None)
    assert documents[0] == documents[1]
  code, out, _ = run('inspect', root / 'stores')
  assert code == 0 and out.splitlines()[1].split()[:4] == [
    'Pong',
    '1',
    '2',
    '66',
  ]
  code, _, err = run('convert', path, root / 'again')
  assert code == 2 and is_one_line(err) and 'is a store already' in err


def test_a_store_is_verified(root, run):
  path = root / 'stores' / 'pong'
  run('convert', root / 'Pong' / '1', path)
  code, out, _ = run('verify', path)
  assert code == 0 and out.startswith('shard 0: 39 rows, 1 episodes end')
  assert f'{path}: all is well (2 shards' in out
  damage(path / 'shard-1.bin')
  code, out, _ = run('verify', '--all', root / 'stores')
  assert code == 1 and f'error: {path}/shard-1.bin is damaged' in out
  assert out.endswith(f'1 runs: NOT well: {path}\n')


def test_pictures_of_a_store_are_those_of_its_run(root, run):
  path = root / 'stores' / 'pong'
  run('convert', root / 'Pong' / '1', path)
  videos = []
  for directory in (root / 'Pong' / '1', path):
    videos.append(root / f'{len(videos)}.gif')
    code, _, err = run('inspect', directory, '--video', videos[-1])
    assert code == 0 and not err
  assert videos[0].read_bytes() == videos[1].read_bytes()


def test_all_runs_are_verified(root, run):
  code, out, _ = run('verify', '--all', root)
  assert code == 0 and out.endswith('2 runs: all is well\n')
  damage(
    root / 'Pong' / '2' / 'replay_logs' / shard_files.file_name('reward', 1)
  )
  (root / 'Pong' / '3' / 'replay_logs').mkdir(parents=True)
  code, out, _ = run('verify', '--all', root)
  wrong = f'{root}/Pong/2, {root}/Pong/3'
  assert code == 1 and out.endswith(f'3 runs: NOT well: {wrong}\n')
  code, out, _ = run('verify', '--all', '--json', root)
  document = json.loads(out)
  assert code == 1 and not document['ok']
  assert [entry['ok'] for entry in document['runs']] == [True, False, False]


@pytest.mark.parametrize(
  'arguments, message',
  [
    (['verify', '{root}/nowhere'], 'cannot be listed'),
    (['inspect', '{root}/Pong/1', '--video', 'a.avi'], '.gif or .mp4'),
    (['inspect', '{root}/Pong/1', '--plot', 'a.doc'], '.png'),
    (['inspect', '{root}/Pong/1', '--episode', '1'], 'add --video'),
    (
      ['inspect', '{root}/Pong/1', '--video', '{root}/a.gif', '--episode', '2'],
      'no episode 2',
    ),
    (['inspect', '{root}/Pong', '--plot', '{root}/a.png'], 'choose one'),
    (['look', '{root}'], 'look'),
    ([], 'COMMAND'),
  ],
)
def test_mistakes_are_one_line(root, run, arguments, message):
  code, _, err = run(*(a.format(root=root) for a in arguments))
  assert code == 2 and is_one_line(err) and message in err


def test_an_empty_folder_of_shards_is_an_error(tmp_path, run):
  (tmp_path / 'replay_logs').mkdir()
  for command in ('verify', 'inspect'):
    code, _, err = run(command, tmp_path)
    assert code == 2 and is_one_line(err) and 'empty of shards' in err


@pytest.mark.parametrize(
  'module, option, name',
  [('matplotlib', '--plot', 'a.png'), ('PIL', '--video', 'a.gif')],
)
def test_what_is_not_installed_is_named(
  root, run, monkeypatch, module, option, name
):
  monkeypatch.setitem(sys.modules, module, None)
  code, _, err = run('inspect', root / 'Pong' / '1', option, root / name)
  assert code == 2 and is_one_line(err) and 'pip install' in err


def test_help_is_there(run):
  for arguments in (['--help'], ['verify', '--help'], ['inspect', '--help']):
    code, out, _ = run(*arguments)
    assert code == 0 and 'usage' in out


def test_remote_runs(run):
  """TensorFlow's file systems; this one is in memory."""
  import tensorflow as tf

  game = 'ram://data/Pong'
  logs = f'{game}/1/replay_logs'
  tf.io.gfile.makedirs(logs)
  for path in (SAMPLE / 'replay_logs').iterdir():
    if '.9.gz' in path.name or '.10.gz' in path.name:
      with tf.io.gfile.GFile(f'{logs}/{path.name}', 'wb') as file:
        file.write(path.read_bytes())
  code, out, _ = run('verify', f'{game}/1')
  assert code == 0 and 'all is well (2 shards' in out
  code, out, _ = run('inspect', f'{game}/1')
  assert code == 0 and 'total  42,041' in out
  code, out, _ = run('inspect', game)
  assert code == 0 and out.splitlines()[1].split()[:3] == ['Pong', '1', '2']
  code, _, err = run('verify', 'ram://nowhere')
  assert code == 2 and is_one_line(err)
