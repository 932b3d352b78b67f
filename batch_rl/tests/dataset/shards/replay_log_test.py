import contextlib
import itertools
import json
from unittest import mock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from batch_rl.dataset import store
from batch_rl.dataset.shards import manifests, replay_log, shard_writer
from batch_rl.tests import shards


@settings(max_examples=60)
@given(
  lengths=st.lists(st.integers(1, 30), min_size=2, max_size=12),
  capacity=st.integers(9, 60),
  stack_size=st.integers(1, 5),
  data=st.data(),
)
def test_a_log_resumes(tmp_path_factory, lengths, capacity, stack_size, data):
  """A log is checkpointed at any step, continued, and resumed."""
  directory = tmp_path_factory.mktemp('log')
  episodes = shards.make_episodes(lengths)
  steps = list(itertools.chain(*episodes))
  checkpointed = data.draw(st.integers(0, len(steps)))
  stopped = data.draw(st.integers(checkpointed, len(steps)))
  end = data.draw(st.sampled_from(['closed', 'killed', 'in use']))
  first = shards.make_log(directory, capacity, stack_size, run_id='a')
  shards.add_rows(first, steps[:checkpointed])
  state = json.loads(json.dumps(first.checkpoint()))
  shards.add_rows(first, steps[checkpointed:stopped])
  if end == 'closed':
    first.close()
  elif end == 'killed':
    first.checkpoint()  # The agent's side of this checkpoint was never written.
  logged = shards.with_padding(episodes, stack_size)
  ends = [i + 1 for i, row in enumerate(logged) if row.frame]
  expected = logged[: ends[checkpointed - 1] if checkpointed else 0]
  returns = [sum(row.reward for row in episode) for episode in episodes]
  last = [i for i, row in enumerate(expected) if row.terminal]
  saved = [[*e] for e in zip(last, returns, returns, lengths, strict=False)]
  finished = sum(entry['rows'] for entry in state['shards'])
  assert state['episodes'] == [e for e in saved if e[0] >= finished]
  if data.draw(st.booleans()):  # Earlier versions saved all.
    state['episodes'] = saved
  second = first
  if end != 'in use':
    second = shards.make_log(directory, capacity, stack_size, run_id='a')
  second.restore(state)
  assert second.rows == len(expected)
  assert second.at_episode_start == (not expected or expected[-1].terminal)
  count = data.draw(st.integers(1, len(expected) + 5))
  read = {}
  for name, start, rows in second.read_back(count):
    for offset, row in enumerate(rows):
      assert (name, start + offset) not in read
      assert start + offset >= len(expected) - count
      read[name, start + offset] = row
  for number in range(max(0, len(expected) - count), len(expected)):
    assert read['observation', number][0, 0] == expected[number].frame
    assert read['action', number] == expected[number].action
    assert read['terminal', number] == expected[number].terminal
  shards.add_rows(second, steps[checkpointed:])
  second.close()
  assert shards.read_run(directory) == logged
  manifest = manifests.read(str(directory))
  assert manifest['rows'] == len(logged)
  statistics = manifest['episodes']
  assert statistics['count'] == len(episodes)
  for name, values in ('agent_steps', lengths), ('return', returns):
    mean = pytest.approx(np.mean(values))
    of_values = {'mean': mean, 'min': min(values), 'max': max(values)}
    assert statistics[name] == of_values
  firsts = [entry['first_row'] for entry in manifest['shards']]
  sums = itertools.accumulate(entry['rows'] for entry in manifest['shards'])
  assert [*firsts, len(logged)] == [0, *sums]
  of_shards = [entry['episodes'] for entry in manifest['shards']]
  assert sum(o['count'] for o in of_shards) == len(episodes)
  recorded = [o['unclipped_returns'] for o in of_shards]
  assert list(itertools.chain(*recorded)) == returns


def test_a_closed_log_is_not_started_again(tmp_path, synced):
  """Only a killed log is: no checkpoint covers its rows."""
  # Of a process killed at its first write.
  (tmp_path / 'manifest.json.0123456789abcdef.tmp').write_text('{')
  log = shards.make_log(tmp_path, 40, run_id='a')
  shards.add_row(log, shards.Row(1, 0, 0.0, 1))
  log.checkpoint()
  assert 'partial' in synced
  again = shards.make_log(tmp_path, 40, run_id='a')
  for frame in range(1, 60):
    shards.add_row(again, shards.Row(frame, 0, 0.0, 0))
  again.close()
  logged = shards.read_run(tmp_path)
  assert len(logged) == 62
  third = shards.make_log(tmp_path, 40, run_id='a')
  with pytest.raises(ValueError, match=f'{tmp_path} holds 62 rows'):
    shards.add_row(third, shards.Row(1, 0, 0.0, 1))
  third.close()
  assert shards.read_run(tmp_path) == logged


