"""Offline C51 against a slow NumPy version written from the paper."""

import gin
import numpy as np
import pytest
import tensorflow as tf
from dopamine.tf.agents.rainbow import rainbow_agent

from batch_rl.fixed_replay.agents import rainbow_agent as offline
from batch_rl.tests import cartpole


def project(rewards, discounts, probabilities, support):
  """Algorithm 1 of Bellemare et al. (2017), atom by atom, in float64."""
  delta = support[1] - support[0]
  projected = np.zeros((len(rewards), len(support)))
  for i, (reward, discount) in enumerate(zip(rewards, discounts, strict=True)):
    for j, atom in enumerate(support):
      moved = min(max(reward + discount * atom, support[0]), support[-1])
      b = (moved - support[0]) / delta
      lower, upper = int(np.floor(b)), int(np.ceil(b))
      if lower == upper:
        projected[i, lower] += probabilities[i, j]
      else:
        projected[i, lower] += probabilities[i, j] * (upper - b)
        projected[i, upper] += probabilities[i, j] * (b - lower)
  return projected


@pytest.mark.parametrize('num_atoms', [2, 11, 51])
def test_projection_is_that_of_the_paper(num_atoms):
  random = np.random.default_rng(0)
  support = np.linspace(-10, 10, num_atoms)
  rewards = random.choice([-30, -1, 0, 0.3, 1, 30], size=16)
  discounts = random.choice([0.0, 0.99, 0.970299], size=16)
  probabilities = random.dirichlet(np.ones(num_atoms), size=16)
  moved = rewards[:, None] + discounts[:, None] * support
  with tf.compat.v1.Session() as session:
    ours = session.run(
      rainbow_agent.project_distribution(
        *(tf.constant(a, tf.float32) for a in (moved, probabilities, support))
      )
    )
  expected = project(rewards, discounts, probabilities, support)
  np.testing.assert_allclose(ours, expected, atol=2e-5)
  np.testing.assert_allclose(ours.sum(axis=1), 1, rtol=1e-5)


@pytest.mark.parametrize('horizon', [1, 3])
def test_loss_is_that_of_the_paper(tmp_path, horizon):
  """Cross-entropy of the projected target at the target's greedy action."""
  # A seed whose first batch has terminals.
  gin.parse_config('run_seed.seed = 2')
  cartpole.write_log(tmp_path)
  agent = offline.FixedReplayRainbowAgent(
    None,
    num_actions=cartpole.NUM_ACTIONS,
    replay_data_dir=str(tmp_path),
    update_horizon=horizon,
    **cartpole.OBSERVATION,
    **cartpole.SMALL['c51'],
  )
  replay, online = agent._replay, agent._replay_net_outputs
  following = agent._replay_next_target_net_outputs
  loss, actions, rewards, terminals, logits, next_probabilities = (
    agent._sess.run(
      (
        agent._loss,
        replay.actions,
        replay.rewards,
        replay.terminals,
        online.logits,
        following.probabilities,
      )
    )
  )
  assert terminals.any()
  assert not terminals.all()
  support = np.linspace(-10, 10, logits.shape[2])
  total = 0.0
  for i in range(len(actions)):
    q_values = (next_probabilities[i] * support).sum(axis=1)
    target = project(
      rewards[i : i + 1],
      [0.0 if terminals[i] else 0.99**horizon],
      next_probabilities[i, q_values.argmax()][None],
      support,
    )[0]
    chosen = np.float64(logits[i, actions[i]])
    log_probabilities = chosen - np.log(np.exp(chosen).sum())
    total -= (target * log_probabilities).sum()
  assert loss == pytest.approx(total / len(actions), rel=1e-5)
