"""`verify` says what is wrong with which file."""

import gzip
import io
import json
import os
import pathlib
import pickle
import shutil

import hypothesis
import numpy as np
import pytest
from hypothesis import strategies as st

from batch_rl.dataset.checks import verification
from batch_rl.dataset.shards import manifests, shard_files, shard_reader
from batch_rl.tests import shards

SAMPLE = pathlib.Path(__file__).parents[4] / 'data' / 'Pong' / '1'
PONG = SAMPLE / 'replay_logs'
CAPACITY = 40


@pytest.fixture(scope='module')
def good_logs(tmp_path_factory):
  """Shards 0, 1 and the final, partial 2; with a manifest."""
  directory = tmp_path_factory.mktemp('good') / 'replay_logs'
  shards.write_run(directory, [30, 30, 30], CAPACITY)
  return directory


@pytest.fixture
def logs(good_logs, tmp_path):
  """Those, to be damaged."""
  return shutil.copytree(good_logs, tmp_path / 'replay_logs')


@pytest.fixture(scope='module')
def fuzzed_logs(good_logs, tmp_path_factory):
  """Those without a manifest; whoever damages them restores them."""
  directory = tmp_path_factory.mktemp('fuzzed') / 'replay_logs'
  shutil.copytree(good_logs, directory)
  (directory / manifests.FILE_NAME).unlink()
  return directory


def file_of(logs, name, suffix):
  return logs / shard_files.file_name(name, suffix)


def load(path):
  with gzip.open(path) as file:
    return np.load(file)


def save(path, array, pickled=False):
  content = io.BytesIO()
  np.save(content, array, allow_pickle=pickled)
  path.write_bytes(gzip.compress(content.getvalue(), 1))


def change(logs, name, suffix, function):
  """Rewrites a column; the manifest would tell, so it goes."""
  (logs / manifests.FILE_NAME).unlink(missing_ok=True)
  path = file_of(logs, name, suffix)
  save(path, function(load(path)))
  return path


def findings(logs, level=None):
  found = verification.verify(str(logs)).findings
  return [f for f in found if level is None or f.level == level]


def the_only(logs, level):
  """The one finding that is no note."""
  (found,) = verification.verify(str(logs)).wrong
  assert found.level == level and '\n' not in found.message
  return found


def describe(logs, edit):
  path = logs / manifests.FILE_NAME
  manifest = json.loads(path.read_text())
  edit(manifest)
  path.write_text(json.dumps(manifest))


# --- all is well --------------------------------------------------------------


def test_a_good_run_has_nothing_but_notes(logs):
  report = verification.verify(str(logs))
  assert not report.wrong
  # 3 episodes of 3 + 30 rows: 39, 40 and the last 20.
  assert [entry['rows'] for entry in report.shards] == [39, 40, 20]
  assert [entry['episodes'] for entry in report.shards] == [1, 1, 1]
  (note,) = report.findings
  assert 'Shard 2 has 20 stale rows at or past its cursor, 19' in note.message
  assert report.bytes == sum(path.stat().st_size for path in logs.glob('*.gz'))


def test_the_sample_is_well():
  report = verification.verify(str(PONG))
  assert not report.wrong
  assert sum(entry['rows'] for entry in report.shards) == 312_040
  assert sum(entry['episodes'] for entry in report.shards) == 167


def test_without_a_manifest_the_format_is_verified(logs):
  (logs / manifests.FILE_NAME).unlink()
  messages = [found.message for found in findings(logs)]
  assert any('only the format was verified' in line for line in messages)
  assert not findings(logs, 'error')


def test_dopamines_seventh_file_is_not_opened(logs):
  name = 'episode_end_indices_ckpt.0.gz'
  (logs / name).write_bytes(b'a pickle')
  assert any(name in found.message for found in findings(logs, 'note'))
  assert not verification.verify(str(logs)).wrong


def test_a_logger_at_work_is_noted(logs):
  (logs / 'partial').mkdir()
  assert any('under way' in found.message for found in findings(logs, 'note'))


# --- damaged files ------------------------------------------------------------


