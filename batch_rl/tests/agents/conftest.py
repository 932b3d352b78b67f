"""Data shared by the tests of agents."""

import pytest


@pytest.fixture(scope='session')
def log_dir(tmp_path_factory):
  """Directory of two shards of CartPole."""
  from batch_rl.tests import cartpole

  directory = tmp_path_factory.mktemp('log')
  cartpole.write_log(directory)
  return directory
