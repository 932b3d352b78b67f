"""Dopamine's JAX agents and buffers; the import of JAX takes seconds."""

import batch_rl.agents  # noqa: F401  isort: skip  (before Dopamine)

import pathlib
import runpy

import numpy as np
from dopamine.discrete_domains import atari_lib
from dopamine.jax.replay_memory import accumulator, replay_buffer, samplers
from dopamine.jax.replay_memory import elements as elements_lib
from dopamine.labs.offline_rl import fixed_replay
from flax import linen

from batch_rl.fixed_replay.replay_memory import fixed_replay_buffer

BUFFERS = {
  'dopamines': fixed_replay.JaxFixedReplayBuffer,
  'ours': fixed_replay_buffer.FixedReplayBuffer,
}


class TinyNetwork(linen.Module):
  """A network that sees few pixels; JAX compiles Dopamine's for seconds."""

  num_actions: int

  @linen.compact
  def __call__(self, x):
    pixels = x[::8, ::8].astype(np.float32).reshape(-1) / 255
    return atari_lib.DQNNetworkType(linen.Dense(self.num_actions)(pixels))


EXAMPLES = pathlib.Path(__file__).parents[3] / 'examples'
EXAMPLE = runpy.run_path(str(EXAMPLES / 'jax_agent/jax_agent.py'))
OfflineJaxDQNAgent = EXAMPLE['OfflineJaxDQNAgent']


def dopamines_sample():
  """Returns a batch of Dopamine's JAX replay memory, and its metadata."""
  memory = replay_buffer.ReplayBuffer(
    accumulator.TransitionAccumulator(4, 1, gamma=0.5),
    samplers.UniformSamplingDistribution(seed=0),
    batch_size=16,
    max_capacity=1000,
  )
  for step in range(8):
    row = np.full((2, 2), step, np.uint8), 1, 0.5, step == 7, step == 7
    memory.add(elements_lib.TransitionElement(*row))
  return memory.sample(with_sample_metadata=True)