def truncate(path):
  path.write_bytes(path.read_bytes()[:-9])


def flip_a_bit(path):
  content = bytearray(path.read_bytes())
  content[len(content) // 2] ^= 1
  path.write_bytes(content)


def empty(path):
  path.write_bytes(b'')


def append(path):
  path.write_bytes(path.read_bytes() + gzip.compress(b'more'))


def misshape(path):
  array = load(path)
  save(path, array[:-1] if array.ndim else np.stack([array, array]))


def mistype(path):
  save(path, load(path).astype(np.float64))


def pickled(path):
  save(path, np.array([{'a': 1}], object), pickled=True)


def bare_pickle(path):
  path.write_bytes(gzip.compress(pickle.dumps({'a': 1})))


DAMAGE = (
  truncate,
  flip_a_bit,
  empty,
  append,
  misshape,
  mistype,
  pickled,
  bare_pickle,
)


@pytest.mark.parametrize('damage', DAMAGE)
@pytest.mark.parametrize('name', shard_files.FILES)
def test_a_damaged_file_is_named_and_the_others_are_checked(logs, name, damage):
  (logs / manifests.FILE_NAME).unlink()
  path = file_of(logs, name, 1)
  damage(path)
  change(logs, 'action', 2, lambda a: a - 9)  # so that this one is seen, too
  wrong = [found.file for found in findings(logs, 'error')]
  if name == 'invalid_range' and damage is misshape:
    assert str(path) not in wrong  # one position fewer is none the worse
  else:
    assert wrong.count(str(path)) == 1
  assert str(file_of(logs, 'action', 2)) in wrong
  assert set(wrong) <= {str(path), str(file_of(logs, 'action', 2))}


def test_every_damaged_column_of_a_shard_is_named(logs):
  paths = [file_of(logs, name, 1) for name in shard_files.FILES]
  for path in paths:
    flip_a_bit(path)
  assert {f.file for f in findings(logs, 'error')} == set(map(str, paths))


@pytest.mark.parametrize('name', shard_files.FILES)
def test_a_missing_file_is_named(logs, name):
  path = file_of(logs, name, 1)
  path.unlink()
  found = the_only(logs, 'error')
  assert found.file == str(path) and 'missing' in found.message


def test_a_directory_in_place_of_a_file_is_named(logs):
  path = file_of(logs, 'reward', 0)
  path.unlink()
  path.mkdir()
  assert the_only(logs, 'error').file == str(path)


@hypothesis.settings(max_examples=100, deadline=None)
@hypothesis.given(data=st.data())
def test_any_damage_is_reported_or_harmless(data, fuzzed_logs):
  """Bytes are changed, cut off, or appended, in any file of a shard."""
  path = file_of(fuzzed_logs, data.draw(st.sampled_from(shard_files.FILES)), 1)
  intact, before = path.read_bytes(), shard_reader.read_array(str(path))
  kind = data.draw(st.sampled_from(['change', 'cut', 'append', 'insert']))
  at = data.draw(st.integers(0, len(intact) - 1))
  some = data.draw(st.binary(min_size=1, max_size=8))
  path.write_bytes(
    {
      'change': intact[:at] + some + intact[at + len(some) :],
      'cut': intact[:at],
      'append': intact + some,
      'insert': intact[:at] + some + intact[at:],
    }[kind]
  )
  try:
    wrong = verification.verify(str(fuzzed_logs)).wrong
    if str(path) not in [found.file for found in wrong]:
      # Such as bytes of the gzip header: a reader gets what was written.
      after = shard_reader.read_array(str(path))
      assert after.dtype == before.dtype
      np.testing.assert_array_equal(after, before)
  finally:
    path.write_bytes(intact)


@hypothesis.settings(max_examples=100, deadline=None)
@hypothesis.given(data=st.data())
def test_any_content_is_judged_without_a_crash(data, fuzzed_logs):
  """The gzip is intact, what is in it is not; the header above all."""
  path = file_of(fuzzed_logs, data.draw(st.sampled_from(shard_files.FILES)), 1)
  intact = path.read_bytes()
  content = gzip.decompress(intact)
  at = data.draw(st.integers(0, 127) | st.integers(0, len(content) - 1))
  some = data.draw(st.binary(min_size=1, max_size=4))
  changed = content[:at] + some + content[at + len(some) :]
  path.write_bytes(gzip.compress(changed, 1))
  try:
    report = verification.verify(str(fuzzed_logs))
    named = str(path) in [found.file for found in report.wrong]
    # The version's minor number and the padding of the header mean nothing.
    assert at >= 128 or named or changed[10:] == content[10:]
  finally:
    path.write_bytes(intact)


@hypothesis.settings(max_examples=50, deadline=None)
@hypothesis.given(data=st.data())
def test_any_manifest_is_judged_without_a_crash(data, fuzzed_logs):
  values = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 2) | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3),
    max_leaves=5,
  )
  keys = ('environment', 'format', 'shards', 'rows', 'agent')
  inner = ('num_actions', 'frame_skip', 'max_num_frames_per_episode')
  inner += ('stack_size', 'columns', 'suffix', 'files', 'observation')
  nested = st.dictionaries(st.sampled_from(inner), values)
  manifest = data.draw(
    values
    | st.dictionaries(
      st.sampled_from(keys), values | nested | st.lists(nested, max_size=3)
    )
  )
  path = fuzzed_logs / manifests.FILE_NAME
  path.write_text(json.dumps(manifest))
  try:
    verification.verify(str(fuzzed_logs))
  finally:
    path.unlink()


