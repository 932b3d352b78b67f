import pytest

from batch_rl.tests import shards


@pytest.fixture
def root(tmp_path):
  """Root of a dataset with the runs Pong/1 and Pong/2, of two shards each."""
  for run in ('1', '2'):
    logs = tmp_path / 'Pong' / run / 'replay_logs'
    shards.write_run(logs, [30, 30], 40, environment={'game': 'Pong'})
  return tmp_path
