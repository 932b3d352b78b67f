import json
import tempfile

import hypothesis
import numpy as np
import pytest
from hypothesis import strategies as st

from batch_rl.dataset import run_directories
from batch_rl.dataset.comparison import comparison
from batch_rl.dataset.interchange import episode_export, shards_export
from batch_rl.dataset.sampling import subsets
from batch_rl.dataset.shards import manifests, shard_files
from batch_rl.dataset.store import store
from batch_rl.dataset.unplugged import file_names
from batch_rl.tests import interchange_runs as runs
from batch_rl.tests import observations, ring_logs
from batch_rl.tests.dataset.comparison import copies_test
from batch_rl.tests.dataset.sampling import episodes_test
from batch_rl.tests.dataset.unplugged import unplugged_files


def export(source, target):
  run = run_directories.as_run(str(source))
  episode_export.export(run, str(target), shards_export.open_writer)


KINDS = [(5, None), (9, 'late'), (3, 'truncated'), (1, 'late'), (8, None)]


@hypothesis.given(
  drawn=st.lists(episodes_test.EPISODES, min_size=4, max_size=12),
  last_is_open=st.booleans(),
  missing=st.sets(st.integers(0, 9), max_size=2),
  as_store=st.booleans(),
  with_manifest=st.booleans(),
)
@hypothesis.example(KINDS, False, set(), False, True)
@hypothesis.example(KINDS, True, {1}, True, True)
def test_a_round_trip(drawn, last_is_open, missing, as_store, with_manifest):
  if missing or not with_manifest:
    # Then padding that was not logged cannot be told from missing rows.
    drawn = [(n, kind if kind != 'late' else None) for n, kind in drawn]
  with tempfile.TemporaryDirectory() as directory:
    source = f'{directory}/Pong/1'
    *_, logs = episodes_test.log(source, drawn, 12, last_is_open)
    missing &= {*shard_files.list_suffixes(str(logs))[:-1]}
    for number in missing:
      ring_logs.remove_shard(logs, number)
    if not with_manifest:
      (logs / manifests.FILE_NAME).unlink()
    left = subsets.trajectories(store.Store(str(logs), pack=False))
    hypothesis.assume(len(left.selected))  # A run without a step is refused.
    if as_store:
      source = f'{directory}/store'
      store.convert(str(logs), source).close()
    target = f'{directory}/out/Pong/1'
    export(source, target)
    result = comparison.compare(*copies_test.read_all(source, target))
    assert result.same, result
    if not missing:
      expected = runs.transitions(source if as_store else logs)
      if len(expected['action']):
        runs.assert_same(runs.transitions(f'{target}/replay_logs'), expected)
      made, kept = map(episodes_test.read, (target, source))
      for a, b in zip(made, kept, strict=True):
        assert (a.truncated, a.ended) == (b.truncated, b.ended)
        assert a.begins_at_reset == b.begins_at_reset


@pytest.mark.parametrize(('capacity', 'steps'), [(40, 27), (35, 30)])
def test_a_missing_shard_costs_no_more_steps(tmp_path, run, capacity, steps):
  """The gap ends within an episode, or within its padding."""
  source, target = tmp_path / 'Pong/1', tmp_path / 'out/1'
  logs = runs.write_run(source, runs.make_episodes(*[30] * 4), capacity)
  ring_logs.remove_shard(logs, 0)
  first = next(iter(episodes_test.read(source)))
  assert (len(first.action), first.begins_at_reset) == (steps, steps == 30)
  export(source, target)
  found = runs.transitions(target / 'replay_logs', stack_size=1)
  runs.assert_same(found, runs.transitions(logs, stack_size=1))
  assert run('compare', source, target)[0] == 0


@pytest.mark.parametrize('kind', observations.KINDS)
def test_the_result_is_a_log_of_the_same_columns(kind, tmp_path, run):
  source, target = tmp_path / 'worlds/1', tmp_path / 'out/1'
  columns = observations.write(source / 'replay_logs', kind, stack_size=2)
  arguments = '--format=shards', '--subset=shards(0,9)'
  document = run.document('export', source, target, *arguments)
  assert document['steps'] == 98 and document['truncated'] == 2
  found, kept = (
    json.loads((path / 'replay_logs' / manifests.FILE_NAME).read_text())
    for path in (target, source)
  )
  exported = found.pop('exported_from')
  assert exported == {'directory': str(source), 'hash': document['hash']}
  for name in ('format', 'truncated_rows', 'environment'):
    assert found[name] == kept[name]
  assert 'ok (3 shards' in run.output('verify', target)
  assert run('compare', source, target)[0] == 0
  read = list(episodes_test.read(target))
  for name in ('observation', 'action', 'reward'):
    column = np.concatenate([getattr(episode, name) for episode in read])
    np.testing.assert_array_equal(column, columns[name].astype(column.dtype))


@pytest.mark.parametrize(
  ('folder', 'game'),
  [('montezuma_revenge', 'MontezumaRevenge'), ('downloads', None)],
)
def test_shards_without_a_manifest_are_of_atari(tmp_path, folder, game):
  """Their returns before clipping are unknown."""
  logs = runs.write_run(tmp_path / folder / '1', runs.make_episodes(20, 30))
  (logs / manifests.FILE_NAME).unlink()
  export(tmp_path / folder / '1', tmp_path / 'out/1')
  manifest = manifests.read(str(tmp_path / 'out/1/replay_logs'))
  assert 'unclipped_return' not in manifest['episodes']
  assert 'unclipped_returns' not in manifest['shards'][0]['episodes']
  assert manifests.atari_if_known(manifest)
  assert manifest['environment']['game'] == game


@pytest.mark.parametrize('clipped', [True, False])
def test_imported_episodes_become_shards(tmp_path, run, clipped):
  folder = tmp_path / file_names.FOLDER / 'Pong'
  unplugged_files.write_run(folder, 1, (0, 1, 3), clipped=clipped)
  imported, target = tmp_path / 'store', tmp_path / 'Pong' / '1'
  assert run('import', folder, imported)[0] == 0
  document = run.document('export', imported, target, '--format=shards')
  assert document['game'] == 'Pong'
  assert run('verify', target)[0] == 0
  assert run.output('compare', imported, target).endswith('same transitions\n')
  manifest = manifests.read(str(target / 'replay_logs'))
  kept = manifests.read(str(imported))
  assert manifest['source'] == kept['source'] and manifest['agent'] == 'dqn'
  returns = [e['episodes'].get('unclipped_returns') for e in kept['shards']]
  (entry,) = manifest['shards']
  expected = None if clipped else sum(returns, [])
  assert entry['episodes'].get('unclipped_returns') == expected
  assert manifest['episodes']['return'] == kept['episodes']['return']
  # Its shards are not the source's.
  assert run('convert', target, tmp_path / 'converted')[0] == 0
  code, _, line = run('import', folder, tmp_path / 'converted')
  assert code == 2 and 'is a store of exported shards, not of' in line