def test_a_closed_log_can_be_read_until_a_row_follows_its_checkpoint(tmp_path):
  """As a finished run leaves it, if the same command runs again."""
  episodes = shards.make_episodes([30, 30, 30])
  with shards.make_log(tmp_path, 40, run_id='a') as log:
    shards.add_rows(log, [row for episode in episodes[:2] for row in episode])
    state, rows = log.checkpoint(), [*log.read_back(50)]
  before = contents(tmp_path)
  with shards.make_log(tmp_path, 40, run_id='a') as again:
    again.restore(state)
    for now, then in zip(again.read_back(50), rows, strict=True):
      assert now[:2] == then[:2] and (now[2] == then[2]).all()
    assert contents(tmp_path) == before
  with shards.make_log(tmp_path, 40, run_id='a') as third:
    third.restore(state)
    shards.add_rows(third, episodes[2])
  assert shards.read_run(tmp_path) == shards.with_padding(episodes, 4)


def test_ctrl_c_as_a_block_is_handed_over_writes_it_once(tmp_path, monkeypatch):
  monkeypatch.setattr(replay_log, '_BLOCK_ROWS', 8)
  episodes = shards.make_episodes([30])
  with shards.make_log(tmp_path, 40) as log:
    submit = log._thread.submit

    def interrupted(*task):
      submit(*task).result()
      log._thread.submit = submit
      raise KeyboardInterrupt

    log._thread.submit = interrupted
    with pytest.raises(KeyboardInterrupt):
      shards.add_rows(log, episodes[0][:5])
    shards.add_rows(log, episodes[0][5:])
  assert shards.read_run(tmp_path) == shards.with_padding(episodes, 4)


def test_another_directory_is_refused(tmp_path):
  shards.write_run(tmp_path / 'log', [9], 40)
  before = contents(tmp_path / 'log')
  other = shards.make_log(tmp_path / 'log', 40, run_id='b')
  with pytest.raises(ValueError, match=f'{tmp_path}/log'):
    shards.add_row(other, shards.Row(1, 0, 0.0, 1))
  with pytest.raises(ValueError, match=f'{tmp_path}/log'):
    with shards.make_log(tmp_path / 'log', 40):
      pytest.fail('The block was entered.')
  assert contents(tmp_path / 'log') == before
  (tmp_path / 'mine').mkdir()
  (tmp_path / 'mine/thesis.tex').write_text('dear')
  with pytest.raises(ValueError, match=f'{tmp_path}/mine'):
    replay_log.check_log_directory(str(tmp_path / 'mine'), 'a')


def test_values_that_do_not_fit_are_not_logged(tmp_path):
  with pytest.raises(ValueError, match='stack_size=0'):
    shards.make_log(tmp_path, 40, stack_size=0)
  frame = np.ones((2, 2), np.uint8)
  with shards.make_log(tmp_path, 40, environment={'num_actions': None}) as log:
    log.add(frame, 1, 0.5, False)
    for name, wrong in (
      ('observation', (frame[0], 1, 0.5, False)),
      ('action', (frame, 1.5, 0.5, False)),
      ('reward', (frame, 1, None, False)),
      ("terminal='False'", (frame, 1, 0.5, 'False')),
      ('terminal=None', (frame, 1, 0.5, None)),
      ('truncated={} is neither', (frame, 1, 0.5, False, {})),
      ('reward', (frame, 1, 0.5, False, False, True, np.nan)),
    ):
      with pytest.raises(ValueError, match=name):
        log.add(*wrong)
    log.add(frame, 2, 0.5, True)
    frame[:] = 7  # The log has a copy.
    assert log.rows == 5
  rows = shards.read_run(tmp_path)
  assert [(row.frame, row.action) for row in rows[3:]] == [(1, 1), (1, 2)]


