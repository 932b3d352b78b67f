"""Faults of remotes are retried or reported; secrets stay secret."""

import importlib
import itertools
import sys

import pytest

from batch_rl.dataset.fetch import remotes
from batch_rl.dataset.shards import manifests
from batch_rl.tests.dataset.conftest import is_one_line
from batch_rl.tests.dataset.fetch.fetched_files import (
  FRAMES,
  RUN,
  assert_complete,
)


def test_endless_listings_and_manifests(root, server, run):
  server.lists = True
  server.bodies = {'manifest.json': b' ' * (1 << 25)}
  code, out, _ = run(server.url)
  assert code == 0 and 'complete' in out
  with pytest.raises(remotes.PermanentError, match='longer than 16,777,216 B'):
    remotes.join(itertools.repeat(bytes(1 << 20)))


def test_server_without_lengths(root, server, run, data_dir):
  server.lengths = False
  code, _, _ = run(server.url, '--shards=1')
  assert code == 0
  assert_complete(root, data_dir, (1,))
  server.drop_after = 30_000  # only the contents reveal it
  code, out, _ = run(server.url, '--shards=1', to='other')
  assert code == 1 and 'is damaged' in out


@pytest.mark.parametrize('status', [429, 500, 503])
def test_transient_errors_are_retried(root, server, run, data_dir, status):
  server.statuses = {'GET': [status, 3], 'HEAD': [status, 3]}
  code, _, _ = run(server.url, '--shards=1')
  assert code == 0
  assert server.statuses == {'GET': [status, 0], 'HEAD': [status, 0]}
  assert_complete(root, data_dir, (1,))


def test_lasting_errors_are_reported(server, run):
  server.statuses = {f'GET /{RUN}/{FRAMES}': [500, 99]}
  code, out, _ = run(server.url, '--retries=2')
  assert code == 1
  assert f'a file was not fetched (Pong/1 {FRAMES}): 500 Int' in out
  assert len(server.gets(FRAMES)) == 3
  assert '17 files fetched' in out


@pytest.mark.parametrize(
  ('header', 'wait'),
  [('7', 7), ('Thu, 01 Jan 1970 00:00:00 GMT', 0), ('soon', 1), ('9999', 60)],
)
def test_retry_after_is_respected(server, header, wait):
  server.statuses, server.retry_after = {'': [503, 99]}, header
  remote, waits = remotes.connect(server.url, 10), []
  # Without a valid header, the first wait (1 s, but 1 ms in the tests).
  with pytest.raises(remotes.TransientError):
    remotes.with_retries(lambda: remote.stat('a'), 1, waits.append)
  assert waits == [0.001 if header == 'soon' else wait]


def test_progress_resets_the_retries():
  sizes, calls = iter([10, 20, 30, 30, 30]), []

  def fail():
    calls.append(1)
    raise remotes.TransientError('no')

  with pytest.raises(remotes.TransientError):
    remotes.with_retries(fail, 1, lambda wait: None, lambda: next(sizes))
  assert len(calls) == 4


def test_silent_server_times_out(root, server, run, data_dir, monkeypatch):
  connect = remotes.connect
  monkeypatch.setattr(
    remotes, 'connect', lambda url, timeout: connect(url, timeout / 10)
  )
  server.stalls = 1
  code, _, _ = run(server.url, '--shards=1', '--timeout=2', '--retries=1')
  assert code == 0 and server.stalls == 0
  assert_complete(root, data_dir, (1,))
  server.stalls = 2
  flags = ('--shards=1', '--timeout=2', '--retries=1', '--jobs=1')
  code, out, _ = run(server.url, *flags, to='other')
  assert code == 1 and 'no data for 0.2 seconds, after 1 retries' in out


def test_unreachable_server(run, monkeypatch):
  monkeypatch.setattr(remotes, '_FIRST_WAIT', 0.001)
  code, _, err = run('http://127.0.0.1:1')
  assert code == 1 and is_one_line(err) and 'Connection refused' in err


def test_passwords_and_tokens_are_not_written(root, server, run, data_dir):
  host = server.url.removeprefix('http://')
  code, out, err = run(f'http://me:secret@{host}/?token=secret')
  assert code == 0
  manifest = (data_dir / manifests.FILE_NAME).read_text()
  assert 'secret' not in out + err + manifest
  assert_complete(root, data_dir)


@pytest.mark.parametrize(
  ('url', 'name'),
  [
    ('memory://user:secret@host/d?token=x', 'memory://host/d'),
    ('https://user:secret@host/d?token=x', 'https://host/d'),
  ],
)
def test_names_have_no_secrets(url, name):
  assert remotes.connect(url, 1).name == name


@pytest.mark.parametrize(
  'protocol, package, remedy',
  [('gs', 'gcsfs', "'batch_rl[fetch]'"), ('s3', 's3fs', 's3fs')],
)
def test_missing_package_is_named(run, monkeypatch, protocol, package, remedy):
  monkeypatch.setitem(sys.modules, package, None)
  # fsspec keeps what an earlier test imported.
  registry = importlib.import_module('fsspec.registry')
  monkeypatch.delitem(registry._registry, protocol, raising=False)
  code, _, err = run(f'{protocol}://bucket/dqn')
  assert code == 2 and is_one_line(err)
  assert f'not installed: pip install {remedy}.' in err


def test_web_page_instead_of_a_file_is_not_found(server):
  """Some servers answer every path with a page."""
  server.lists = True
  with pytest.raises(remotes.NotFound, match='a web page'):
    remotes.connect(server.url, 10).stat('Pong')


def test_change_while_reading_is_detected(root):
  path = root / RUN / FRAMES
  remote = remotes.connect(str(root), 10)
  _, _, chunks = remote.open(f'{RUN}/{FRAMES}')
  path.write_bytes(b'another version')
  with pytest.raises(remotes.TransientError, match='changed while'):
    list(chunks)


def test_a_thousand_retries_are_waited_for():
  waits = []

  def fail():
    raise remotes.TransientError(remotes.DROPPED)

  with pytest.raises(remotes.TransientError):
    remotes.with_retries(fail, 1100, waits.append)
  assert waits == [1, 2, 4, 8, 16, 32] + [60] * 1094
