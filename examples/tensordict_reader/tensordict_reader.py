"""TorchRL's TensorDicts. To read some: python tensordict_reader.py data/Pong/1."""

import itertools
import sys

import tensordict

import batch_rl.dataset
from batch_rl.dataset import torch as torch_data


def transitions(sampler, batch_size=32):
  """Yields batches with the keys of TorchRL's losses, e.g. `DiscreteCQLLoss`."""
  for batch in torch_data.TransitionDataset(sampler, batch_size):
    terminated = batch.terminal[:, None]
    yield tensordict.TensorDict(
      {
        'observation': batch.state,
        'action': batch.action,
        'next': {
          'observation': batch.next_state,
          'reward': batch.reward[:, None],
          'terminated': terminated,
          'done': terminated,
        },
      },
      batch_size=[batch_size],
    )


if __name__ == '__main__':
  run = batch_rl.dataset.open(sys.argv[1])
  for batch in itertools.islice(transitions(run.transitions(seed=1)), 3):
    print(batch)
