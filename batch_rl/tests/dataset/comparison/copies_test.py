"""Copies of one small run in every format have the same transitions."""

import shutil

import pytest

from batch_rl.dataset import run_directories
from batch_rl.dataset.comparison import comparison, copies
from batch_rl.dataset.interchange import episode_export, rlds_export
from batch_rl.dataset.store import store
from batch_rl.tests import interchange_runs as runs
from batch_rl.tests import ring_logs, shards
from batch_rl.tests.dataset.interchange import tfds_datasets
from batch_rl.tests.dataset.unplugged import unplugged_files


def read_all(*paths, with_frames=True):
  """Opens and reads copies."""
  found = [copies.open_copy(str(path)) for path in paths]
  for copy in found:
    amounts = []
    copy.read(with_frames, amounts.append)
    assert sum(amounts) == copy.total
  return found


# Place of the last episode. It begins in row 197, with padding; a file has three
# episodes.
PLACES = {
  'shards': {'shard': 2, 'ring_position': 4},
  'store': {'shard': 2, 'ring_position': 4},
  'exported': {'file': 'dqn_replay-train.tfrecord-00000', 'record': 3},
  'rlds': {'file': 'rlu_atari-train.tfrecord-00000-of-00001', 'record': 3},
  'unplugged': {'file': 'run_1-00001-of-00050', 'record': 0},
}
EPISODES = len(runs.LENGTHS)
ROWS = sum(runs.LENGTHS)


@pytest.fixture(scope='module')
def paths(tmp_path_factory):
  """Copies of a run of four episodes; one is shuffled and has unclipped rewards."""
  from tensorflow.python.eager import context

  root = tmp_path_factory.mktemp('copies')
  logged = runs.make_episodes(*runs.LENGTHS)
  # The sample's rewards are all -1, 0 or 1.
  unclipped = [
    (frames, action, 3 * reward) for frames, action, reward in logged
  ]
  found = {kind: root / kind for kind in PLACES}
  found['shards'] = root / 'Pong' / '1'
  logs = runs.write_run(found['shards'], logged)
  store.convert(str(logs), str(found['store']))
  (run,) = run_directories.find_runs(str(found['shards']))
  raw = [
    tfds_datasets.raw_episode(episode, number=i)
    for i, episode in enumerate(unclipped)
  ]
  with context.eager_mode():
    episode_export.export(run, str(found['exported']), rlds_export.opener())
    found['rlds'] = tfds_datasets.build(
      root / 'tfds', {'train': raw}, name='rlu_atari', ordered=False
    )
  found['unplugged'] = folder = root / 'atari_episodes_ordered' / 'Pong'
  for number, part in enumerate((unclipped[:3], unclipped[3:])):
    path = folder / f'run_1-0000{number}-of-00050'
    unplugged_files.write_file(path, part, number, clipped=False)
  return found


@pytest.mark.usefixtures('eager')
@pytest.mark.parametrize('with_frames', [True, False])
@pytest.mark.parametrize('kind', PLACES)
def test_all_copies_are_the_same(paths, kind, with_frames):
  a, b = read_all(paths['shards'], paths[kind], with_frames=with_frames)
  result = comparison.compare(a, b, with_frames)
  assert result.same and result.equal == EPISODES, result
  # TFDS shuffles by hashes of names, always in the same way.
  assert result.in_order == (kind != 'rlds')
  assert (b.rows.episodes, b.rows.rows) == (EPISODES, ROWS)
  assert b.place(3, 7) == {'episode': 3, 'step': 7, **PLACES[kind]}


@pytest.mark.parametrize('length', [30, 35, 36])
def test_ends_of_the_run_and_stale_rows(tmp_path, length):
  """The final shard of the original logger has rows of its previous lap.

  An episode of 35 or 36 rows is followed by padding in row 39, where shard 1 begins.
  """
  episodes = shards.make_episodes([length, 30, 30])
  ring_logs.write_run(tmp_path / 'logs', shards.with_padding(episodes, 4), 40)
  (copy,) = read_all(tmp_path / 'logs')
  assert copy.rows.rows == copy.rows.transitions == length + 60
  assert copy.rows.terminated.all()
  # Without the first shard, its rows are all that is missing.
  rest = tmp_path / 'rest'
  shutil.copytree(tmp_path / 'logs', rest)
  ring_logs.remove_shard(rest, 0)
  (part,) = read_all(rest)
  in_first = 33 if length == 30 else length
  assert copy.rows.transitions - part.rows.transitions == in_first
  result = comparison.compare(copy, part)
  expected = {'a': 2, 'b': 1} if length == 30 else {'a': 1, 'b': 0}
  assert result.different == expected


def test_without_padding_observations_may_be_zero(tmp_path):
  with shards.make_log(tmp_path, 50, stack_size=1) as log:
    for step in range(12):
      shards.add_row(log, shards.Row(step % 6, 0, 0.0, step % 6 == 5))
  (copy,) = read_all(tmp_path)
  assert copy.rows.begin.tolist() == [0, 6] and copy.rows.transitions == 12


@pytest.mark.usefixtures('eager')
def test_episodes_without_an_end_or_a_beginning(tmp_path):
  kinds = {0: 'late', 2: 'truncated', 3: 'open'}
  logged = runs.make_episodes(*runs.LENGTHS)
  runs.write_run(tmp_path / 'Pong' / '1', logged, kinds=kinds)
  (run,) = run_directories.find_runs(str(tmp_path))
  episode_export.export(run, str(tmp_path / 'rlds'), rlds_export.opener())
  a, b = read_all(tmp_path / 'Pong/1', tmp_path / 'rlds')
  assert comparison.compare(a, b).same
  unended = sum(kind != 'late' for kind in kinds.values())
  assert a.rows.transitions == ROWS - unended


@pytest.mark.parametrize(
  'kinds, clipped',
  [
    (('atari', 'atari'), True),
    (('own', 'own'), False),
    (('atari', 'own'), True),  # A copy of another format may be clipped.
    ((None, 'own'), False),
    ((None, None), True),  # Taken for parts of the DQN Replay Dataset.
  ],
)
def test_rewards_are_clipped_in_atari(tmp_path, kinds, clipped):
  """A manifest also tells for a copy without one."""
  found = []
  for i, kind in enumerate(kinds):
    path, reward = tmp_path / str(i), (2.0, 7.0)[i]
    sticky = {'repeat_action_probability': 0.25} if kind == 'atari' else {}
    with shards.make_log(path, 50, environment=sticky) as log:
      for row in shards.make_episodes([20])[0]:
        shards.add_row(log, shards.Row(row.frame, 1, reward, row.terminal))
    if kind is None:
      (path / 'manifest.json').unlink()
    found.append(copies.open_copy(str(path)))
  comparison.prepare(*found)
  for copy in found:
    copy.read(True, lambda count: None)
  result = comparison.compare(*found)
  assert result.same == clipped
  assert clipped or list(result.first['values']) == ['reward']
