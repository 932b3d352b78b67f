"""Data and agents shared by the tests of offline training."""

import pytest


@pytest.fixture(scope='session')
def log_dir(tmp_path_factory):
  """Directory of two shards of CartPole."""
  from batch_rl.tests import cartpole

  directory = tmp_path_factory.mktemp('log')
  cartpole.write_log(directory)
  return directory


@pytest.fixture(scope='session')
def shared_agents(log_dir):
  """Returns a function that gives an agent in its first state (`SharedAgents`)."""
  from batch_rl.tests import cartpole

  return cartpole.SharedAgents(log_dir)