# --- the manifest -------------------------------------------------------------


def test_a_file_of_another_run_is_found(logs, tmp_path):
  shards.write_run(tmp_path / 'other', [29, 31, 30], CAPACITY)
  path = file_of(logs, 'terminal', 0)
  os.replace(tmp_path / 'other' / path.name, path)
  (found,) = findings(logs, 'error')
  assert found.file == str(path)
  assert 'not the file that the manifest describes' in found.message


def test_a_shard_that_the_manifest_alone_has_is_found(logs):
  for name in shard_files.FILES:
    file_of(logs, name, 2).unlink()
  assert 'Shard 2 is in the manifest' in the_only(logs, 'error').message


def test_a_shard_that_the_manifest_lacks_is_found(logs):
  describe(logs, lambda manifest: manifest['shards'].pop())
  assert 'Shard 2' in the_only(logs, 'error').message


def test_a_file_that_the_manifest_lacks_is_found(logs):
  path = file_of(logs, 'reward', 1)
  describe(logs, lambda m: m['shards'][1]['files'].pop(path.name))
  found = the_only(logs, 'error')
  assert found.file == str(path) and 'no sha256' in found.message


def test_a_damaged_manifest_does_not_stop_the_check(logs):
  (logs / manifests.FILE_NAME).write_text('{"shards": [')
  flip_a_bit(file_of(logs, 'reward', 1))
  files = {found.file for found in findings(logs, 'error')}
  assert files == {
    str(logs / manifests.FILE_NAME),
    str(file_of(logs, 'reward', 1)),
  }


# --- rows and shards ----------------------------------------------------------


def test_a_lost_shard_is_found(logs):
  (logs / manifests.FILE_NAME).unlink()
  for name in shard_files.FILES:
    file_of(logs, name, 1).unlink()
  assert 'no shard between 0 and 2' in the_only(logs, 'error').message


def test_rows_lost_between_shards_are_found(tmp_path):
  """As the original logger lost them; there is no manifest to tell."""
  logs = tmp_path / 'replay_logs'
  shards.write_run(logs, [50, 50, 40], CAPACITY)
  assert not verification.verify(str(logs)).wrong
  change(logs, 'add_count', 2, lambda count: count + 40)
  found = the_only(logs, 'error')
  assert '40 rows are missing between shards 1 and 2' in found.message


def test_two_runs_in_a_directory_are_found(logs, tmp_path):
  shards.write_run(tmp_path / 'other', [90, 90], 50)
  for name in shard_files.FILES:
    shutil.copy(file_of(tmp_path / 'other', name, 1), logs)
  messages = [found.message for found in findings(logs, 'error')]
  assert any('two runs in one directory' in message for message in messages)


