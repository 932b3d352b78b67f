import os

import pytest

from batch_rl.dataset import run_directories
from batch_rl.dataset.shards import manifests, shard_files
from batch_rl.tests import shards


@pytest.fixture
def root(tmp_path):
  for run in ('Pong/1', 'Pong/10', 'Pong/2', 'Qbert/1'):
    shards.write_run(tmp_path / run / 'replay_logs', [30], 40)
  (tmp_path / 'README').write_text('not a run')
  return tmp_path


def names(runs):
  return [(run.game, run.name) for run in runs]


def test_runs_are_found_from_every_level(root, monkeypatch):
  pong = [('Pong', '1'), ('Pong', '2'), ('Pong', '10')]
  assert names(run_directories.find_runs(f'{root}/Pong/')) == pong
  for path in ('Pong/2', 'Pong/2/', 'Pong/2/replay_logs'):
    run = run_directories.as_run(str(root / path))
    assert names([run]) == [('Pong', '2')]
    assert shard_files.list_suffixes(run.data_dir) == [0]
  assert run_directories.as_run(str(root)) is None
  assert run_directories.as_run(str(root / 'Pong')) is None
  for inside, path in (('replay_logs', '.'), ('', 'replay_logs'), ('', '.')):
    monkeypatch.chdir(root / 'Pong' / '2' / inside)
    assert names([run_directories.as_run(path)]) == [('Pong', '2')]
  # A run hides none that are deeper. An unfinished one is none yet.
  others = 'copy', 'rem/Pong/1', 'too/many/levels/1', 'Pong/3.unfinished/made'
  for path in others:
    shards.write_run(root / path / 'replay_logs', [30], 40)
  found = run_directories.find_runs(root)
  games = ['Pong/1', 'Pong/2', 'Pong/10', 'Qbert/1', 'copy', 'rem/Pong/1']
  assert [os.path.relpath(run.directory, root) for run in found] == games


def test_data_to_train_on_are_complete_shards_of_one_run(root):
  logs = root / 'Pong/2/replay_logs'
  for path in (logs, logs.parent):
    assert run_directories.find_data(str(path)) == str(logs)
  (logs / shard_files.file_name('reward', 0)).unlink()
  with pytest.raises(ValueError, match='Shard 0 .*reward_ckpt.0.gz'):
    run_directories.find_data(str(logs))


def test_description_needs_no_rows(root):
  logs = root / 'Pong' / '2' / 'replay_logs'
  (logs / manifests.FILE_NAME).unlink()
  (root / 'Pong/10/replay_logs/add_count_ckpt.0.gz').unlink()
  (root / 'Pong/3').mkdir()
  (root / 'Pong/3/replay_logs').symlink_to('nowhere')
  runs = run_directories.find_runs(str(root / 'Pong'))
  found = run_directories.describe_runs(runs)
  # Only manifests have the rows.
  assert [run['rows'] for run in found] == [33, None, None, 33]
  assert [run['shards'] for run in found] == [1, 1, None, 1]
  assert {run['game'] for run in found} == {'Pong'}
  sizes = [path.stat().st_size for path in logs.iterdir()]
  assert found[1]['bytes'] == sum(sizes)


@pytest.mark.parametrize(
  'path, message',
  [
    ('', 'holds no run .found: README, a file, c'),
    ('a file', 'cannot be listed: Not a directory'),
    ('absent', 'cannot be listed: No such file or directory.$'),
    ('README/..', 'README/.. cannot be listed: Not a directory.$'),
    ('C', r'No such file or directory .did you mean c\?\).$'),
  ],
)
def test_missing_run_is_reported_in_one_line(tmp_path, path, message):
  for name in ('README', 'a file', 'c'):
    (tmp_path / name).write_text('')
  with pytest.raises(ValueError, match=message):
    run_directories.find_runs(str(tmp_path / path))


def test_a_log_that_is_not_closed_is_named(tmp_path):
  log = shards.make_log(tmp_path / 'run', 40)
  shards.add_row(log, shards.Row(1, 0, 0.0, 1))
  log.checkpoint()
  run = run_directories.as_run(str(tmp_path / 'run'))
  with pytest.raises(ValueError, match='the log is not closed'):
    shard_files.list_suffixes(run.data_dir)
  log.close()
  assert shard_files.list_suffixes(run.data_dir) == [0]
