"""Short runs with frames of the sample, and the transitions expected of them."""

import functools
import pathlib

import numpy as np

from batch_rl.dataset.sampling import sampler
from batch_rl.dataset.shards import replay_log, shard_files, shard_reader
from batch_rl.tests import known_runs, shards

SAMPLE = pathlib.Path(__file__).parents[2] / 'data' / 'Pong' / '1'
# Lengths of the episodes of a typical run.
LENGTHS = (60, 45, 80, 30)
ENVIRONMENT = {'game': 'Pong', 'num_actions': 6, 'frame_skip': 4}


@functools.cache
def sample_rows(count):
  """Returns the first agent steps of the sample: observation, action, reward."""
  logs = str(SAMPLE / 'replay_logs')
  name = shard_files.file_name('observation', 0)
  chunks = shard_reader.iterate_rows(f'{logs}/{name}', count + 3)
  frames = np.concatenate([chunk.copy() for _, chunk in chunks])
  others = shards.read_shard(logs, 0, ('action', 'reward'))
  rows = slice(3, count + 3)  # without the padding
  return frames[rows], others['action'][rows], others['reward'][rows]


def make_episodes(*lengths):
  """Returns episodes `(observation, action, reward)` of given lengths.

  Frames and actions are the sample's. Each episode has a reward of 1 in the middle
  and of -1 at the end, because rewards are rare in the sample.
  """
  observation, action, reward = sample_rows(sum(lengths))
  action, reward, start, episodes = action.copy(), reward.copy(), 0, []
  for length in lengths:
    part = slice(start, start + length)
    reward[start + length // 2] = 1
    reward[start + length - 1] = -1
    episodes.append((observation[part], action[part], reward[part]))
    start += length
  return episodes


def write_run(directory, episodes, capacity=100, kinds=None, **metadata):
  """Logs episodes of `make_episodes` as a run; returns the folder of its shards.

  `kinds` has the kind of some episodes: 'truncated', 'late' (its beginning is
  missing) or 'open' (the run ends within it). Metadata goes to the manifest.
  """
  logs = pathlib.Path(directory) / 'replay_logs'
  metadata = {'agent': 'dqn', 'seed': 7, 'environment': ENVIRONMENT, **metadata}
  arguments = logs, episodes[0][0].shape[1:], np.uint8, capacity
  with replay_log.ReplayLog(*arguments, metadata=metadata) as log:
    for i, episode in enumerate(episodes):
      kind = (kinds or {}).get(i)
      for j, row in enumerate(zip(*episode, strict=True), 1):
        last = j == len(episode[1])
        terminal = last and kind not in ('truncated', 'open')
        truncated = last and kind == 'truncated'
        log.add(*row, terminal, truncated=truncated, padded=kind != 'late')
  return logs


def transitions(data_dir, stack_size=4, horizon=1):
  """Reads all transitions of a run by column, e.g. `state` and `next_state`."""
  run = known_runs.open_store(data_dir)
  draw = sampler.Sampler(run, stack_size, horizon, gamma=0.5)
  batch = draw.gather(draw.valid_rows())
  after = batch.steps[:, None] + np.arange(stack_size)
  following = batch.windows[np.arange(len(after))[:, None], after]
  following[batch.terminal != 0] = 0
  states = {'state': batch.windows[:, :stack_size], 'next_state': following}
  names = 'action', 'reward', 'terminal'
  return states | {name: getattr(batch, name) for name in names}


def stacks(observation, stack_size=4):
  """Stacks an episode's frames one by one, with zeros before the first."""
  padding = np.zeros_like(observation[:1]).repeat(stack_size - 1, axis=0)
  padded = np.concatenate([padding, observation])
  return np.stack([padded[i : i + stack_size] for i in range(len(observation))])


def expected_transitions(episodes, kinds=None):
  """Returns the transitions of episodes, transcribed from their definition."""
  parts = []
  for i, (observation, action, reward) in enumerate(episodes):
    kind, n = (kinds or {}).get(i), len(action)
    states = stacks(observation)
    after = np.concatenate([states[1:], np.zeros_like(states[:1])])
    first = 3 if kind == 'late' else 0
    stop = n - 1 if kind in ('truncated', 'open') else n
    terminal = np.zeros(n, np.uint8)
    terminal[-1] = 1
    columns = (states, action, reward, after, terminal)
    parts.append([column[first:stop] for column in columns])
  names = ('state', 'action', 'reward', 'next_state', 'terminal')
  columns = [np.concatenate(c) for c in zip(*parts, strict=True)]
  return dict(zip(names, columns, strict=True))


def assert_same(found, expected):
  """Compares the results of `transitions` and `expected_transitions`."""
  assert len(expected['action']) > 0
  np.testing.assert_equal(found, expected)
