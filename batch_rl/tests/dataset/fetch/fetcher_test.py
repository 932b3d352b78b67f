"""Shards are fetched whole, whatever the source and the machine do."""

import gzip
import hashlib
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import time

import fsspec
import numpy as np
import psutil
import pytest

from batch_rl.dataset import __main__ as tools
from batch_rl.dataset import run_directories
from batch_rl.dataset.checks import run_checks
from batch_rl.dataset.fetch import fetcher, incoming_shards, remote_sources
from batch_rl.dataset.shards import manifests, shard_files, shard_reader
from batch_rl.tests import shards
from batch_rl.tests.dataset.conftest import is_one_line
from batch_rl.tests.dataset.fetch import web_server

SAMPLE = pathlib.Path(__file__).parents[4] / 'data'
FRAMES = shard_files.file_name('observation', 1)


def write_run(logs):
  """Three shards whose frames are some 100 kB each, of noise."""
  random = np.random.default_rng(0)
  log = shards.replay_log.ReplayLog(str(logs), (40, 40), np.uint8, 80)
  for step in range(200):
    frame = random.integers(1, 255, (40, 40), np.uint8)
    log.add(frame, 1, 0.0, step % 30 == 29)
  log.close()


@pytest.fixture(scope='module')
def original(tmp_path_factory):
  root = tmp_path_factory.mktemp('original')
  write_run(root / 'Pong' / '1' / 'replay_logs')
  return root


@pytest.fixture
def root(original, tmp_path):
  """A dataset as the original one is: without manifests."""
  shutil.copytree(original, tmp_path / 'source')
  (tmp_path / 'source/Pong/1/replay_logs' / manifests.FILE_NAME).unlink()
  return tmp_path / 'source'


@pytest.fixture
def server(root, monkeypatch):
  monkeypatch.setattr(fetcher, '_FIRST_WAIT', 0.001)
  server = web_server.WebServer(root)
  yield server
  server.close()


@pytest.fixture
def run(capsys, tmp_path, monkeypatch):
  """Runs `fetch` into `data`: exit code, stdout, stderr."""
  monkeypatch.delenv('DATA_DIR', raising=False)

  def run_command(source, *arguments, game='Pong', run='1', to='data'):
    with pytest.raises(SystemExit) as exit_:
      tools.main(
        [
          *('fetch', str(source), '--game', *game.split(), '--run', run),
          *('--data_dir', str(tmp_path / to), *map(str, arguments)),
        ]
      )
    printed = capsys.readouterr()
    return exit_.value.code, printed.out, printed.err

  return run_command


@pytest.fixture
def logs(tmp_path):
  """Where `run` puts the shards of Pong/1."""
  return tmp_path / 'data' / 'Pong' / '1' / 'replay_logs'


def contents(folder, suffixes=None):
  return {
    path.name: path.read_bytes()
    for path in pathlib.Path(folder).glob('*_ckpt.*')
    if suffixes is None or shard_files.suffix_of(path.name) in suffixes
  }


def assert_all_there(root, logs, suffixes=None):
  assert contents(logs) == contents(root / 'Pong/1/replay_logs', suffixes)
  assert not (logs / 'partial').exists()
  assert not run_checks.verify(str(logs)).wrong


