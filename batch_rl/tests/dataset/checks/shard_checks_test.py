"""Checks of one shard: damaged files, impossible values, frames, padding, terminals."""

import gzip
import pickle

import numpy as np
import pytest

from batch_rl.dataset.checks import run_checks
from batch_rl.dataset.shards import (
  manifests,
  replay_log,
  shard_files,
  shard_reader,
)
from batch_rl.tests import shards
from batch_rl.tests.dataset.checks.run_files import (
  CAPACITY,
  change,
  file_of,
  findings,
  flip_a_bit,
  is_well,
  load,
  put,
  save,
  the_only,
)

# --- damaged files ------------------------------------------------------------


def truncate(path):
  path.write_bytes(path.read_bytes()[:-9])


def append(path):
  path.write_bytes(path.read_bytes() + gzip.compress(b'more'))


def misshape(path):
  array = load(path)
  save(path, array[:-1] if array.ndim else np.stack([array, array]))


def mistype(path):
  save(path, load(path).astype(np.float64))


def bare_pickle(path):
  path.write_bytes(gzip.compress(pickle.dumps({'a': 1})))


DAMAGE = (truncate, flip_a_bit, append, misshape, mistype, bare_pickle)


@pytest.mark.parametrize('damage', DAMAGE)
@pytest.mark.parametrize('name', shard_files.FILES)
def test_a_damaged_file_is_named_and_the_others_are_checked(logs, name, damage):
  (logs / manifests.FILE_NAME).unlink()
  path = file_of(logs, name, 1)
  damage(path)
  change(logs, 'action', 2, lambda a: a - 9)  # a second finding
  wrong = [finding.file for finding in findings(logs, 'error')]
  if name == 'invalid_range' and damage is misshape:
    assert str(path) not in wrong  # a shorter range is valid
  else:
    assert wrong.count(str(path)) == 1
  assert str(file_of(logs, 'action', 2)) in wrong
  assert set(wrong) <= {str(path), str(file_of(logs, 'action', 2))}


@pytest.mark.parametrize('name', shard_files.FILES)
def test_a_missing_file_is_named(logs, name):
  path = file_of(logs, name, 1)
  path.unlink()
  finding = the_only(logs, 'error')
  assert finding.file == str(path) and 'missing' in finding.message
  path.mkdir()
  assert the_only(logs, 'error').file == str(path)


@pytest.mark.parametrize(
  'name, value',
  [
    *(
      ('invalid_range', value)
      for value in (
        [-1, 0, 1],
        [38, 39, 40],
        [5, 6, 7],
        [39, 38, 37],
        [],
        [[39, 0]],
        [39.0],
      )
    ),
    ('add_count', -39),
  ],
)
def test_a_wrong_counter_is_found(logs, name, value):
  path = change(logs, name, 0, lambda _: np.array(value))
  assert the_only(logs, 'error').file == str(path)


# --- values -------------------------------------------------------------------


@pytest.mark.parametrize(
  'environment, action, problem',
  [
    ({'num_actions': 4}, 4, 'action 4, but the game has 4'),
    ({}, 10_000, 'action 10000, but no environment has 10000'),
  ],
)
def test_impossible_actions_are_found(tmp_path, environment, action, problem):
  with shards.make_log(tmp_path, 40, environment=environment) as log:
    shards.add_row(log, shards.Row(1, action, 0.0, 1))
  assert problem in the_only(tmp_path, 'error').message


@pytest.mark.parametrize(
  'name, value, problem',
  [
    ('action', -1, 'action -1'),
    ('action', 18, 'action 18, but the ALE has 18 (wrong in 1 rows)'),
    ('reward', -np.inf, 'reward -inf'),
    ('terminal', 2, 'terminal 2'),
  ],
)
def test_impossible_values_are_found(logs, name, value, problem):
  path = change(logs, name, 1, put(20, value))
  matching = [f for f in findings(logs, 'error') if f.file == str(path)]
  assert len(matching) == 1 and problem in matching[0].message


def test_stale_rows_may_hold_anything(logs):
  """Dopamine's rings begin as uninitialised memory."""
  for name, value in (('action', -1), ('reward', np.nan), ('terminal', 7)):
    change(logs, name, 2, put(30, value))
    change(logs, name, 0, put(CAPACITY - 1, value))
  assert is_well(logs)
  # Large rewards are possible, and noted.
  path = change(logs, 'reward', 1, put(20, 7))
  assert is_well(logs)
  (note,) = [f for f in findings(logs, 'note') if f.file == str(path)]
  assert 'to 7' in note.message


