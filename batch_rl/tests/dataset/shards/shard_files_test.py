"""Listings of shards, and messages for wrong directories."""

import os
import shutil

import pytest

from batch_rl.dataset.shards import shard_files
from batch_rl.tests import shards


def test_incomplete_shard_is_reported(tmp_path):
  shards.write_run(tmp_path, [60], capacity=40)
  os.remove(tmp_path / shard_files.file_name('reward', 1))
  with pytest.raises(ValueError, match='Shard 1 .*reward_ckpt.1.gz'):
    shard_files.list_suffixes(str(tmp_path))


def test_messages_name_the_likely_mistake(tmp_path):
  run = tmp_path / 'Pong' / '1'
  shards.write_run(run / 'replay_logs', [20], capacity=40)
  (tmp_path / 'Pong' / '2').mkdir()
  assert shard_files.replay_logs_dir(str(run)) == str(run / 'replay_logs')
  for path, message in (
    (run / 'replay_logs', 'give the run directory above'),
    (tmp_path / 'Pong', 'game directory with runs 1, 2'),
    (tmp_path, r'found: Pong'),
    (tmp_path / 'nowhere', 'No such file'),
  ):
    with pytest.raises(ValueError, match=message):
      shard_files.replay_logs_dir(str(path))
  shutil.rmtree(run / 'replay_logs')
  (run / 'replay_logs').mkdir()
  with pytest.raises(ValueError, match='the folder has no shards'):
    shard_files.replay_logs_dir(str(run))


@pytest.mark.parametrize('number', ['10000000000', '9' * 30, '²', '-1', ''])
def test_names_without_a_usable_number(tmp_path, number):
  name = f'add_count_ckpt.{number}.gz'
  assert shard_files.suffix_of(name) is None
  (tmp_path / name).touch()
  with pytest.raises(ValueError, match='No shards in'):
    shard_files.list_suffixes(str(tmp_path))
  for folder in ('²', '1'):
    (tmp_path / 'Pong' / folder).mkdir(parents=True)
  with pytest.raises(ValueError, match='game directory with runs 1; '):
    shard_files.replay_logs_dir(str(tmp_path / 'Pong'))
