import pytest
from dopamine.tf.agents.dqn import dqn_agent  # noqa: F401, selects graph mode

from batch_rl.tests import cartpole, correctness


@pytest.fixture(scope='session')
def make_agent():
  """Returns a function that builds an agent for CartPole on a fixed batch."""

  def make(agent_class, num_actions=3, **kwargs):
    batch = correctness.make_batch(num_actions, 5)
    test_class = type(
      'Test', (correctness.FixedBatch, agent_class), {'batch': batch}
    )
    with cartpole.small_layers():
      return test_class(
        None, num_actions, **cartpole.OBSERVATION, epsilon_eval=0.0, **kwargs
      )

  return make
