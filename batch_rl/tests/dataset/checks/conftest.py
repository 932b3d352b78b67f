import pytest

from batch_rl.tests import shards
from batch_rl.tests.dataset.checks import run_files


@pytest.fixture
def logs(tmp_path):
  """Three episodes of 30 steps in shards 0, 1 and the partial 2, with a manifest."""
  directory = tmp_path / 'replay_logs'
  shards.write_run(directory, [30, 30, 30], run_files.CAPACITY)
  return directory
