"""Short runs with frames of the sample, and all transitions of a run."""

import functools
import pathlib

import numpy as np

from batch_rl.dataset.sampling import sampler
from batch_rl.dataset.shards import replay_log, shard_files, shard_reader
from batch_rl.dataset.store import store

SAMPLE = pathlib.Path(__file__).parents[2] / 'data' / 'Pong' / '1'
ENVIRONMENT = {'game': 'Pong', 'num_actions': 6, 'frame_skip': 4}


@functools.cache
def sample_rows(count):
  """The first agent steps of the sample: observation, action, reward."""
  logs = str(SAMPLE / 'replay_logs')
  name = shard_files.file_name('observation', 0)
  frames = np.concatenate(
    [
      c.copy()
      for _, c in shard_reader.iterate_rows(f'{logs}/{name}', count + 3)
    ]
  )
  others = shard_reader.read_shard(logs, 0, ('action', 'reward')).columns
  rows = slice(3, count + 3)  # without the padding
  return frames[rows], others['action'][rows], others['reward'][rows]


def make_episodes(*lengths):
  """Episodes `(observation, action, reward)` of lengths, out of the sample.

  Rewards are rare there; these have one in the middle and one at the end.
  """
  observation, action, reward = sample_rows(sum(lengths))
  reward, start, found = reward.copy(), 0, []
  for length in lengths:
    part = slice(start, start + length)
    reward[start + length // 2] = 1
    reward[start + length - 1] = -1
    found.append((observation[part], action[part], reward[part]))
    start += length
  return found


def write_run(directory, episodes, capacity=100, how=None, **metadata):
  """Logs episodes; `how[i]` is 'cut' or 'late' (its beginning is missing)."""
  logs = pathlib.Path(directory) / 'replay_logs'
  log = replay_log.ReplayLog(
    str(logs),
    episodes[0][0].shape[1:],
    np.uint8,
    capacity,
    metadata={
      'agent': 'dqn',
      'seed': 7,
      'environment': ENVIRONMENT,
      **metadata,
    },
  )
  for i, (observation, action, reward) in enumerate(episodes):
    kind = (how or {}).get(i)
    for j in range(len(action)):
      last = j == len(action) - 1
      log.add(
        observation[j],
        action[j],
        reward[j],
        last and kind not in ('cut', 'open'),
        truncated=last and kind == 'cut',
        padded=kind != 'late',
      )
  log.close()
  return logs


def transitions(data_dir, stack_size=4, horizon=1):
  """All transitions of a run: state, action, reward, next state, terminal."""
  run = store.Store(str(data_dir))
  run.wait()
  draw = sampler.Sampler(run, stack_size, horizon, gamma=0.5)
  batch = draw.gather(draw.valid_rows())
  after = batch.steps[:, None] + np.arange(stack_size)
  following = batch.windows[np.arange(len(after))[:, None], after]
  following[batch.terminal != 0] = 0
  return {
    'state': batch.windows[:, :stack_size],
    'action': batch.action,
    'reward': batch.reward,
    'next_state': following,
    'terminal': batch.terminal,
  }


def stacks(observation, stack_size=4):
  """Stacks of an episode's frames, slowly: zeros before the first."""
  padding = np.zeros_like(observation[:1]).repeat(stack_size - 1, axis=0)
  padded = np.concatenate([padding, observation])
  return np.stack([padded[i : i + stack_size] for i in range(len(observation))])


def expected_transitions(episodes, how=None):
  """What `transitions` should give, written down from the definition."""
  parts = []
  for i, (observation, action, reward) in enumerate(episodes):
    kind, n = (how or {}).get(i), len(action)
    states = stacks(observation)
    after = np.concatenate([states[1:], np.zeros_like(states[:1])])
    first = 3 if kind == 'late' else 0
    stop = n - 1 if kind in ('cut', 'open') else n
    terminal = np.zeros(n, np.uint8)
    terminal[-1] = 1
    parts.append(
      [
        column[first:stop]
        for column in (states, action, reward, after, terminal)
      ]
    )
  names = ('state', 'action', 'reward', 'next_state', 'terminal')
  columns = [np.concatenate(c) for c in zip(*parts, strict=True)]
  return dict(zip(names, columns, strict=True))


def assert_same(found, expected):
  """Compares what `transitions` and `expected_transitions` return."""
  assert found.keys() == expected.keys() and len(expected['action']) > 0
  for name in expected:
    np.testing.assert_array_equal(found[name], expected[name], err_msg=name)
