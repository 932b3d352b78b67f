import shutil

import pytest

from batch_rl.dataset.comparison import comparison, copies
from batch_rl.dataset.imports import store_import
from batch_rl.dataset.store import store
from batch_rl.tests import interchange_runs as runs
from batch_rl.tests import ring_logs, shards
from batch_rl.tests.dataset.imports import store_import_test


def read_all(*paths, with_frames=True):
  """Opens and reads a copy, or two of one run."""
  found = [copies.open_copy(str(path)) for path in paths]
  if len(found) == 2:
    comparison.prepare(*found)
  for copy in found:
    amounts = []
    copy.read(with_frames, amounts.append)
    assert sum(amounts) == copy.store.rows
  return found


# Place of the eighth step of the last episode, which begins in row 197 with padding.
# An imported shard has whole episodes; the first has three.
PLACES = {'shards': (2, 4), 'small shards': (6, 0), 'store': (2, 4)}
PLACES['imported'] = 1, 10
PARTS = slice(3), slice(3, None)
EPISODES = len(runs.LENGTHS)
ROWS = sum(runs.LENGTHS)


@pytest.fixture(scope='module')
def paths(tmp_path_factory):
  """Copies of a run of four episodes; one has unclipped rewards."""
  root = tmp_path_factory.mktemp('copies')
  logged = runs.make_episodes(*runs.LENGTHS)
  logs = runs.write_run(root / 'shards', logged)
  runs.write_run(root / 'small shards', logged, capacity=34)
  store.convert(str(logs), str(root / 'store'))
  # The sample's rewards are all -1, 0 or 1.
  unclipped = [(f, action, 3 * reward) for f, action, reward in logged]
  parts = [[(None, episode) for episode in unclipped[part]] for part in PARTS]
  reader = store_import_test.ListReader(dict(enumerate(parts)))
  store_import.import_parts(reader, str(root / 'imported'))
  return {kind: root / kind for kind in PLACES}


@pytest.mark.parametrize('with_frames', [True, False])
@pytest.mark.parametrize('kind', PLACES)
def test_all_copies_are_the_same(paths, kind, with_frames):
  a, b = read_all(paths['shards'], paths[kind], with_frames=with_frames)
  result = comparison.compare(a, b, with_frames)
  assert result.same and result.equal == EPISODES, result
  assert (b.rows.episodes, b.rows.rows) == (EPISODES, ROWS)
  shard, ring = PLACES[kind]
  place = {'episode': 3, 'step': 7, 'shard': shard, 'ring_position': ring}
  assert b.place(3, 7) == place


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


def test_episodes_without_an_end_or_a_beginning(tmp_path):
  kinds = {0: 'late', 2: 'truncated', 3: 'open'}
  logged = runs.make_episodes(*runs.LENGTHS)
  for name, capacity in (('a', 100), ('b', 34)):
    runs.write_run(tmp_path / name, logged, capacity, kinds)
  store.convert(str(tmp_path / 'a/replay_logs'), str(tmp_path / 'c'))
  unended = sum(kind != 'late' for kind in kinds.values())
  for a, b in ('ab', 'ac'):
    copy, other = read_all(tmp_path / a, tmp_path / b)
    assert comparison.compare(copy, other).same
    assert copy.rows.transitions == ROWS - unended


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
  paths = [tmp_path / 'a', tmp_path / 'b']
  for path, kind, reward in zip(paths, kinds, (2.0, 7.0), strict=True):
    sticky = {'repeat_action_probability': 0.25} if kind == 'atari' else {}
    with shards.make_log(path, 50, environment=sticky) as log:
      for row in shards.make_episodes([20])[0]:
        shards.add_row(log, shards.Row(row.frame, 1, reward, row.terminal))
    if kind is None:
      (path / 'manifest.json').unlink()
  result = comparison.compare(*read_all(*paths))
  assert result.same == clipped
  assert clipped or list(result.first['values']) == ['reward']
