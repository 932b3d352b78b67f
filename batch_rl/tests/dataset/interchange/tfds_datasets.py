"""TFDS datasets of RLDS episodes, written and read by TFDS itself."""

import numpy as np
import tensorflow_datasets as tfds
from tensorflow_datasets.rl_unplugged import atari_utils


def raw_episode(episode, terminated=True, number=0, checkpoint=0):
  """Returns an episode as TFDS takes it: as RL Unplugged, one step for each row."""
  observation, action, reward = episode
  total = float(reward.sum())
  n = len(action)
  first, last = np.arange(n) == 0, np.arange(n) == n - 1
  discount = np.ones(n, np.float32)
  if terminated:
    discount[-2:] = 0
  return {
    'steps': {
      'observation': list(observation[..., None]),
      'action': action.astype(np.int64),
      'reward': reward.astype(np.float32),
      'discount': discount,
      'is_first': first,
      'is_last': last,
      'is_terminal': last & terminated,
    },
    'checkpoint_id': checkpoint,
    'episode_id': number,
    'episode_return': total,
  }


def build(
  directory,
  splits,
  features=None,
  name='rlu_atari_checkpoints_ordered',
  config='Pong_run_3',
  ordered=True,
):
  """Writes splits, `{name: [episode, ...]}`; returns the version's directory."""
  builder = tfds.dataset_builders.store_as_tfds_dataset(
    name,
    '1.1.0',
    features or atari_utils.features_dict(),
    {
      split: [
        (i if ordered else f'{split}_{i}', episode)
        for i, episode in enumerate(episodes)
      ]
      for split, episodes in splits.items()
    },
    config=config,
    data_dir=str(directory),
    disable_shuffling=ordered,
  )
  return builder.data_dir


def read_steps(directory, split='train'):
  """Returns the dataset's info and all episodes, each with its steps as arrays."""
  builder = tfds.builder_from_directory(str(directory))
  found = []
  config = tfds.ReadConfig(interleave_cycle_length=1)
  for example in builder.as_dataset(split=split, read_config=config):
    steps = list(example['steps'].as_numpy_iterator())
    columns = {key: np.array([s[key] for s in steps]) for key in steps[0]}
    rest = {k: v.numpy() for k, v in example.items() if k != 'steps'}
    found.append((columns, rest))
  return builder.info, found
