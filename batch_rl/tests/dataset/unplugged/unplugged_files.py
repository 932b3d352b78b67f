"""Files in the format of RL Unplugged's `atari_episodes_ordered`, by TensorFlow.

TensorFlow writes the records and the protobufs, and OpenCV the images, so that our
reader is tested against other writers.
"""

import pathlib
from typing import NamedTuple

import cv2
import numpy as np
import tensorflow as tf

from batch_rl.dataset.unplugged import file_names


class Episode(NamedTuple):
  """The n logged rows of an episode; a plain tuple will do, too."""

  observation: np.ndarray  # uint8 (n, 84, 84)
  action: np.ndarray
  reward: np.ndarray  # not clipped


def random_episodes(*lengths, seed=0):
  """Returns episodes of given lengths: smooth frames, some rewards beyond 1.

  The last reward is not zero, which tells whether terminal steps are transitions.
  """
  rng = np.random.default_rng(seed)
  made = []
  for n in lengths:
    coarse = rng.integers(0, 256, (n, 7, 7), np.uint8)
    frames = [cv2.resize(c, (84, 84)) for c in coarse]
    reward = rng.choice([-3.0, -1.0, 0.0, 0.0, 0.0, 1.0, 4.0], n)
    reward[-1] = rng.choice([-1.0, 2.0])
    made.append(Episode(np.stack(frames), rng.integers(0, 18, n), reward))
  return made


def encode_png(frame):
  """Returns a frame, uint8 (84, 84), as PNG."""
  options = [cv2.IMWRITE_PNG_COMPRESSION, 6]  # the level of TFDS
  return cv2.imencode('.png', frame, options)[1].tobytes()


def features(
  episode, checkpoint=0, number=0, last_step='transition', clipped=True
):
  """Returns the values of an episode's features.

  Args:
    episode: An `Episode`, or `(observation, action, reward)`.
    checkpoint: Number of the checkpoint.
    number: Number of the episode in its file.
    last_step: 'transition' stores the logged rows as they are. 'observation' adds a
      step whose action and reward mean nothing, and are not part of the returns.
    clipped: Whether the "unclipped" rewards are in fact clipped, as TFDS notes of
      the published files.
  """
  observation, action, reward = episode
  reward = np.asarray(reward, np.float64)
  if clipped:
    reward = np.clip(reward, -1, 1)
  returns = reward.sum(), np.clip(reward, -1, 1).sum()
  if last_step == 'observation':
    observation = np.concatenate([observation, 200 + 0 * observation[:1]])
    action, reward = np.append(action, 3), np.append(reward, 1)
  discount = np.ones(len(action))
  discount[-1] = 0
  return {
    'checkpoint_idx': [checkpoint],
    'episode_idx': [number],
    'episode_return': [float(returns[0])],
    'clipped_episode_return': [float(returns[1])],
    'observations': [encode_png(frame) for frame in observation],
    'actions': np.asarray(action).tolist(),
    'unclipped_rewards': reward.tolist(),
    'clipped_rewards': np.clip(reward, -1, 1).tolist(),
    'discounts': discount.tolist(),
  }


def serialize(values):
  """Returns features as a serialised `tf.train.Example`; types by the values."""

  def feature(entries):
    if entries and isinstance(entries[0], bytes):
      return tf.train.Feature(bytes_list=tf.train.BytesList(value=entries))
    if entries and isinstance(entries[0], int):
      return tf.train.Feature(int64_list=tf.train.Int64List(value=entries))
    return tf.train.Feature(float_list=tf.train.FloatList(value=entries))

  made = {name: feature(entries) for name, entries in values.items()}
  example = tf.train.Example(features=tf.train.Features(feature=made))
  return example.SerializeToString(deterministic=True)


def write_records(path, records, compression='GZIP'):
  """Writes a TFRecord file, with compression '' for none; returns its path."""
  pathlib.Path(path).parent.mkdir(parents=True, exist_ok=True)
  with tf.io.TFRecordWriter(str(path), compression) as writer:
    for record in records:
      writer.write(record)
  return str(path)


def write_file(path, episodes, checkpoint=0, **options):
  """Writes a checkpoint with options of `features`; returns the file's path."""
  records = (
    serialize(features(episode, checkpoint, number, **options))
    for number, episode in enumerate(episodes)
  )
  return write_records(path, records)


def write_run(folder, run=1, checkpoints=(0,), first_checkpoint=0, **options):
  """Writes files of three random episodes, of 30, 20 and 25 rows; returns their paths.

  The checkpoint of file 0 is `first_checkpoint`. Options are those of `features`.
  """
  folder = pathlib.Path(folder)
  count = file_names.count_of(folder.name)
  paths = []
  for k in checkpoints:
    path = folder / file_names.format(run, k, count)
    episodes = random_episodes(30, 20, 25, seed=100 * run + k)
    paths.append(write_file(path, episodes, first_checkpoint + k, **options))
  return paths
