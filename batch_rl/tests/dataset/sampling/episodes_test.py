"""Episodes of a run: complete, truncated, partial, or spanning shards."""

import shutil
import tempfile

import hypothesis
import numpy as np
import pytest
from hypothesis import strategies as st

from batch_rl import dataset
from batch_rl.dataset import run_directories
from batch_rl.dataset.sampling import episodes
from batch_rl.dataset.shards import replay_log
from batch_rl.dataset.store import store
from batch_rl.tests import interchange_runs as runs
from batch_rl.tests import ring_logs
from batch_rl.tests.dataset.store import stores


def read(directory, subset=None):
  return episodes.Reader(run_directories.as_run(str(directory)), subset)


def tiny_episodes(lengths):
  random = np.random.default_rng(1)
  return [
    (
      random.integers(1, 256, (n, 2, 2), dtype=np.uint8),
      random.integers(0, 4, n),
      random.integers(-1, 2, n).astype(np.float32),
    )
    for n in lengths
  ]


KINDS = st.sampled_from([None, 'truncated', 'late'])
EPISODES = st.tuples(st.integers(1, 9), KINDS)  # number of steps, and kind


def log(directory, episodes, capacity, last_is_open):
  """Logs `EPISODES`; returns them, their kinds by number, and the folder of shards."""
  # The first three rows of an episode without padding serve as context.
  logged = tiny_episodes([n + 3 * (kind == 'late') for n, kind in episodes])
  kinds = {i: kind for i, (_, kind) in enumerate(episodes)}
  if last_is_open:
    kinds[len(episodes) - 1] = 'open'
  return logged, kinds, runs.write_run(directory, logged, capacity, kinds)


@hypothesis.given(
  drawn=st.lists(EPISODES, min_size=1, max_size=8),
  capacity=st.integers(7, 40),
  last_is_open=st.booleans(),
  as_store=st.booleans(),
)
def test_episodes_come_back_as_logged(drawn, capacity, last_is_open, as_store):
  with tempfile.TemporaryDirectory() as directory:
    logged, kinds, logs = log(directory, drawn, capacity, last_is_open)
    source = str(logs)
    if as_store:
      source = f'{directory}/store'
      store.convert(str(logs), source).close()
    found = list(read(source))
    assert len(found) == len(logged)
    for i, (episode, columns) in enumerate(zip(found, logged, strict=True)):
      assert episode.begins_at_reset == (kinds[i] != 'late')
      assert episode.ended == (kinds[i] in (None, 'late'))
      assert episode.number == i
      names = 'observation', 'action', 'reward'
      for name, column in zip(names, columns, strict=True):
        np.testing.assert_array_equal(getattr(episode, name), column)
    expected = runs.expected_transitions(logged, kinds)
    if len(expected['action']):
      runs.assert_same(runs.transitions(source), expected)


def test_truncated_ends_are_not_drawn(tmp_path):
  """Three-step transitions lack the last three rows of a truncated episode."""
  kinds = {0: 'truncated', 1: 'truncated'}
  logs = runs.write_run(tmp_path, tiny_episodes([40, 30, 50]), 30, kinds)
  found = runs.transitions(logs, horizon=3)
  assert len(found['action']) == 120 - 3 - 3 and found['terminal'].sum() == 3
  reader = read(tmp_path)
  del reader._store.truncations  # a search of them for each episode is slow
  assert [episode.truncated for episode in reader] == [True, True, False]


def test_a_missing_shard_divides_an_episode(tmp_path):
  logged = runs.make_episodes(40, 100, 50)
  ring_logs.remove_shard(runs.write_run(tmp_path, logged, 30), 2)
  found = list(read(tmp_path))
  flags = [(e.begins_at_reset, e.ended, len(e.action)) for e in found]
  assert flags[0] == (True, True, 40)
  assert flags[1][:2] == (True, False) and flags[2][:2] == (False, True)
  assert flags[1][2] + flags[2][2] == 100 - 30
  assert flags[3] == (True, True, 50)
  rest = logged[1][0][-flags[2][2] :]
  np.testing.assert_array_equal(found[2].observation, rest)