@pytest.mark.parametrize('fails', [False, True])
def test_a_with_block_closes_the_log(tmp_path, fails):
  """Rows logged before an exception can be read, and the log still resumes."""
  episodes = shards.make_episodes([9, 9])
  with pytest.raises(RuntimeError) if fails else contextlib.nullcontext():
    with shards.make_log(tmp_path, 40, run_id='a') as log:
      shards.add_rows(log, episodes[0])
      state = log.checkpoint()
      shards.add_row(log, episodes[1][0])
      if fails:
        raise RuntimeError('of the environment')
  log.close()
  first = [*episodes[0], *[shards.Row(0, 0, 0.0, 0)] * 3, episodes[1][0]]
  assert shards.read_run(tmp_path)[3:] == first
  for use in (
    lambda: shards.add_row(log, episodes[1][1]),
    log.checkpoint,
    lambda: log.restore(state),
  ):
    with pytest.raises(ValueError, match=f'{tmp_path} is closed'):
      use()
  del state['run_id']  # Earlier versions did not write it.
  with shards.make_log(tmp_path, 40, run_id='a') as log:
    log.restore(state)
    shards.add_rows(log, episodes[1])
  assert shards.read_run(tmp_path) == shards.with_padding(episodes, 4)


def write_log(directory, lengths, checkpointed, run_id):
  """Closes a log; returns its state after the first `checkpointed` episodes."""
  log = shards.make_log(directory, 40, run_id=run_id)
  for number, episode in enumerate(shards.make_episodes(lengths)):
    if number == checkpointed:
      state = log.checkpoint()
    shards.add_rows(log, episode)
  log.close()
  return json.loads(json.dumps(state))


def contents(directory):
  return {path.name: path.read_bytes() for path in directory.iterdir()}


@pytest.mark.parametrize(
  ('lengths', 'checkpointed', 'run_id', 'own_id', 'intact', 'message'),
  [
    ([30] * 8, 1, 'b', 'b', [30] * 9, "manifest of run_id='a'"),
    ([30] * 8, 1, 'b', 'a', [30] * 9, "checkpoint is of run_id='b'"),
    # Without a `run_id`, finished shards tell two runs apart.
    ([31, 30, 30], 2, None, None, [30] * 9, 'checkpoint'),
    ([30] * 20, 18, None, None, [30] * 9, 'checkpoint'),
    ([3, 20, 20], 2, None, None, [3, 3], 'shorter'),
  ],
)
def test_a_refused_checkpoint_leaves_the_files_as_they_are(
  tmp_path, lengths, checkpointed, run_id, own_id, intact, message
):
  state = write_log(tmp_path / 'b', lengths, checkpointed, run_id)
  write_log(tmp_path / 'a', intact, 1, run_id and 'a')
  before = contents(tmp_path / 'a')
  log = shards.make_log(tmp_path / 'a', 40, run_id=own_id)
  with pytest.raises(ValueError, match=message):
    log.restore(state)
  assert contents(tmp_path / 'a') == before
  with pytest.raises(ValueError, match="'shard_capacity': 40"):
    shards.make_log(tmp_path / 'a', 50, run_id=own_id).restore(state)


def test_a_complete_shard_has_its_truncated_rows(tmp_path, monkeypatch):
  """At every time, so that no reader takes them for terminal."""
  describe, seen = manifests.describe_file, []

  def read_first(path):
    opened = store.Store(str(tmp_path))
    seen.append((opened.rows, opened.ends.tolist()))
    assert opened.truncations.tolist() == seen[-1][1]
    return describe(path)

  monkeypatch.setattr(manifests, 'describe_file', read_first)
  with shards.make_log(tmp_path, 40, 1) as log:
    for step in range(60):
      frame = np.full((2, 2), step + 1, np.uint8)
      log.add(frame, 1, 0.0, False, truncated=step % 10 == 9)
  assert (39, [9, 19, 29]) in seen and (60, [*range(9, 60, 10)]) in seen


def test_large_rows_are_written_in_small_blocks(tmp_path, monkeypatch):
  append = shard_writer.ShardWriter.append
  spy = mock.create_autospec(append, side_effect=append)
  monkeypatch.setattr(shard_writer.ShardWriter, 'append', spy)
  monkeypatch.setattr(replay_log, '_BLOCK_BYTES', 100)
  shards.write_run(tmp_path, [60], capacity=200)
  sizes = [len(call.args[1]) for call in spy.call_args_list]
  assert max(sizes) < 30 and sum(sizes) == 63


def test_a_log_without_rows_closes_its_files(tmp_path, recwarn):
  log = shards.make_log(tmp_path, 40)
  log.checkpoint()
  log.close()
  assert not recwarn.list


def test_writing_thread_errors_reach_the_caller(tmp_path, monkeypatch):
  log = shards.make_log(tmp_path / 'log', 40)
  full_disk = mock.Mock(side_effect=OSError(28, 'No space left on device'))
  monkeypatch.setattr(shard_writer.ShardWriter, 'append', full_disk)
  shards.add_row(log, shards.Row(1, 0, 0.0, 1))
  with pytest.raises(OSError, match='No space left') as raised:
    log.checkpoint()
  assert raised.value.filename == str(tmp_path / 'log')