# --- other environments than Atari ---


def write_bandit(logs, environment, steps=54_400):
  """Logs 30 actions, large rewards, one float image and no end; in two shards."""
  frame, half = np.ones((2, 2), np.float32), steps // 2
  metadata = {'environment': environment}
  with replay_log.ReplayLog(
    str(logs), (2, 2), np.float32, half + 1, stack_size=1, metadata=metadata
  ) as log:
    for step in range(2 * half):
      log.add(frame, step % 30, 1e3 * (step % 2), False)


def test_other_environments_are_not_checked_as_atari(tmp_path):
  """A bandit has the same observation at each step."""
  write_bandit(tmp_path, {'game': 'Bandit'})
  report = run_checks.verify(str(tmp_path))
  assert not report.problems
  messages = ' '.join(f.message for f in report.findings)
  assert 'the same frame in all 27,200 rows' in messages
  assert 'clipped' not in messages
  write_bandit(
    tmp_path / 'atari', {'game': 'Pong', 'repeat_action_probability': 0.25}
  )
  report = run_checks.verify(str(tmp_path / 'atari'))
  wrong = ' '.join(f.message for f in report.problems)
  for problem in (
    'frames of float32',
    'action 18, but the ALE has 18',
    'without a terminal',
  ):
    assert problem in wrong


# --- frames, padding and terminals ---


def test_equal_frames_are_suspicious(tmp_path):
  with shards.make_log(tmp_path, 300) as log:
    for step in range(250):
      shards.add_row(log, shards.Row(1 + step, 1, 0.0, 0))
  # In Breakout nothing moves until the agent serves.
  change(tmp_path, 'observation', 0, put(slice(10, 240), 9))
  assert is_well(tmp_path)
  path = change(tmp_path, 'observation', 0, np.zeros_like)
  change(tmp_path, 'observation', 0, put(slice(260, 300), 5))  # stale rows
  finding = the_only(tmp_path, 'suspicious')
  assert finding.file == str(path) and 'the same frame' in finding.message


def test_missing_padding_is_suspicious(logs):
  # Rows 33 to 35 are the padding of the second episode.
  path = change(logs, 'observation', 0, put(34, 1))
  finding = the_only(logs, 'suspicious')
  assert finding.file == str(path)
  assert 'fewer than 3 padding rows' in finding.message
  assert finding.message.endswith('1 of 2 episodes.')


def test_the_padding_is_that_of_the_manifest(tmp_path):
  shards.write_run(tmp_path, [30, 30], CAPACITY, stack_size=1)
  assert is_well(tmp_path)
  (tmp_path / manifests.FILE_NAME).unlink()
  assert not is_well(tmp_path)


def test_an_endless_episode_is_suspicious(tmp_path):
  """One shard of 27,100 rows with frames of two bytes."""
  capacity = 27_100
  columns = {
    'observation': np.arange(capacity * 2, dtype=np.uint8).reshape(-1, 1, 2),
    'action': np.zeros(capacity, np.int32),
    'reward': np.zeros(capacity, np.float32),
    'terminal': np.zeros(capacity, np.uint8),
    'add_count': np.array(capacity - 1),
    'invalid_range': np.array([capacity - 2, capacity - 1, 0, 1, 2]),
  }
  columns['observation'][:3] = 0
  for name, array in columns.items():
    save(file_of(tmp_path, name, 0), array)
  finding = the_only(tmp_path, 'suspicious')
  assert finding.file == str(file_of(tmp_path, 'terminal', 0))
  assert '27,099 consecutive rows without a terminal' in finding.message
  change(tmp_path, 'terminal', 0, put(9_000, 1))
  change(tmp_path, 'observation', 0, put(slice(9_001, 9_004), 0))
  assert is_well(tmp_path)


def test_a_failed_read_is_a_finding(logs, monkeypatch):
  def fail(path, digest=None):
    raise shard_reader.ReadError(f'{path} cannot be read: Input/output error.')

  monkeypatch.setattr(shard_reader, 'read_array', fail)
  path = file_of(logs, 'action', 1)
  messages = [f.message for f in run_checks.verify(str(logs)).problems]
  assert f'{path} cannot be read: Input/output error.' in messages
