"""Faults of remotes are retried or reported; secrets stay secret."""

import importlib
import itertools
import sys
from unittest import mock

import pytest

from batch_rl.dataset.commands import fetch
from batch_rl.dataset.fetch import fsspec_remote, remotes
from batch_rl.dataset.shards import manifests
from batch_rl.tests.dataset.fetch.fetched_files import (
  FRAMES,
  RUN,
  assert_complete,
)


def test_server_without_lengths(root, server, run, data_dir):
  server.lengths = False
  run.output(server.url, '--shards=1')
  assert_complete(root, data_dir, (1,))
  server.drop_after = 30_000  # only the contents reveal it
  out = run.output(server.url, '--shards=1', to='other', code=1)
  assert 'is damaged' in out


def test_transient_errors_are_retried(root, server, run, data_dir):
  server.statuses = {'GET': [500, 3], 'HEAD': [429, 3]}
  run.output(server.url, '--shards=1')
  assert server.statuses == {'GET': [500, 0], 'HEAD': [429, 0]}
  assert_complete(root, data_dir, (1,))


@pytest.mark.parametrize(
  ('header', 'wait'),
  [('7', 7), ('Thu, 01 Jan 1970 00:00:00 GMT', 0), ('soon', 1), ('9999', 60)],
)
def test_retry_after_is_respected(server, header, wait):
  server.statuses, server.retry_after = {'': [503, 99]}, header
  remote, waits = fetch.connect(server.url, 10), []
  # Without a valid header, the first wait (1 s, but 1 ms in the tests).
  with pytest.raises(remotes.TransientError):
    remotes.with_retries(lambda: remote.stat('a'), 1, waits.append)
  assert waits == [0.001 if header == 'soon' else wait]


def test_progress_resets_the_retries():
  sizes, waits = iter([10, 20, *[30] * 2000]), []

  def fail():
    raise remotes.TransientError('no')

  with pytest.raises(remotes.TransientError):
    remotes.with_retries(fail, 1100, waits.append, lambda: next(sizes))
  assert waits == [1, 1, 1, 2, 4, 8, 16, 32] + [60] * 1094


def test_silent_server_times_out(root, server, run, data_dir, monkeypatch):
  connect = fetch.connect
  monkeypatch.setattr(
    fetch, 'connect', lambda url, timeout: connect(url, timeout / 10)
  )
  server.stalls, flags = 1, ('--shards=1', '--timeout=2')
  run.output(server.url, *flags, '--retries=5')
  assert server.stalls == 0
  assert_complete(root, data_dir, (1,))
  server.stalls = 2
  flags += '--retries=1', '--jobs=1'
  out = run.output(server.url, *flags, to='other', code=1)
  assert 'no data for 0.2 seconds, after 1 retries' in out


def test_unreachable_server(run, monkeypatch):
  monkeypatch.setattr(remotes, '_FIRST_WAIT', 0.001)
  assert 'Connection refused' in run.error('http://127.0.0.1:1', code=1)


def test_passwords_and_tokens_are_not_written(root, server, run, data_dir):
  host = server.url.removeprefix('http://')
  out = run.output(f'http://me:secret@{host}/?token=secret')
  assert 'secret' not in out + (data_dir / manifests.FILE_NAME).read_text()
  assert_complete(root, data_dir)


def test_missing_package_is_named(run, monkeypatch):
  monkeypatch.setitem(sys.modules, 'gcsfs', None)
  # fsspec keeps what an earlier test imported.
  registry = importlib.import_module('fsspec.registry')
  monkeypatch.delitem(registry._registry, 'gs', raising=False)
  err = run.error('gs://bucket/dqn')
  assert 'not installed' in err and 'nstall gcsfs' in err


def test_web_page_instead_of_a_file_is_not_found(server):
  """Some servers answer every path with a page."""
  with pytest.raises(remotes.NotFound, match='a web page'):
    fetch.connect(server.url, 10).stat('Pong')
  with pytest.raises(remotes.PermanentError, match='16,777,216 B'):
    remotes.join(itertools.repeat(bytes(1 << 20)))


def test_change_while_reading_is_detected(root):
  _, _, chunks = fetch.connect(str(root), 10).open(f'{RUN}/{FRAMES}')
  (root / RUN / FRAMES).write_bytes(b'another version')
  with pytest.raises(remotes.TransientError, match='changed while'):
    list(chunks)


class _Refusal(Exception):
  """An error as gcsfs raises it, with a status code."""

  code = 403


@pytest.mark.parametrize(
  'error, kind, text',
  [
    (FileNotFoundError('gone'), remotes.NotFound, 'not found'),
    (NotADirectoryError('gone'), remotes.NotFound, 'not found'),
    (PermissionError(13, 'Permission denied'), None, 'Permission denied'),
    (_Refusal('no'), None, '403 Forbidden'),
    (OSError('Forbidden: https://host/file'), None, '403 Forbidden'),
    (OSError('Anonymous caller has no access'), None, 'Anonymous caller'),
    (OSError('Access Denied'), None, 'Access Denied'),
    (TimeoutError('timed out'), remotes.TransientError, 'timed out'),
    (ValueError('odd\nanswer'), remotes.TransientError, 'odd'),
  ],
)
def test_errors_of_file_systems(root, monkeypatch, error, kind, text):
  """Only a request that may succeed later is sent again."""
  remote = fsspec_remote.FsspecRemote(str(root))
  for name in ('info', 'open'):
    monkeypatch.setattr(remote._fs, name, mock.Mock(side_effect=error))
  for request in (remote.stat, lambda path: remote.open(path)):
    with pytest.raises(remotes.RemoteError, match=text) as raised:
      request('a')
    assert type(raised.value) is (kind or remotes.PermanentError)


def test_a_file_system_without_sizes(root, monkeypatch):
  (root / 'a').write_bytes(b'content')
  remote = fsspec_remote.FsspecRemote(str(root))
  monkeypatch.setattr(remote._fs, 'info', lambda path: {})
  assert b''.join(remote.open('a')[2]) == b'content'


@pytest.mark.parametrize(
  'status, kind',
  [
    *((status, remotes.PermanentError) for status in (400, 401, 403, 451)),
    *((status, remotes.NotFound) for status in (404, 410)),
    *((s, remotes.TransientError) for s in (408, 425, 429, 500, 502, 503, 504)),
  ],
)
def test_statuses_of_web_servers(server, status, kind):
  server.statuses = {'': [status, 99]}
  remote = fetch.connect(server.url, 10)
  for request in (remote.stat, remote.open):
    with pytest.raises(remotes.RemoteError, match=str(status)) as raised:
      request('a')
    assert type(raised.value) is kind


@pytest.mark.parametrize(
  'status, headers, message',
  [
    (302, {'Location': 'file:///etc/hosts'}, "adapters were found for 'file:"),
    (302, {'Location': 'http://[x'}, 'Invalid IPv6 URL'),
    (302, {}, 'Exceeded 30 redirects'),
    (400, {'Content-Length': '7'}, 'multiple unmatching values'),
  ],
)
def test_malformed_answers(server, run, status, headers, message):
  location = {'Location': f'/{RUN}/{FRAMES}'.replace('$', '%24')}
  server.statuses = {FRAMES: [status, 999]}
  server.headers = headers or location
  err = run.error(server.url, '--shards=1', code=1)
  assert message in err
  assert f'{server.url}/{RUN}/' in err and len(server.requests) < 99


def test_a_server_without_encryption_is_not_asked_again(server):
  remote = fetch.connect(server.url.replace('http:', 'https:'), 10)
  with pytest.raises(remotes.PermanentError, match='SSL'):
    remote.stat('a')
