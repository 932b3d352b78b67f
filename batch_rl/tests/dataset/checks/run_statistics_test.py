import hypothesis
import numpy as np
import pytest
from hypothesis import strategies as st

from batch_rl.dataset.shards import manifests, shard_files
from batch_rl.tests import ring_logs, shards
from batch_rl.tests.dataset.checks.run_files import compute, save


@hypothesis.given(
  lengths=st.lists(st.integers(1, 30), min_size=1, max_size=12),
  capacity=st.integers(8, 60),
  stack_size=st.integers(1, 4),
  data=st.data(),
)
def test_statistics_agree_with_the_logged_episodes(
  lengths, capacity, stack_size, data, tmp_path_factory
):
  logs = tmp_path_factory.mktemp('run') / 'replay_logs'
  rows = shards.write_run(logs, lengths, capacity, stack_size)
  episodes = shards.make_episodes(lengths)
  manifest = manifests.read(str(logs))
  if data.draw(st.booleans()) and stack_size == 4:
    (logs / manifests.FILE_NAME).unlink()
  statistics = compute(logs.parent)
  total = statistics.totals()
  assert total['rows'] == len(rows)
  assert total['agent_steps'] == sum(lengths)
  assert total['padding_rows'] == (stack_size - 1) * len(lengths)
  assert total['episodes'] == len(lengths) and not total['episodes_cut']
  np.testing.assert_array_equal(statistics.lengths, lengths)
  returns = [sum(row.reward for row in episode) for episode in episodes]
  np.testing.assert_allclose(statistics.returns, returns)
  counts = np.bincount([row.action for e in episodes for row in e])
  np.testing.assert_array_equal(statistics.actions, counts)
  of_shards = statistics.shards()
  for recorded, entry in zip(manifest['shards'], of_shards, strict=True):
    episodes = recorded['episodes']
    assert recorded['rows'] == entry['rows']
    within = rows[recorded['first_row'] :][: entry['rows']]
    assert entry['padding_rows'] == sum(row.frame == 0 for row in within)
    assert episodes['count'] == entry['episodes']
    assert sum(f['bytes'] for f in recorded['files'].values()) == entry['bytes']
    if statistics.manifest:
      assert episodes.get('unclipped_return') == entry['unclipped_return']
    for ours, theirs in (('return', 'return'), ('length', 'agent_steps')):
      for key in episodes[theirs] if episodes['count'] else ():
        assert episodes[theirs][key] == pytest.approx(entry[ours][key])


def test_no_episode_spans_a_gap(tmp_path):
  logs = tmp_path / 'replay_logs'
  shards.write_run(logs, [30] * 5, 40)  # 165 rows: 39, 40, 40, 40 and 6
  frames = np.random.default_rng(0).integers(0, 256, (40, 100, 100), np.uint8)
  for path in logs.glob('*observation*'):  # Only their headers are read.
    save(path, frames)
    path.write_bytes(path.read_bytes()[:-999])
  # 0 ends in shard 0; 2 begins in shard 1; 3 ends in shard 3, 4 in shard 4.
  # Without the first shard, the episode that it begins is cut.
  for removed, ends in ((1, [0, 3, 4]), (0, [3, 4])):
    ring_logs.remove_shard(logs, removed)
    statistics = compute(tmp_path)
    total = statistics.totals()
    assert total['episodes_cut'] == 1 and total['unclipped_return'] is None
    assert statistics.lengths.tolist() == [30] * len(ends)
    assert statistics.ends_in.tolist() == ends
    assert not removed or 'between 0 and 2' in statistics.problems[0]


def test_an_impossible_action_is_named(tmp_path):
  logs = tmp_path / 'replay_logs'
  shards.write_run(logs, [30, 30], 40)
  (logs / 'manifest.json').unlink()
  path = logs / shard_files.file_name('action', 1)
  for wrong in (-3, 10_000):
    save(path, np.full(40, wrong, np.int32))
    with pytest.raises(ValueError, match=f'{logs} has action {wrong}: act'):
      compute(tmp_path)
