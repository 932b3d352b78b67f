"""d3rlpy's DQN on batches of a run: python d3rlpy_dqn.py data/Pong/1 [UPDATES]."""

import sys

import d3rlpy
import numpy as np

import batch_rl.dataset


def transitions(batch):
  """Returns a `sampler.Batch` as one of d3rlpy."""

  def column(values):
    return np.asarray(values, np.float32)[:, None]

  action = column(batch.action)
  return d3rlpy.dataset.TransitionMiniBatch(
    observations=batch.state.astype(np.float32),
    actions=action,
    rewards=column(batch.reward),
    next_observations=batch.next_state.astype(np.float32),
    next_actions=np.zeros_like(action),  # for algorithms like SARSA only
    terminals=column(batch.terminal),
    intervals=column(batch.steps),
    transitions=[],  # for algorithms that need returns to go only
  )


def main(directory, updates):
  run = batch_rl.dataset.open(directory)
  sampler = run.transitions(stack_size=4, gamma=0.99, seed=1)
  config = d3rlpy.algos.DQNConfig(
    gamma=0.99, observation_scaler=d3rlpy.preprocessing.PixelObservationScaler()
  )
  dqn = config.create(device='cpu')
  dqn.create_impl((4, 84, 84), int(run.store.action.max()) + 1)
  for update in range(updates):
    metrics = dqn.update(transitions(sampler.batch(update, 32)))
    if update % 100 == 0:
      print(update, metrics)


if __name__ == '__main__':
  main(sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 1_000_000)
