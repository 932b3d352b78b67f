"""A run that no test changes."""

import pytest

from batch_rl.tests import known_runs


@pytest.fixture(scope='session')
def known_run(tmp_path_factory):
  """A run of five shards."""
  directory = tmp_path_factory.mktemp('known')
  return known_runs.write_run(directory, [30, 25, 40, 11, 60, 33], 50)


@pytest.fixture(scope='session')
def opened(known_run):
  return known_runs.open_store(known_run.directory)
