"""The commands `compare` and `fingerprint`, and `verify --fingerprints`."""

import functools
import json
import shutil
from unittest import mock

import pytest

from batch_rl.dataset.comparison import copies, fingerprints
from batch_rl.dataset.shards import shard_reader
from batch_rl.tests import interchange_runs, ring_logs, shards
from batch_rl.tests.dataset.checks import run_files
from batch_rl.utils import files


def change(run_dir, column, suffix, position, value):
  logs = run_dir / 'replay_logs'
  return run_files.change(logs, column, suffix, run_files.put(position, value))


def test_copies_of_a_run_are_the_same(root, run):
  one, store = root / 'Pong' / '1', root / 'store'
  run('convert', one, store)
  out = run.output('compare', one, store)
  rows = [line.split() for line in out.splitlines()]
  assert rows[1][:5] == 'A shards 2 2 60'.split()
  assert rows[2][:5] == 'B store 2 2 60'.split()
  assert rows[3:] == ['same transitions'.split()]
  document = run.document('compare', one, store, '--quick')
  assert document['same'] and not document['with_frames']
  assert document['equal'] == 2 and document['a']['path'] == str(one)


def test_the_first_difference_is_named_with_its_place(root, run):
  one, two = root / 'Pong' / '1', root / 'Pong' / '2'
  # Row 39 is the ring's last row, row 40 its first. The second episode's padding
  # is in rows 33 to 35.
  for column, *changed, place in (
    ('frame', 1, (4, 1, 0), 99, 'episode 1, step 8, shard 1, ring position 4'),
    ('reward', 0, 20, 0.5, 'episode 0, step 17, shard 0, ring position 20'),
  ):
    change(two, column.replace('frame', 'observation'), *changed)
    out = run.output('compare', one, two, code=1)
    assert f'A: {place}; B: {place}: {column} ' in out
  assert ' and 0.5\n' in out
  assert out.endswith('0 are in both, 2 only in A and 2 only in B\n')
  document = run.document('compare', one, two, '--quick', code=1)
  assert document['different'] == {'a': 1, 'b': 1}
  assert list(document['first']['values']) == ['reward']
  shards.write_run(root / 'long' / 'replay_logs', [30, 30, 20], capacity=40)
  out = run.output('compare', one, root / 'long', code=1)
  assert out.endswith('2 are in both, 1 only in B\n')
  assert ': B: episode 2, step 0, shard 1, ring position 29: only' in out


@pytest.fixture
def printed(root, run):
  """File with the fingerprint of the first run."""
  path = root / 'fingerprint.json'
  path.write_text(run.output('fingerprint', root / 'Pong' / '1'))
  assert path.stat().st_size < 1000
  return path


def test_a_fingerprint_is_checked_and_names_the_shard(root, run, printed):
  one, two, other = (root / 'Pong' / name for name in '123')
  check = functools.partial(run.output, 'verify', '--fingerprints', printed)
  run('convert', two, root / 'store')
  for copy in (two, root / 'store'):
    assert f'its transitions are those of {printed}' in check(copy)
  shards.write_run(other / 'replay_logs', [20, 25, 30], capacity=40)
  assert 'none of 2 parts is as in the fingerprint' in check(other, code=1)
  # The transition from shard 0 to shard 1 is in neither of them.
  change(two, 'action', 0, 38, 9)
  assert 'transitions from one part to the next differ' in check(two, code=1)
  path = change(two, 'action', 1, 5, 9)
  document = json.loads(check(two, '--json', code=1))
  (error,) = [f for f in document['findings'] if f['level'] == 'error']
  assert not document['ok']
  assert 'shard 1 differs from the fingerprint: ' in error['message']
  path.write_bytes(path.read_bytes()[:-20])
  assert f'cannot be compared with {printed}: {path} is' in check(two, code=1)
  assert f'{path} is damaged' in run.error('compare', one, two)


