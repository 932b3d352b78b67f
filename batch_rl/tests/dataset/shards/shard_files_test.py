import pytest

from batch_rl.dataset import run_directories
from batch_rl.dataset.shards import shard_files


@pytest.mark.parametrize('number', ['10000000000', '9' * 30, '²', '-1', ''])
def test_names_without_a_usable_number(tmp_path, number):
  name = f'add_count_ckpt.{number}.gz'
  assert shard_files.suffix_of(name) is None
  (tmp_path / name).touch()
  with pytest.raises(ValueError, match='No shards in'):
    shard_files.list_suffixes(str(tmp_path))


def test_remote_shards_are_to_be_fetched():
  for read in (shard_files.list_suffixes, run_directories.find_data):
    with pytest.raises(ValueError, match='gs://bucket/dqn is remote; fetch it'):
      read('gs://bucket/dqn')