def test_a_shard_that_is_there_twice_is_found(logs):
  (logs / manifests.FILE_NAME).unlink()
  for name in shard_files.FILES:
    shutil.copy(file_of(logs, name, 1), file_of(logs, name, 2))
  wrong = verification.verify(str(logs)).wrong
  assert [found.level for found in wrong] == ['error', 'suspicious']
  assert 'shard 2 repeats 40 rows of shard 1' in wrong[0].message
  assert wrong[1].file == str(file_of(logs, 'observation', 2))


@pytest.mark.parametrize(
  'values',
  [[-1, 0, 1], [38, 39, 40], [5, 6, 7], [39, 38, 37], [], [[39, 0]], [0.5]],
)
def test_an_invalid_range_elsewhere_is_found(logs, values):
  path = change(logs, 'invalid_range', 0, lambda _: np.array(values))
  assert the_only(logs, 'error').file == str(path)


def test_a_negative_counter_is_found(logs):
  path = change(logs, 'add_count', 0, lambda count: -count)
  assert the_only(logs, 'error').file == str(path)


def test_all_shards_hold_the_same_kind_of_observation(logs):
  path = change(logs, 'observation', 1, lambda o: np.repeat(o, 2, axis=2))
  found = the_only(logs, 'error')
  assert found.file == str(path) and '(2, 4)' in found.message


def test_a_run_without_a_row_is_found(logs):
  for name in shard_files.COLUMNS:
    change(logs, name, 0, lambda column: column[:0])
    for suffix in (1, 2):
      file_of(logs, name, suffix).unlink()
  found = {f.file for f in findings(logs, 'error') if 'no rows' in f.message}
  assert found == {str(file_of(logs, name, 0)) for name in shard_files.COLUMNS}


def test_frames_are_uint8(logs):
  for suffix in range(3):
    change(logs, 'observation', suffix, lambda o: o.astype(np.float32))
  assert len(findings(logs, 'error')) == 3


# --- values -------------------------------------------------------------------


def put(row, value):
  def change_row(array):
    array[row] = value
    return array

  return change_row


@pytest.mark.parametrize(
  'name, value, what',
  [
    ('action', -1, 'action -1'),
    ('action', 18, 'action 18, but the ALE has 18'),
    ('reward', np.nan, 'reward nan'),
    ('reward', -np.inf, 'reward -inf'),
    ('terminal', 2, 'terminal 2'),
  ],
)
def test_impossible_values_are_found(logs, name, value, what):
  path = change(logs, name, 1, put(20, value))
  found = [f for f in findings(logs, 'error') if f.file == str(path)]
  assert len(found) == 1 and what in found[0].message


def test_the_manifest_says_how_many_actions_there_are(logs):
  def add(manifest):
    manifest['environment'] = {'num_actions': 3}
    manifest.pop('shards')

  describe(logs, add)
  assert 'the game has 3' in findings(logs, 'error')[0].message


def test_large_rewards_are_a_note(logs):
  path = change(logs, 'reward', 1, put(20, 7))
  assert not verification.verify(str(logs)).wrong
  (note,) = [f for f in findings(logs, 'note') if f.file == str(path)]
  assert 'to 7' in note.message


@pytest.mark.parametrize(
  'name, value', [('action', -1), ('reward', np.nan), ('terminal', 7)]
)
def test_stale_rows_may_hold_anything(logs, name, value):
  """Dopamine's rings start as uninitialised memory."""
  change(logs, name, 2, put(30, value))
  change(logs, name, 0, put(CAPACITY - 1, value))
  assert not verification.verify(str(logs)).wrong


# --- what is suspicious -------------------------------------------------------