def test_only_complete_trajectories_can_be_chosen(tmp_path):
  runs.write_run(tmp_path, runs.make_episodes(40, 30, 50), 60)
  reader = read(tmp_path, 'random_trajectories(0.6)')
  assert reader.count == 2 and len(list(reader)) == 2
  assert reader.rows == sum(len(e.action) for e in reader)
  with pytest.raises(ValueError, match='splits trajectories'):
    read(tmp_path, 'first_transitions(45)')
  with pytest.raises(ValueError, match="'' is not a subset"):
    read(tmp_path, '')


def test_returns_to_go_and_unclipped_returns(tmp_path):
  """The unclipped return of an episode is unknown if its beginning is missing."""
  rewards = [[3.0, 0.0, -2.0], [0.0], [1.0] * 9, [5.0, 5.0, 0.0], [2.0, 2.0]]
  with replay_log.ReplayLog(tmp_path, (2,), np.uint8, 8, stack_size=2) as log:
    for episode in rewards:
      for step, reward in enumerate(episode):
        terminal = step == len(episode) - 1 and len(episode) != 2
        row = np.ones(2, np.uint8), step, np.clip(reward, -1, 1), terminal
        log.add(*row, unclipped_reward=reward)
  for missing, kept in (None, range(5)), (0, [2, 3, 4]):
    if missing is not None:
      ring_logs.remove_shard(tmp_path, missing)
    opened = stores.open_store(tmp_path)
    run = run_directories.as_run(str(tmp_path))
    for reader in (episodes.Reader(run), episodes.Reader(run, store=opened)):
      found = list(reader)
      first = 9.0 if missing is None else None
      returns = [e.unclipped_return for e in found[-3:]]
      assert returns == [first, 10.0, None]  # the run stops within the last
      if missing is None:
        assert [e.unclipped_return for e in found[:2]] == [1.0, 0.0]
      for episode, i in zip(found, kept, strict=True):
        clipped = np.clip(rewards[i], -1, 1)[-len(episode.reward) :]
        np.testing.assert_array_equal(episode.reward, clipped)
        assert episode.logged_return == clipped.sum()
        for gamma in (1.0, 0.5):
          sums = [
            sum(gamma**j * reward for j, reward in enumerate(clipped[t:]))
            for t in range(len(clipped))
          ]
          np.testing.assert_allclose(episode.return_to_go(gamma), sums)


def test_trajectories_in_a_damaged_shard_are_left_out(tmp_path, monkeypatch):
  logged = tiny_episodes([20] * 9)
  runs.write_run(tmp_path, logged, 30)
  whole = read(tmp_path).hash
  stores.damage_frames(monkeypatch, 2)
  run = dataset.open(tmp_path, skip_damaged=True)
  assert run.store.damaged == {2}
  # The damaged shard has rows 59 to 88, and each episode takes 23.
  intact = [0, 1, 4, 5, 6, 7, 8]
  reader = run.trajectories()
  found = list(reader)
  assert [episode.number for episode in found] == intact
  assert reader.count == 7 and reader.rows == 7 * 20 and reader.hash != whole
  for episode in found:
    frames = logged[episode.number][0]
    np.testing.assert_array_equal(episode.observation, frames)
  returns = [logged[i][2].sum() for i in intact]
  [best] = run.trajectories('best_trajectories(0.1)')
  assert best.number == intact[np.argmax(returns)]


def test_a_shard_changed_since_opening_is_an_error(tmp_path):
  runs.write_run(tmp_path, tiny_episodes([20] * 4), 30)
  episodes_of = iter(read(tmp_path))
  next(episodes_of)
  shutil.rmtree(tmp_path / 'replay_logs')
  runs.write_run(tmp_path, tiny_episodes([20] * 5)[1:], 30)
  with pytest.raises(ValueError, match='Shard 1 .* has changed since'):
    list(episodes_of)
