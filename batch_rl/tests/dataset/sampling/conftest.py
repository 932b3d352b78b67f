import pytest

from batch_rl.tests import known_runs


@pytest.fixture(scope='session')
def opened(known_run):
  return known_runs.open_store(known_run.directory)