@pytest.mark.parametrize(
  'absent, changed, same, found',
  [
    ((0, 3, 4), None, True, 'shard 0 is only in the fingerprint'),
    ((0, 3, 4), 2, False, 'shard 2 differs from the fingerprint'),
    # The first row of a last shard is in the run only if the shard before it is.
    ((3,), None, True, 'shard 4 was not compared: its first row'),
    ((0, 1, 2, 3), None, False, 'no part of it'),
  ],
)
def test_parts_are_checked_by_shards(root, run, absent, changed, same, found):
  whole, part = root / 'whole', root / 'part'
  for logs in (whole, part):
    shards.write_run(logs / 'replay_logs', [30] * 4 + [40], capacity=40)
    (logs / 'replay_logs' / 'manifest.json').unlink()
  for suffix in absent:
    ring_logs.remove_shard(part / 'replay_logs', suffix)
  printed = root / 'fingerprint.json'
  printed.write_text(run('fingerprint', whole)[1])
  if changed is not None:
    change(part, 'reward', changed, 6, 0.5)
  _, out, _ = run('verify', part, '--fingerprints', printed)
  assert found in out
  rest = '; those from one part to the next were not compared'
  assert (f'its transitions are those of {printed}{rest}' in out) == same, out


def test_a_failed_read_leaves_the_report(root, run, printed, monkeypatch):
  error = shard_reader.ReadError('F cannot be read.')
  monkeypatch.setattr(copies, 'Copy', mock.Mock(side_effect=error))
  out = run('verify', root / 'Pong/1', '--fingerprints', printed)[1]
  assert f'it cannot be compared with {printed}: F cannot be read' in out


def test_a_fingerprint_tells_whether_rewards_are_clipped(root, run):
  """A copy that has lost its manifest could be of Atari."""
  own, copy = root / 'Own' / '1[]', root / 'Own' / '2'
  with shards.make_log(own / 'replay_logs', 40) as log:
    for row in shards.make_episodes([20, 20, 20])[0] * 3:
      shards.add_row(log, shards.Row(row.frame, 1, 7.0, row.terminal))
  shutil.copytree(own, copy)
  (copy / 'replay_logs' / 'manifest.json').unlink()
  path = root / 'fingerprint.json'
  path.write_text(run('fingerprint', own)[1])
  same = f'its transitions are those of {path}'
  assert same in run('verify', copy, '--fingerprints', path)[1]
  change(copy, 'reward', 1, 5, 8.0)
  out = run.output('verify', copy, '--fingerprints', path, code=1)
  assert 'shard 1 differs from the fingerprint' in out
  # A file of an earlier version does not tell.
  expected = fingerprints.read(str(path))
  del expected['clipped_rewards']
  path.write_text(fingerprints.to_text(files.with_hash(expected)))
  assert same in run('verify', own, '--fingerprints', path)[1]


@pytest.mark.parametrize(
  'old, new, message',
  [
    (b'{', b'\x89{', 'is not a fingerprint'),
    (b'"run"', b'"ran"', 'it has no run'),
    (b'"Pong"', b'"Pong"', 'one of Breakout'),  # the file is intact
    (b'fingerprint 1', b'fingerprint 2', "'batch_rl fingerprint 2'"),
    (b'"number": 1', b'"number": 7', 'fingerprint.json is damaged'),
    (b'"number": 1', b'"number": -1', 'number is -1'),
  ],
)
def test_a_wrong_fingerprint_is_one_line(root, run, printed, old, new, message):
  before = printed.read_bytes()
  assert old in before
  printed.write_bytes(before.replace(old, new))
  shards.write_run(root / 'other', [30], 40, environment={'game': 'Breakout'})
  arguments = root / 'other', '--fingerprints', printed
  assert message in run.error('verify', *arguments)


@pytest.mark.parametrize('path', ['Pong/1', 'MinAtar-Breakout/1'])
def test_fingerprints_of_the_samples_are_in_the_package(path):
  copy = copies.open_copy(str(interchange_runs.SAMPLE.parents[1] / path))
  copy.read(True, lambda count: None)
  expected = fingerprints.read(f'{path.replace("/", "-")}-sample')
  assert fingerprints.make(copy) == expected