def write_returns(logs, means, capacity=200, spread=2):
  """A run whose shards have episodes of 20 steps with such returns."""
  random = np.random.default_rng(0)
  log = shards.make_log(logs, capacity)
  row = 0
  while row < len(means) * capacity - 30:
    mean = means[row // capacity]
    aim = np.clip(round(mean + spread * random.normal()), -20, 20)
    for step in range(20):
      reward = np.sign(aim) if step < abs(aim) else 0
      frame = 1 + (row + step) % 250
      shards.add_row(log, shards.Row(frame, 1, reward, int(step == 19)))
    row += 23
  log.close()
  (logs / manifests.FILE_NAME).unlink()


LEARNING = [-20, -20, -19, -12, 5, 14, 16, 17, 12, 15, 17, 17]


def test_learning_is_not_suspicious(tmp_path):
  write_returns(tmp_path, LEARNING)
  assert not verification.verify(str(tmp_path)).wrong


def test_unlearning_is_not_suspicious(tmp_path):
  write_returns(tmp_path, LEARNING[::-1])
  assert not verification.verify(str(tmp_path)).wrong


def test_a_return_out_of_line_is_suspicious(tmp_path):
  write_returns(tmp_path, [*LEARNING[:8], 17, 17, -20, 17, 17])
  found = the_only(tmp_path, 'suspicious')
  assert found.file == str(file_of(tmp_path, 'reward', 10))
  assert 'mean return' in found.message


def copy_sample(tmp_path, suffixes):
  """Some shards of Pong, and nothing that would tell if they were changed."""
  for suffix in suffixes:
    for name in shard_files.FILES:
      shutil.copy(file_of(PONG, name, suffix), tmp_path)


@pytest.mark.parametrize('place', [0, 1, 2])
def test_another_game_is_suspicious(tmp_path, place):
  copy_sample(tmp_path, range(3))
  path = file_of(tmp_path, 'observation', place)
  frames = load(path)
  # Another game has another background; its padding is the same.
  save(path, np.where(frames == 87, np.uint8(20), frames))
  found = the_only(tmp_path, 'suspicious')
  assert found.file == str(path) and 'another game' in found.message


def test_frames_that_stand_still_are_suspicious(tmp_path):
  write_returns(tmp_path, [0, 0])

  def stop(frames):
    frames[50:180][frames[50:180].any(axis=(1, 2))] = 9
    return frames

  path = change(tmp_path, 'observation', 1, stop)
  found = the_only(tmp_path, 'suspicious')
  assert found.file == str(path) and 'hardly moves' in found.message


def test_equal_frames_are_suspicious(tmp_path):
  write_returns(tmp_path, [0, 0])
  path = change(tmp_path, 'observation', 1, np.zeros_like)
  found = the_only(tmp_path, 'suspicious')
  assert found.file == str(path) and 'times the same frame' in found.message


def test_the_same_frames_twice_are_suspicious(tmp_path):
  write_returns(tmp_path, [0, 0, 0])
  shutil.copy(
    file_of(tmp_path, 'observation', 1), file_of(tmp_path, 'observation', 2)
  )
  found = [f for f in findings(tmp_path) if 'same frames' in f.message]
  assert [f.file for f in found] == [str(file_of(tmp_path, 'observation', 2))]


def test_missing_padding_is_suspicious(logs):
  # Rows 33 to 35 are the padding of the second episode.
  path = change(logs, 'observation', 0, put(34, 1))
  found = the_only(logs, 'suspicious')
  assert found.file == str(path)
  assert '1 of 2 episodes begin with fewer than 3' in found.message


def test_the_manifest_says_how_much_padding_there_is(tmp_path):
  shards.write_run(tmp_path, [30, 30], CAPACITY, stack_size=1)
  assert not verification.verify(str(tmp_path)).wrong
  (tmp_path / manifests.FILE_NAME).unlink()
  assert verification.verify(str(tmp_path)).wrong


def test_an_endless_episode_is_suspicious(tmp_path):
  """One shard of 27,100 rows whose frames are random bytes of no size."""
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
  found = the_only(tmp_path, 'suspicious')
  assert found.file == str(file_of(tmp_path, 'terminal', 0))
  assert '27,099 rows on end without a terminal' in found.message
  change(tmp_path, 'terminal', 0, put(9_000, 1))
  change(tmp_path, 'observation', 0, put(slice(9_001, 9_004), 0))
  assert not verification.verify(str(tmp_path)).wrong
