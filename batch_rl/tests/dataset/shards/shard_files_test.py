"""Listings of shards, and messages for wrong directories."""

import os
import shutil

import pytest

from batch_rl.dataset.shards import shard_files
from batch_rl.tests import shards


def test_messages_name_the_likely_mistake(tmp_path):
  run = tmp_path / 'Pong' / '1'
  logs = run / 'replay_logs'
  shards.write_run(logs, [60], capacity=40)
  for folder in ('2', '²'):
    (tmp_path / 'Pong' / folder).mkdir()
  assert shard_files.replay_logs_dir(str(run)) == str(logs)
  for path, message in (
    (logs, f'run directory above it .{run}'),
    (tmp_path / 'Pong', 'runs 1, 2;'),
    (tmp_path, 'found: Pong'),
    (tmp_path / 'nowhere', 'No such file'),
  ):
    with pytest.raises(ValueError, match=message):
      shard_files.replay_logs_dir(str(path))
  os.remove(logs / shard_files.file_name('reward', 1))
  with pytest.raises(ValueError, match='Shard 1 .*reward_ckpt.1.gz'):
    shard_files.replay_logs_dir(str(run))
  shutil.rmtree(logs)
  logs.mkdir()
  with pytest.raises(ValueError, match='No shards'):
    shard_files.replay_logs_dir(str(run))


@pytest.mark.parametrize('number', ['10000000000', '9' * 30, '²', '-1', ''])
def test_names_without_a_usable_number(tmp_path, number):
  name = f'add_count_ckpt.{number}.gz'
  assert shard_files.suffix_of(name) is None
  (tmp_path / name).touch()
  with pytest.raises(ValueError, match='No shards in'):
    shard_files.list_suffixes(str(tmp_path))


def test_remote_shards_are_to_be_fetched():
  for read in (shard_files.list_suffixes, shard_files.replay_logs_dir):
    with pytest.raises(ValueError, match='gs://bucket/dqn is remote; fetch it'):
      read('gs://bucket/dqn')
