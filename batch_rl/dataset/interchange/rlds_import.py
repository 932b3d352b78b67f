"""Imports TFDS datasets of RLDS episodes with the features of `rlu_atari`."""

import contextlib
import hashlib
import json
import os
import re
from collections.abc import Iterator
from typing import Any

import numpy as np

from batch_rl.dataset.imports import episode_import, png_frames
from batch_rl.dataset.interchange import rlds_format
from batch_rl.dataset.shards import manifests
from batch_rl.utils import files, number_ranges

_CHECKPOINT_SPLIT = re.compile(r'checkpoint_(\d+)')


class RldsReader(episode_import.EpisodeReader):
  """Reads a TFDS dataset of Atari episodes.

  Args:
    directory: Directory with `dataset_info.json`; local or remote.
    checkpoints: Numbers of the splits `checkpoint_00`, ..., e.g. '0-9'; None for
      all splits.

  Raises:
    ValueError: If the dataset or a split is missing, or has other features.
  """

  frame_shape = png_frames.FRAME_SHAPE

  def __init__(self, directory: str, checkpoints: str | None = None):
    self.directory = directory.rstrip('/')
    _check_directory(self.directory)
    self._tfds = rlds_format.import_tfds()
    try:
      self._builder = self._tfds.builder_from_directory(self.directory)
      self._info = info = self._builder.info
    except Exception as error:  # TFDS passes on errors of any kind
      raise ValueError(
        f'{directory} cannot be read by TFDS: {_first_line(error)}'
      ) from error
    names = self._check_features()
    self._rewards = 'clipped_reward' if 'clipped_reward' in names else 'reward'
    self.has_unclipped = self._rewards != 'reward'
    splits = self._order_splits()
    if checkpoints is not None:
      splits = self._choose_splits(splits, checkpoints)
    self.parts = [
      episode_import.Part(i, name, count, 'episodes')
      for i, (name, count) in enumerate(splits.items())
    ]
    self.num_bytes = sum(split.num_bytes for split in info.splits.values())
    self.name = info.full_name  # name/configuration/version

    metadata = dict(info.metadata or {})
    config = rlds_format.CONFIG.fullmatch(info.config_name or '')
    named = manifests.look_up(metadata, 'environment', 'game', kind=str)
    self.game = named or (config and config['game'])
    self.run = config['run'] if config else '1'
    self.shard_rows = manifests.look_up(metadata, 'shard_capacity', kind=int)
    self.last_step = manifests.look_up(metadata, 'last_step', kind=str)
    self.manifest = {
      'agent': metadata.get('agent'),
      'environment': metadata.get('environment') or {},
      'source': {
        'format': 'rlds',
        'directory': self.directory,
        'name': self.name,
        'version': str(info.version),
        'splits': splits,
        'order': 'time' if info.disable_shuffling else 'as stored',
      },
    }
    if info.name.startswith('rlu_atari'):
      # According to the dataset's description.
      self.manifest['agent'] = 'dqn'
      self.manifest['environment'] |= {
        'repeat_action_probability': 0.25,
        'frame_skip': 4,
      }

  def _check_features(self) -> list[str]:
    """Checks the features; returns the names of a step's features."""
    features = self._info.features
    nested = features['steps'] if 'steps' in features else None
    steps = getattr(nested, 'feature', {})
    names = sorted(steps) if hasattr(steps, 'keys') else []
    prefix = f'{self.directory} has other features than rlu_atari'
    needed = ['observation', *rlds_format.STEP_SCALARS]
    if missing := sorted(set(needed) - set(names)):
      raise ValueError(
        f'{prefix}: its steps have no {", ".join(missing)}, but '
        f'{", ".join(names) or "no names"}.'
      )
    for name in needed:
      dtype, shape = np.dtype(steps[name].np_dtype), tuple(steps[name].shape)
      if name == 'observation':
        frame, wanted = self.frame_shape, 'uint8 (84, 84, 1)'
        fits = dtype == np.uint8 and shape in (frame, (*frame, 1))
      else:
        wanted = f'a number of kind {rlds_format.STEP_SCALARS[name]}'
        fits = dtype.kind in rlds_format.STEP_SCALARS[name] and not shape
      if not fits:
        raise ValueError(f'{prefix}: {name} is {dtype} {shape}, not {wanted}.')
    return names

  def _order_splits(self) -> dict[str, int]:
    """Returns the number of episodes by split; checkpoints come in order."""
    counts = {name: s.num_examples for name, s in self._info.splits.items()}
    if not sum(counts.values()):
      raise ValueError(f'{self.directory} has no episodes.')

    def key(name):
      number = _checkpoint_of(name)
      return (number is None, number or 0)

    return {name: counts[name] for name in sorted(counts, key=key)}

  def _choose_splits(
    self, splits: dict[str, int], checkpoints: str
  ) -> dict[str, int]:
    """Returns the splits of some checkpoints."""
    numbers = number_ranges.parse(checkpoints, '--checkpoints')
    chosen = {
      name: count
      for name, count in splits.items()
      if _checkpoint_of(name) in numbers
    }
    if not sum(chosen.values()):
      names = list(splits)
      raise ValueError(
        f'{self.directory} has no checkpoints {checkpoints}; its splits are '
        f'{names[0]}{" to " + names[-1] if names[1:] else ""}.'
      )
    return chosen

  def fingerprint(self) -> str:
    """Returns a hash of the dataset's description and the splits, in hex."""
    content = {
      'info': self._info.as_json,
      'splits': {part.name: part.size for part in self.parts},
    }
    text = json.dumps(content, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()

  def read(
    self, part: episode_import.Part, first: int = 0, frames: bool = True
  ) -> Iterator[episode_import.StoredEpisode]:
    """See the base class."""
    tfds, split = self._tfds, part.name
    try:
      if self._info.file_format.value == 'tfrecord':
        for path in self._info.splits[split].filepaths:
          _check_records(os.fspath(path))
      examples = self._builder.as_dataset(
        split=f'{split}[{first}:]',
        shuffle_files=False,
        read_config=tfds.ReadConfig(
          interleave_cycle_length=1, try_autocache=False, skip_prefetch=True
        ),
        # Steps stay columns with encoded images, decoded later on all cores.
        decoders={'steps': tfds.decode.SkipDecoding()},
      )
      for number, example in enumerate(examples, first):
        yield self._parse(split, number, example, frames)
    except ValueError:
      raise
    except Exception as error:  # TensorFlow's, for damaged or remote files
      raise ValueError(
        f'{self.directory}, split {split}: {_first_line(error)}'
      ) from error

  def _parse(
    self, split: str, number: int, example: dict[str, Any], with_frames: bool
  ) -> episode_import.StoredEpisode:
    """Converts an example, with its images or without them."""
    name = f'episode {number} of split {split} in {self.directory}'
    columns = {
      key: example['steps'][key].numpy()
      for key in {*rlds_format.STEP_SCALARS, self._rewards}
    }
    action, reward = columns['action'], columns['reward']
    if not len(action):
      raise ValueError(f'Invalid dataset: {name} has no steps.')
    for key in ('is_last', 'is_terminal'):
      if columns[key][:-1].any():
        raise ValueError(f'Invalid dataset: {name} continues after {key}.')
    if columns['is_first'][1:].any():
      raise ValueError(
        f'Invalid dataset: {name} has is_first after its first step.'
      )
    if action.min() < 0 or action.max() > 17 or not np.isfinite(reward).all():
      raise ValueError(
        f'Invalid dataset: {name} has invalid actions or rewards.'
      )
    frames: episode_import.Frames | None = None
    if with_frames:
      observation = example['steps']['observation'].numpy()
      if observation.dtype == object:  # encoded
        frames = png_frames.PngFrames(name, observation)
      else:
        frames = episode_import.DecodedFrames(
          observation.reshape(-1, *self.frame_shape)
        )

    def scalar(key, kind):
      return kind(example[key].numpy()) if key in example else None

    checkpoint = _checkpoint_of(split)
    if checkpoint is None:
      checkpoint = scalar('checkpoint_id', int)
    return episode_import.StoredEpisode(
      name,
      checkpoint,
      bool(columns['is_first'][0]),
      bool(columns['is_terminal'][-1]),
      action.astype(np.int32),
      np.clip(columns[self._rewards], -1, 1).astype(np.float32),
      reward.astype(np.float32),
      scalar('episode_return', float),
      frames,
      number + 1,
    )


def _check_directory(directory: str) -> None:
  if rlds_format.is_dataset(directory):
    return
  names: list[str] = []
  with contextlib.suppress(ValueError, OSError):  # missing or unreadable
    names = files.list_directory(directory)
  raise ValueError(
    f'{directory} is not a TFDS directory: it has no dataset_info.json '
    f'(found: {files.format_names(names)}); give the directory of a version, e.g. '
    'rlu_atari/Pong_run_1/1.3.0.'
  )


def _check_records(path: str) -> None:
  """Checks the lengths of a local file's records; TensorFlow allocates any.

  Raises:
    ValueError: If a record is longer than the file.
  """
  if files.is_remote(path):
    return
  with open(path, 'rb') as file:
    size = os.fstat(file.fileno()).st_size
    while head := file.read(12):  # Length and its checksum.
      # Another checksum follows.
      end = file.tell() + int.from_bytes(head[:8], 'little') + 4
      if len(head) < 12 or end > size:
        raise ValueError(f'{path} is damaged: it ends within a record.')
      file.seek(end)


def _checkpoint_of(split: str) -> int | None:
  match = _CHECKPOINT_SPLIT.fullmatch(split)
  return int(match[1]) if match else None


def _first_line(error: Exception) -> str:
  return (str(error).strip() or type(error).__name__).splitlines()[0]
