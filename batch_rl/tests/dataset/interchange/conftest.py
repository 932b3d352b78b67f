import pytest

from batch_rl.tests import ring_logs, shards

CAPACITY = 40


@pytest.fixture
def original(tmp_path):
  """Shards 0, 1 and the final, partial 2, as the original logger wrote them."""
  folder = tmp_path / 'original'
  rows = shards.with_padding(shards.make_episodes([30, 30, 30]), 4)
  ring_logs.write_run(folder, rows, CAPACITY)
  return folder
