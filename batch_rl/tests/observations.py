"""Logs of observations of many shapes and dtypes, as a user would write them."""

import numpy as np

from batch_rl.dataset import ReplayLog

# Shape and dtype of an observation by its name.
KINDS = {
  'vector': ((4,), np.float64),
  'number': ((), np.int64),
  'planes': ((10, 10, 4), np.uint8),
  'flags': ((10, 10, 4), np.bool_),
  'image': ((84, 84), np.float32),
  'large': ((5, 5, 12), np.float16),
}
NUM_ACTIONS = 25


def make(kind, step, random):
  """Returns an observation; that of an episode's first step is all zero."""
  shape, dtype = KINDS[kind]
  high = 1 if dtype == np.bool_ or kind == 'planes' else 100
  return (random.integers(0, high + 1, shape) * (step > 0)).astype(dtype)


def write(directory, kind, lengths=(12, 30, 9, 21, 26), capacity=40, **kwargs):
  """Logs episodes of `lengths` steps, each other one truncated.

  Returns all rows without padding, `{column: (n, ...)}`, and `last`, bool (n,),
  whether a row ends a truncated episode. Keywords are those of `ReplayLog`.
  """
  random = np.random.default_rng(0)
  metadata = {'environment': {'game': f'World of {kind}s'}}
  rows, arguments = [], (str(directory), *KINDS[kind], capacity)
  with ReplayLog(*arguments, metadata=metadata, **kwargs) as log:
    for number, length in enumerate(lengths):
      for step in range(length):
        last = step == length - 1
        observation = make(kind, step, random)
        action, reward = random.integers(NUM_ACTIONS), random.uniform(-9, 1)
        ends = last and number % 2 == 0, last and number % 2 == 1
        row = observation, action, reward, *ends
        log.add(*row)
        rows.append(row)
  names = ('observation', 'action', 'reward', 'terminal', 'last')
  return dict(zip(names, map(np.array, zip(*rows, strict=True)), strict=True))
