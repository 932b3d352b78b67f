"""Checks of one shard: damaged files, impossible values, frames, padding, terminals."""

import gzip

import numpy as np
import pytest

from batch_rl.dataset.checks import run_checks, shard_checks
from batch_rl.dataset.shards import replay_log, shard_files, shard_reader
from batch_rl.tests import shards
from batch_rl.tests.dataset.checks import run_files as files

ATARI = {'game': 'Pong', 'repeat_action_probability': 0.25}
PADDING = 'than 3 padding rows (all zero) at the start of 1'


def misshape(path):
  array = files.load(path)
  files.save(path, array[:-1] if array.ndim else np.stack([array, array]))


DAMAGE = {
  'a flipped bit': files.flip_a_bit,
  'more': lambda p: p.write_bytes(p.read_bytes() + gzip.compress(b'more')),
  'shape': misshape,
  'dtype': lambda path: files.save(path, files.load(path).astype(np.float64)),
  'missing': lambda path: path.unlink(),
  'folder': lambda path: (path.unlink(), path.mkdir()),
  'a dangling link': lambda path: (path.unlink(), path.symlink_to('nowhere')),
}


@pytest.mark.parametrize('damage', DAMAGE)
@pytest.mark.parametrize('name', shard_files.FILES)
def test_a_damaged_file_is_named_and_the_others_are_checked(logs, name, damage):
  path, other = files.file_of(logs, name, 1), files.file_of(logs, 'action', 2)
  DAMAGE[damage](path)
  files.change(logs, 'action', 2, lambda a: a - 9)
  wrong = [finding.file for finding in files.findings(logs, 'error')]
  # A shorter range may still be around the cursor.
  is_valid = name == 'invalid_range' and damage == 'shape'
  expected = [str(other)] if is_valid else [str(path), str(other)]
  assert sorted(wrong) == sorted(expected)


@pytest.mark.parametrize(
  'name, function, problem',
  [
    ('add_count', lambda _: np.array(-39), '-39'),
    ('invalid_range', lambda positions: positions + 5, 'around the cursor'),
    ('invalid_range', lambda positions: positions[::-1], 'around the cursor'),
    ('action', files.put(20, -1), 'action -1'),
    ('action', files.put(20, 18), 'actions are 0 to 17 (wrong in 1 rows)'),
    ('reward', files.put(20, -np.inf), 'reward -inf'),
    ('reward', files.put(20, np.nan), 'reward nan'),
    ('terminal', files.put(20, 2), 'terminal 2'),
    # Rows 33 to 35 are the padding of the second episode.
    ('observation', files.put(34, 1), PADDING),
    ('observation', lambda o: np.repeat(o, 2, axis=2), 'uint8 (2, 4)'),
    ('observation', lambda o: o[:, :0], 'uint8 (0, 2)'),
  ],
)
def test_a_wrong_value_is_found(logs, name, function, problem):
  path = files.change(logs, name, 0, function)
  wrong = run_checks.verify(str(logs)).problems
  (finding,) = [found for found in wrong if found.file == str(path)]
  assert finding.level == ('suspicious' if 'padding' in problem else 'error')
  assert problem in finding.message and '\n' not in finding.message
  # Two values in the place of one are an unusual padding or a long episode.
  assert all(f.level == 'suspicious' for f in wrong if f is not finding)


def test_stale_rows_may_hold_anything(logs):
  """Dopamine's rings begin as uninitialised memory."""
  for name, value in (('action', -1), ('reward', np.nan), ('terminal', 7)):
    files.change(logs, name, 2, files.put(30, value))
    files.change(logs, name, 0, files.put(files.CAPACITY - 1, value))
  assert files.is_well(logs)
  # Large rewards are possible, and noted.
  path = files.change(logs, 'reward', 1, files.put(20, 7))
  assert files.is_well(logs)
  (note,) = [f for f in files.findings(logs, 'note') if f.file == str(path)]
  assert 'to 7' in note.message
  expected = shard_checks.Expected(18, 3, None, None, is_atari=True)
  rows = {'reward': np.int8([-128, 0])}  # as in a store
  [(level, *_)] = shard_checks.find_wrong_values(rows, expected)
  assert level == 'note'


@pytest.mark.parametrize('env, limit', [({'num_actions': 4}, 4), ({}, 10_000)])
def test_impossible_actions_are_found(tmp_path, env, limit):
  with shards.make_log(tmp_path, 40) as log:
    log.metadata['environment'] = env  # another program may write it
    shards.add_row(log, shards.Row(1, limit, 0.0, 1))
  message = files.the_only(tmp_path, 'error').message
  assert f'actions are 0 to {limit - 1} ' in message


@pytest.mark.parametrize('is_atari', [False, True])
def test_others_are_not_checked_as_atari(tmp_path, is_atari, monkeypatch):
  """A bandit has the same observation at each step, and large rewards."""
  monkeypatch.setattr(run_checks, '_MAX_EPISODE_STEPS', 120)
  metadata = {'environment': ATARI if is_atari else {'game': 'Bandit'}}
  with replay_log.ReplayLog(
    str(tmp_path), (2, 2), np.float32, 201, stack_size=1, metadata=metadata
  ) as log:
    for step in range(400):
      log.add(np.ones((2, 2)), step % 30, 1e3 * (step % 2), False)
  found = files.findings(tmp_path)
  messages = ' '.join(finding.message for finding in found)
  if not is_atari:
    assert {finding.level for finding in found} == {'note'}
    assert 'same frame in all 200 rows' in messages
    assert 'clipped' not in messages
    return
  for problem in ('of Atari are uint8', 'are 0 to 17', 'without a terminal'):
    assert problem in messages


def test_equal_frames_are_suspicious(tmp_path):
  shards.write_run(tmp_path, [250], 300)
  # In Breakout nothing moves until the agent serves.
  files.change(tmp_path, 'observation', 0, files.put(slice(10, 240), 9))
  assert files.is_well(tmp_path)
  path = files.change(tmp_path, 'observation', 0, np.zeros_like)
  files.change(tmp_path, 'observation', 0, files.put(slice(260, 300), 5))
  finding = files.the_only(tmp_path, 'suspicious')
  assert finding.file == str(path) and 'the same frame' in finding.message


@pytest.mark.parametrize(
  'limits, steps',
  [
    ({}, 27_000),
    ({'max_num_frames_per_episode': 243, 'frame_skip': 4}, 60),
    ({'frame_skip': 4}, 27_000),
  ],
)
def test_an_endless_episode_is_suspicious(tmp_path, limits, steps):
  """The row of the terminal is not counted."""
  rows = steps + 50
  environment = ATARI | limits
  with shards.make_log(tmp_path, rows + 9, 1, environment=environment) as log:
    for step in range(rows + 1):
      shards.add_row(log, shards.Row(1 + step % 7, 0, 0.0, step == rows))
  finding = files.the_only(tmp_path, 'suspicious')
  assert finding.file == str(files.file_of(tmp_path, 'terminal', 0))
  assert f'has {rows:,} consecutive' in finding.message
  assert f'at most {steps:,} steps' in finding.message


def test_a_failed_read_is_a_finding(logs, monkeypatch):
  def fail(path, digest=None):
    raise shard_reader.ReadError(f'{path} cannot be read: Input/output error.')

  monkeypatch.setattr(shard_reader, 'read_array', fail)
  path = files.file_of(logs, 'action', 1)
  messages = [f.message for f in run_checks.verify(str(logs)).problems]
  assert f'{path} cannot be read: Input/output error.' in messages