def corrupt(path):
  content = bytearray(path.read_bytes())
  content[len(content) // 2] ^= 1
  return bytes(content)


# --- all of it, some of it ------------------------------------------------------


@pytest.mark.parametrize('lists', [False, True])
@pytest.mark.parametrize('etags', [False, True])
def test_a_run_is_fetched_by_http(root, server, run, logs, lists, etags):
  server.lists, server.etags = lists, etags
  code, out, err = run(server.url)
  assert code == 0 and not err
  assert '18 files fetched, 0 were there' in out
  assert_all_there(root, logs)
  manifest = json.loads((logs / manifests.FILE_NAME).read_text())
  assert manifest['origin'] == {'how': 'fetch', 'source': server.url}
  about = manifest['shards'][1]['files'][FRAMES]
  content = (logs / FRAMES).read_bytes()
  assert about == {
    'bytes': len(content),
    'sha256': hashlib.sha256(content).hexdigest(),
  }


def test_what_is_there_is_not_fetched_again(server, run):
  run(server.url)
  server.requests.clear()
  code, out, _ = run(server.url)
  assert code == 0 and '0 files fetched, 18 were there' in out
  assert not server.gets()


def test_some_shards_then_the_others(root, server, run, logs):
  code, out, _ = run(server.url, '--shards', '0,2')
  assert code == 0 and '12 files fetched' in out
  assert set(contents(logs)) == set(
    contents(root / 'Pong/1/replay_logs', (0, 2))
  )
  assert 'no shard between 0 and 2' in out
  assert not any('_ckpt.1.' in path for _, path, _ in server.requests)
  code, out, _ = run(server.url, '--shards', '0-2')
  assert code == 0 and '6 files fetched, 12 were there' in out
  assert_all_there(root, logs)


def test_several_games_and_runs(root, run, tmp_path):
  for name in ('Pong/3', 'Qbert/1', 'Qbert/3'):
    shutil.copytree(root / 'Pong' / '1', root / name)
  code, out, _ = run(root, '--shards', '1', game='Pong Qbert', run='1,3')
  assert code == 0 and '24 files fetched' in out
  found = run_directories.find_runs(str(tmp_path / 'data'))
  names = [(r.game, r.name) for r in found]
  assert names == [(g, n) for g in ('Pong', 'Qbert') for n in '13']


@pytest.mark.parametrize('kind', ['folder', 'file', 'memory'])
def test_other_sources(root, run, logs, kind):
  source = {'folder': root, 'file': f'file://{root}', 'memory': 'memory://d'}
  if kind == 'memory':
    fsspec.filesystem('memory').put(str(root), '/d', recursive=True)
  code, out, err = run(source[kind], '--shards=1-2')
  assert code == 0 and not err and '12 files fetched' in out
  assert_all_there(root, logs, (1, 2))


def test_the_sources_manifest_is_kept(original, server, run, logs, root):
  name = manifests.FILE_NAME
  manifest = json.loads((original / 'Pong/1/replay_logs' / name).read_text())
  (root / 'Pong/1/replay_logs' / name).write_text(json.dumps(manifest))
  code, _, _ = run(server.url)
  assert code == 0
  assert not any(method == 'HEAD' for method, _, _ in server.requests)
  found = json.loads((logs / name).read_text())
  assert found.pop('origin')['source'] == server.url
  assert found == manifest
  assert_all_there(root, logs)
  run(server.url, '--shards', '1', to='other')
  logs = logs.parents[3] / 'other/Pong/1/replay_logs'
  found = json.loads((logs / name).read_text())
  assert found['shards'] == manifest['shards'][1:2] and 'rows' not in found
  assert not run_checks.verify(str(logs)).wrong


def test_the_seventh_file_comes_too(root, server, run, logs):
  name = 'episode_end_indices_ckpt.1.gz'
  (root / 'Pong/1/replay_logs' / name).write_bytes(gzip.compress(b'a pickle'))
  code, out, _ = run(server.url)
  assert code == 0 and '19 files fetched' in out
  assert (logs / name).exists()


def test_a_dry_run_fetches_nothing(root, server, run, tmp_path):
  code, out, _ = run(server.url, '--dry_run')
  size = sum(map(len, contents(root / 'Pong/1/replay_logs').values()))
  assert code == 0 and not server.gets() and not (tmp_path / 'data').exists()
  assert [line.split()[:3] for line in out.splitlines()[1:4]] == [
    ['Pong/1', str(suffix), '6'] for suffix in range(3)
  ]
  code, out, _ = run(server.url, '--dry_run', '--json')
  document = json.loads(out)
  assert code == 0 and document['bytes_to_fetch'] == size
  assert len(document['runs'][0]['files']) == 18


def test_json(server, run):
  code, out, err = run(server.url, '--json')
  document = json.loads(out)
  assert code == 0 and not err and document['ok']
  assert document['fetched'] == 18 and document['runs'][0]['shards'] == [
    *range(3)
  ]


# --- faults of the source -------------------------------------------------------


def test_dropped_connections_are_taken_up(root, server, run, logs):
  server.drop_after = 30_000
  code, _, _ = run(server.url, '--jobs=1', '--retries=1')
  assert code == 0
  assert_all_there(root, logs)
  assert server.gets(FRAMES) == list(
    range(0, len(contents(logs)[FRAMES]), 30_000)
  )


def test_a_server_without_ranges(root, server, run, logs):
  server.ranges, server.drop_after = False, 30_000
  code, out, _ = run(server.url, '--retries=2')
  assert code == 1 and '3 files were not fetched (Pong/1 $store$_obs' in out
  assert 'after 2 retries' in out and FRAMES not in contents(logs)
  server.drop_after = None
  code, out, _ = run(server.url)
  assert code == 0 and '3 files fetched' in out
  assert_all_there(root, logs)


def test_a_server_without_lengths(root, server, run, logs):
  server.lengths = False
  code, _, _ = run(server.url)
  assert code == 0
  assert_all_there(root, logs)
  server.drop_after = 30_000  # which nothing tells but the contents
  code, out, _ = run(server.url, to='other')
  assert code == 1 and 'is damaged' in out


@pytest.mark.parametrize('status', [429, 500, 503])
def test_trouble_that_passes(root, server, run, logs, status):
  server.statuses = {'GET': [status, 3], 'HEAD': [status, 3]}
  code, _, _ = run(server.url)
  assert code == 0 and server.statuses == {
    'GET': [status, 0],
    'HEAD': [status, 0],
  }
  assert_all_there(root, logs)


def test_trouble_that_stays(server, run):
  server.statuses = {f'GET /Pong/1/replay_logs/{FRAMES}': [500, 99]}
  code, out, _ = run(server.url, '--retries=2')
  assert code == 1
  assert f'a file was not fetched (Pong/1 {FRAMES}): 500 Int' in out
  assert len(server.gets(FRAMES)) == 3
  assert '17 files fetched' in out


def test_waits_double(monkeypatch):
  waits = []

  def fail():
    raise remote_sources.Interrupted('no')

  with pytest.raises(remote_sources.Interrupted):
    remote_sources.try_again(fail, 8, waits.append)
  assert waits == [1, 2, 4, 8, 16, 32, 60, 60]

  def fail_as_told():
    raise remote_sources.Interrupted('no', wait=7)

  with pytest.raises(remote_sources.Interrupted):
    remote_sources.try_again(fail_as_told, 1, waits.append)
  assert waits[-1] == 7


@pytest.mark.parametrize('lists', [False, True])
@pytest.mark.parametrize('status', [401, 403, 404])
def test_a_refusal_is_said_once(server, run, status, lists, tmp_path):
  server.lists, server.statuses = lists, {'': [status, 10_000]}
  code, out, err = run(server.url, run='1-5')
  assert code == 1 and not out and is_one_line(err)
  assert f' {status} ' in err and err.count(f' {status} ') == 1
  for instead in (
    'batch_rl.dataset import',
    'rlu_atari_checkpoints_ordered',
    'batch_rl.baselines.train',
  ):
    assert instead in err
  assert not (tmp_path / 'data').exists()
  if status == 403:
    assert len(server.requests) <= 40  # not one for each file there might be


def test_a_missing_shard_is_reported(root, server, run, logs):
  code, out, _ = run(server.url, '--shards', '1,2,50')
  assert code == 1 and 'missing: Pong/1: the source has no shard 50' in out
  assert_all_there(root, logs, (1, 2))


def test_an_incomplete_shard_is_not_fetched(root, server, run, logs):
  (root / 'Pong/1/replay_logs' / shard_files.file_name('reward', 1)).unlink()
  for server.lists in (False, True):
    code, out, _ = run(server.url)
    assert code == 1 and 'shard 1 is incomplete at the source' in out
    assert shard_files.file_name('reward', 1) in out
    assert shard_files.list_suffixes(str(logs)) == [0, 2]


def test_a_missing_run_does_not_stop_the_others(root, server, run, logs):
  code, out, _ = run(server.url, run='1,2')
  assert code == 1 and 'missing: Pong/2: the source says 404' in out
  assert_all_there(root, logs)


def test_a_damaged_file_is_fetched_twice_and_named(root, server, run, logs):
  path = root / 'Pong/1/replay_logs' / FRAMES
  server.bodies = {FRAMES: corrupt(path)}
  code, out, _ = run(server.url)
  assert code == 1 and server.gets(FRAMES) == [0, 0]
  assert f'(Pong/1 {FRAMES}): {FRAMES} is damaged' in out
  assert FRAMES not in contents(logs) and len(contents(logs)) == 17
  server.bodies = {}
  assert run(server.url)[0] == 0
  assert_all_there(root, logs)


@pytest.mark.parametrize(
  'body',
  [b'', b'<html>sign in</html>', gzip.compress(b'not an array')],
  ids=['empty', 'a page', 'no array'],
)
def test_what_is_no_shard_is_refused(server, run, body):
  server.bodies = {FRAMES: body}
  code, out, _ = run(server.url)
  assert code == 1 and 'is damaged' in out


def test_a_truncated_file_is_refused(root, server, run):
  server.bodies = {
    FRAMES: (root / 'Pong/1/replay_logs' / FRAMES).read_bytes()[:-9]
  }
  code, out, _ = run(server.url)
  assert code == 1 and 'is damaged' in out


def test_hashes_of_the_manifest_have_to_hold(original, server, run):
  """A file that is whole, and another one than it should be."""
  manifest = (
    original / 'Pong/1/replay_logs' / manifests.FILE_NAME
  ).read_bytes()
  frames = (
    original / 'Pong/1/replay_logs' / shard_files.file_name('observation', 0)
  )
  (
    pathlib.Path(server.folder) / 'Pong/1/replay_logs' / manifests.FILE_NAME
  ).write_bytes(manifest)
  server.bodies = {FRAMES: frames.read_bytes()}
  code, out, _ = run(server.url)
  assert code == 1 and 'its sha256 is' in out


@pytest.mark.parametrize('etags', [False, True])
@pytest.mark.parametrize('same_size', [False, True])
def test_a_file_that_changes_is_not_spliced(
  root, server, run, logs, etags, same_size
):
  server.etags, server.drop_after = etags, 30_000
  path = root / 'Pong/1/replay_logs' / FRAMES
  code, _, _ = run(server.url, '--retries=0')
  begun = logs / 'partial' / FRAMES
  assert code == 1 and begun.stat().st_size == 30_000
  columns = (
    shard_reader.read_array(str(path))[:, ::-1]
    if same_size
    else (np.zeros_like(shard_reader.read_array(str(path))))
  )
  with gzip.GzipFile(path, 'wb', 0 if same_size else 9, mtime=0) as file:
    np.save(file, columns)
  os.utime(path, (0, 1_000_000_000))
  server.drop_after = None
  server.requests.clear()
  code, _, _ = run(server.url)
  assert code == 0
  assert_all_there(root, logs)


def test_hashes_of_object_stores_have_to_hold(original, server, run):
  server.md5s = True
  assert run(server.url, '--shards=2')[0] == 0
  frames = (
    original / 'Pong/1/replay_logs' / shard_files.file_name('observation', 0)
  )
  server.bodies = {FRAMES: frames.read_bytes()}
  code, out, _ = run(server.url)
  assert code == 1 and 'its md5 is' in out and out.count('missing') == 1


def test_a_silent_server_is_given_up(root, server, run, logs):
  server.stalls = 1
  code, _, _ = run(server.url, '--timeout=1', '--retries=1')
  assert code == 0 and server.stalls == 0
  assert_all_there(root, logs)
  server.stalls = 2
  code, out, _ = run(
    server.url, '--timeout=1', '--retries=1', '--jobs=1', to='other'
  )
  assert code == 1 and 'no byte for 1 seconds, after 1 retries' in out


# --- what is here ---------------------------------------------------------------


def test_other_files_are_not_overwritten(root, server, run, logs):
  logs.mkdir(parents=True)
  (logs / FRAMES).write_bytes(b'mine')
  code, out, err = run(server.url)
  assert code == 2 and not out and is_one_line(err) and 'another run' in err
  assert contents(logs) == {FRAMES: b'mine'}


def test_a_run_made_here_is_not_mixed_with(original, server, run, logs):
  shutil.copytree(original / 'Pong/1/replay_logs', logs)
  code, _, err = run(server.url)
  assert code == 2 and is_one_line(err) and 'not fetched or imported' in err


def test_files_that_are_there_are_verified(root, server, run, logs):
  """As another program left them."""
  shutil.copytree(root / 'Pong/1/replay_logs', logs)
  (logs / FRAMES).unlink()
  code, out, _ = run(server.url)
  assert code == 0 and server.gets() == [0]
  assert_all_there(root, logs)
  other = logs.parents[3] / 'other/Pong/1/replay_logs'
  shutil.copytree(root / 'Pong/1/replay_logs', other)
  (other / FRAMES).write_bytes(corrupt(other / FRAMES))
  code, out, _ = run(server.url, to='other')
  assert code == 1 and f'{other / FRAMES} is damaged' in out
  assert 'Move it away' in out


def test_a_file_that_was_damaged_here_is_named(server, run, logs):
  assert run(server.url)[0] == 0
  path = logs / shard_files.file_name('reward', 1)
  size = path.stat().st_size
  path.write_bytes(gzip.compress(b'no array').ljust(size, b'\0'))
  code, out, err = run(server.url)
  assert code == 1 and str(path) in out + err


def test_there_has_to_be_room(root, server, run, monkeypatch, tmp_path):
  usage = psutil.disk_usage('/')._replace(free=1_000)
  monkeypatch.setattr(psutil, 'disk_usage', lambda path: usage)
  code, out, err = run(server.url)
  assert code == 2 and not out and is_one_line(err)
  assert '1e-06 GB are free' in err and not (tmp_path / 'data').exists()


def test_a_full_disk_ends_it_in_words(server, run, monkeypatch):
  def fail(path):
    raise OSError(28, 'No space left on device')

  monkeypatch.setattr(incoming_shards, 'sync', fail)
  code, _, err = run(server.url)
  assert code == 2 and is_one_line(err)
  assert 'No space left' in err and 'the same command goes on' in err


def test_one_process_at_a_time(server, run, logs):
  with incoming_shards.Arrivals(str(logs), {'how': 'fetch'}):
    code, _, err = run(server.url)
  assert code == 2 and is_one_line(err)
  assert f'is being written by process {os.getpid()}' in err


@pytest.mark.parametrize(
  'arguments, message',
  [
    (dict(game='Pnog'), 'no game Pnog; it has Pong'),
    (dict(run='7'), 'no run 7 of Pong; it has 1'),
    (dict(run='x'), '--run=x is neither'),
    (dict(arguments=['--shards=4-2']), '--shards=4-2 is neither'),
    (dict(arguments=['--shards=99']), 'no shard 99 (it has 0-2)'),
    (dict(arguments=['--jobs=0']), 'jobs'),
    (dict(source='{url}/Pong/1'), 'the folder above the games'),
    (dict(source='/nowhere'), 'is not a directory'),
    (dict(source='gopher://a'), 'cannot be fetched from'),
    (dict(source='http://'), 'names no host'),
  ],
)
def test_mistakes_are_one_line(server, run, tmp_path, arguments, message):
  server.lists = True
  arguments = dict(arguments)
  source = arguments.pop('source', '{url}').format(url=server.url)
  more = arguments.pop('arguments', [])
  code, out, err = run(source, *more, **arguments)
  assert code == 2 and not out and is_one_line(err) and message in err
  assert not (tmp_path / 'data').exists()


def test_without_a_listing_a_misspelt_game_is_guessed(server, run):
  code, _, err = run(server.url, game='pong')
  assert code == 1 and is_one_line(err) and 'is Pong meant?' in err


def test_no_destination(server, capsys, monkeypatch):
  monkeypatch.delenv('DATA_DIR', raising=False)
  with pytest.raises(SystemExit) as exit_:
    tools.main(['fetch', server.url, '--game=Pong', '--run=1'])
  err = capsys.readouterr().err
  assert exit_.value.code == 2 and is_one_line(err) and 'DATA_DIR' in err


@pytest.mark.parametrize(
  'protocol, package, remedy',
  [('gs', 'gcsfs', "'batch_rl[fetch]'"), ('s3', 's3fs', 's3fs')],
)
def test_a_missing_package_is_named(
  run, monkeypatch, protocol, package, remedy
):
  monkeypatch.setitem(sys.modules, package, None)
  code, _, err = run(f'{protocol}://bucket/dqn')
  assert code == 2 and is_one_line(err)
  assert f'not installed: pip install {remedy}.' in err


def test_a_server_that_is_not_there(run, monkeypatch):
  monkeypatch.setattr(fetcher, '_FIRST_WAIT', 0.001)
  code, _, err = run('http://127.0.0.1:1')
  assert code == 1 and is_one_line(err) and 'Connection refused' in err


def test_passwords_and_tokens_stay_secret(root, server, run, logs):
  host = server.url.removeprefix('http://')
  code, out, err = run(f'http://me:secret@{host}/?token=secret')
  assert code == 0
  assert 'secret' not in out + err + (logs / manifests.FILE_NAME).read_text()
  assert_all_there(root, logs)


# --- killed ---------------------------------------------------------------------


def test_a_killed_fetch_goes_on(tmp_path):
  """A real process, killed again and again while bytes arrive."""
  server = web_server.WebServer(SAMPLE)
  server.bytes_per_second = 2_000_000
  logs = tmp_path / 'Pong/1/replay_logs'
  command = [
    *(sys.executable, '-m', 'batch_rl.dataset', 'fetch', server.url),
    *('--game=Pong', '--run=1', '--shards=1-2', f'--data_dir={tmp_path}'),
  ]
  frames = logs / 'partial' / shard_files.file_name('observation', 2)
  try:
    for least in (100_000, 500_000, 1_000_000):
      process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
      deadline = time.monotonic() + 60
      while not frames.exists() or frames.stat().st_size < least:
        assert process.poll() is None and time.monotonic() < deadline
        time.sleep(0.01)
      process.send_signal(signal.SIGKILL)
      process.wait()
    server.bytes_per_second = None
    done = subprocess.run(command, capture_output=True, text=True, check=False)
  finally:
    server.close()
  assert done.returncode == 0, done.stderr
  expected = contents(SAMPLE / 'Pong/1/replay_logs', (1, 2))
  assert contents(logs) == expected
  assert not run_checks.verify(str(logs)).wrong
  starts = server.gets(shard_files.file_name('observation', 2))
  assert (
    len(starts) == 4 and starts == sorted(starts) and starts[3] >= 1_000_000
  )
  # What was in place was not asked for again.
  assert server.gets(shard_files.file_name('action', 1)) == [0]


# --- what is there already, and what the source says of it ----------------------


def test_a_refused_shard_is_missing(server, run, logs):
  server.statuses = {shard_files.file_name('observation', 2): [403, 100]}
  code, out, _ = run(server.url)
  assert code == 1 and 'missing: Pong/1: the source refuses shards 2' in out
  assert len(contents(logs)) == 12


def test_a_complete_partial_of_another_version_is_not_taken(
  root, server, run, logs
):
  name = shard_files.file_name('observation', 0)
  (logs / 'partial').mkdir(parents=True)
  stale = (root / 'Pong/1/replay_logs' / FRAMES).read_bytes()
  (logs / 'partial' / name).write_bytes(stale)
  note = {'bytes': len(stale), 'version': '"old"'}
  (logs / 'partial' / f'{name}.json').write_text(json.dumps(note))
  assert run(server.url)[0] == 0
  assert_all_there(root, logs)


def test_what_the_source_once_said_stays_true(root, server, run, logs):
  """A manifest that is gone takes no truncated episode along."""
  manifest = root / 'Pong/1/replay_logs' / manifests.FILE_NAME
  said = {'truncated_rows': [65, 98], 'environment': {'game': 'Pong'}}
  manifest.write_text(json.dumps(said))
  assert run(server.url, '--shards', '0-1')[0] == 0
  manifest.unlink()
  assert run(server.url)[0] == 0
  kept = json.loads((logs / manifests.FILE_NAME).read_text())
  assert {key: kept[key] for key in said} == said
  assert [entry['suffix'] for entry in kept['shards']] == [0, 1, 2]


def test_a_fetch_leaves_the_files_alone_that_an_import_has_linked(
  root, server, run, logs, tmp_path
):
  """An import that was killed has links to the user's files in `partial`."""
  mine = tmp_path / 'mine'
  mine.write_bytes(b'a thesis')
  (logs / 'partial').mkdir(parents=True)
  os.link(mine, logs / 'partial' / shard_files.file_name('observation', 0))
  assert run(server.url)[0] == 0
  assert_all_there(root, logs)
  assert mine.read_bytes() == b'a thesis'


@pytest.mark.parametrize(
  'manifest',
  [
    {'shards': 5},
    {'shards': [{'suffix': 0, 'files': {FRAMES: {'sha256': 5}}}]},
    {'shards': [3], 'environment': 'Pong'},
  ],
)
def test_any_manifest_will_do(root, server, run, logs, manifest):
  server.lists = True
  path = root / 'Pong/1/replay_logs' / manifests.FILE_NAME
  path.write_text(json.dumps(manifest))
  assert run(server.url)[0] == 0
  assert contents(logs) == contents(root / 'Pong/1/replay_logs')


def test_a_server_that_answers_anything_has_nothing(server, run, monkeypatch):
  asked = []

  def stat(source, path):
    asked.append(path)
    return remote_sources.Stat(100, None)

  monkeypatch.setattr(remote_sources._HttpSource, 'stat', stat)
  monkeypatch.setattr(fetcher, '_MOST_SHARDS', 3)
  code, _, _ = run(server.url, '--dry_run')  # it ends
  assert code == 0 and len(asked) <= 7 * 30


@pytest.mark.parametrize(
  ('url', 'name'),
  [
    ('memory://user:secret@host/d?token=x', 'memory://host/d'),
    ('https://user:secret@host/d?token=x', 'https://host/d'),
  ],
)
def test_secrets_are_not_told(url, name):
  assert remote_sources.connect(url, 1).name == name


@pytest.mark.parametrize(
  ('game', 'flags', 'said'),
  [
    ('Pong Pong', (), 'has a game twice'),
    ('Pong', ('--data_dir=gs://bucket/data',), 'is remote'),
  ],
)
def test_nothing_is_asked_for_a_mistake_in_flags(
  server, run, game, flags, said
):
  code, _, err = run(server.url, *flags, game=game)
  assert code == 2 and is_one_line(err) and said in err
  assert not server.requests
