"""Agents shared by the tests of offline training."""

import pytest


@pytest.fixture(scope='session')
def shared_agents(log_dir):
  """Returns a function that gives an agent in its first state (`SharedAgents`)."""
  from batch_rl.tests import cartpole

  return cartpole.SharedAgents(log_dir)
