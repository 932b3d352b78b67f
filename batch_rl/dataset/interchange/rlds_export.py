"""Exports a run as RLDS episodes in TFDS, with the features of `rlu_atari`.

Our format logs no observation after a terminal. So a terminated episode of n rows is
exported as n + 1 steps, the last frame being zeros. A truncated episode is exported as n
steps: in both formats only the observation of its last row is used.

TensorFlow and TFDS are imported on first use.
"""

import concurrent.futures
import contextlib
import functools
from collections.abc import Iterator
from typing import Any

import numpy as np

from batch_rl.dataset.imports import png_frames
from batch_rl.dataset.interchange import episode_export
from batch_rl.dataset.sampling import episodes
from batch_rl.utils import files, machine

_NAME, _VERSION = 'dqn_replay', '1.0.0'
_EPISODES_PER_FILE = 200  # some 100 to 400 MB


def opener() -> episode_export.OpenWriter:
  """Returns the opener of a dataset that `tfds.builder_from_directory` loads.

  `checkpoint_id` is the number of the shard in which an episode begins. Split
  `train` has all episodes in time order. GPUs are hidden from TensorFlow.

  Raises:
    ValueError: If TensorFlow or TFDS is not installed.
  """
  try:
    import tensorflow as tf
    import tensorflow_datasets as tfds
  except ImportError as error:
    raise ValueError(
      f'RLDS needs {error.name}: pip install ".[rlds]" in a clone of the package.'
    ) from None
  with contextlib.suppress(RuntimeError):  # TensorFlow is already initialised
    # TensorFlow would reserve the memory of a GPU that nothing here uses.
    tf.config.set_visible_devices([], 'GPU')
  return functools.partial(_open_writer, tfds)


@contextlib.contextmanager
def _open_writer(
  tfds: Any, reader: episodes.Reader, directory: str
) -> Iterator[episode_export.Writer]:
  """Opens a TFDS dataset; see `episode_export.OpenWriter`."""
  shape, dtype = reader.frame_shape, reader.frame_dtype
  if (shape, dtype) != (png_frames.FRAME_SHAPE, np.uint8):
    text = ' x '.join(map(str, shape)) or 'one number'
    raise ValueError(
      f'{reader.run.directory} has observations of {text} {dtype}; rlu_atari has '
      '84 x 84 uint8.'
    )
  info = _dataset_info(tfds, reader, directory)
  writer = tfds.core.SequentialWriter(info, _EPISODES_PER_FILE)
  writer.initialize_splits(['train'])
  with (
    files.remote_errors(directory, writes=True),
    concurrent.futures.ThreadPoolExecutor(machine.num_cpus()) as pool,
  ):

    def write(episode: episodes.Episode) -> int:
      writer.add_examples({'train': [_example(episode, pool)]})
      return len(episode.action)

    yield write, {'format': 'rlds'}
    writer.close_all()


def _dataset_info(tfds: Any, reader: episodes.Reader, directory: str) -> Any:
  from tensorflow_datasets.rl_unplugged import atari_utils

  environment = episode_export.environment_of(reader)
  # The importer asks for a game that is unknown.
  config = '_'.join(filter(None, [environment['game'], 'run', reader.run.name]))
  return tfds.core.DatasetInfo(
    builder=tfds.core.dataset_info.DatasetIdentity(
      name=_NAME,
      version=tfds.core.Version(_VERSION),
      data_dir=directory,
      module_name=__name__,
      config_name=config,
    ),
    description=(
      'A run of the DQN Replay Dataset, or in its format, with the features of '
      'rlu_atari. Rewards are as logged (clipped, in that dataset). The last step '
      'of an episode has a valid observation only. It is zeros if the episode '
      'terminated, because none was logged.'
    ),
    features=atari_utils.features_dict(),
    disable_shuffling=True,
    metadata=tfds.core.MetadataDict(
      {
        'source': reader.run.directory,
        'hash': reader.hash,
        'last_step': 'observation',
        'rewards': 'as logged',
        'steps': reader.rows,
        'agent': reader.agent,
        'environment': {'num_actions': reader.num_actions, **environment},
      }
    ),
  )


def _example(
  episode: episodes.Episode, pool: concurrent.futures.ThreadPoolExecutor
) -> dict[str, Any]:
  """Returns an episode with the features of `rlu_atari`, observations as PNG."""
  # The observation after a terminal was never logged: a frame of zeros.
  extra = int(episode.ended)
  frames = list(pool.map(png_frames.encode_png, episode.observation))
  blank = np.zeros(png_frames.FRAME_SHAPE, np.uint8)
  frames += [png_frames.encode_png(blank)] * extra
  step = np.arange(len(frames))
  is_last = step == step[-1]
  return {
    'steps': {
      'observation': frames,
      'action': np.pad(episode.action, (0, extra)).astype(np.int64),
      'reward': np.pad(episode.reward, (0, extra)),
      'discount': (step < len(step) - 2 * extra).astype(np.float32),
      'is_first': (step == 0) & episode.begins_at_reset,
      'is_last': is_last,
      'is_terminal': is_last & episode.ended,
    },
    'checkpoint_id': episode.shard,
    'episode_id': episode.number,
    'episode_return': float(episode.reward.sum(dtype=np.float64)),
  }
