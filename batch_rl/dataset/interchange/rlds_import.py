"""Reads TFDS datasets of RLDS episodes with the features of `rlu_atari`.

A TFDS dataset is a folder of TFRecord files with an Example for each episode, and their
description, `dataset_info.json`. Step t of RLDS holds `(o_t, a_t, r_t)`, and the last step
has a valid observation only: its action, reward and discount are meaningless
(github.com/google-research/rlds, "Dataset Format").

`rlu_atari` itself (TFDS, `rl_unplugged/atari_utils.py`) has one step for each logged
row. It declares only the observation of a terminal step valid, yet stores its reward.
So the import infers from the data whether terminal steps are transitions, see
`episode_import.choose_last_step`.
"""

import os
import re
from collections.abc import Iterator
from typing import Any

import numpy as np

from batch_rl.dataset.imports import episode_import, png_frames
from batch_rl.dataset.shards import manifests
from batch_rl.utils import files, json_schema, number_ranges

INFO = 'dataset_info.json'
_Required = json_schema.Required
_SCHEMA = {
  'name': _Required(str),
  'version': _Required(str),
  'configName': str,
  'fileFormat': str,
  'disableShuffling': bool,
  'splits': [{'name': _Required(str), 'shardLengths': _Required([str])}],
}
_METADATA = {
  'agent': str,
  'environment': manifests.ENVIRONMENT_SCHEMA,
  'last_step': str,
  'rewards': str,
}
_CONFIG = re.compile(r'(?:(?P<game>.+?)_)?run_(?P<run>[^/]+)')
_CHECKPOINT_SPLIT = re.compile(r'checkpoint_(\d+)')
_COLUMNS = {
  'steps/observation': 'bytes',
  'steps/action': 'int64',
  'steps/reward': 'float32',
  'steps/is_first': 'int64',
  'steps/is_last': 'int64',
  'steps/is_terminal': 'int64',
}
# Rewards that versions before 1.3.0 have beside `reward`, which is not clipped there.
_CLIPPED = 'steps/clipped_reward'


class RldsReader(episode_import.EpisodeReader):
  """Reads a TFDS dataset of Atari episodes.

  Args:
    directory: Local directory with `dataset_info.json`.
    checkpoints: Numbers of the splits `checkpoint_00`, ..., e.g. '0-9'; None for
      all splits.

  Raises:
    ValueError: If the dataset or a split is missing, or not in TFRecord files.
  """

  format = 'rlds'

  def __init__(self, directory: str, checkpoints: str | None = None):
    self.directory = directory.rstrip('/')
    path = os.path.join(self.directory, INFO)
    if (info := files.read_json(path, _SCHEMA)) is None:
      raise ValueError(f'{path} does not exist.')
    if info.get('fileFormat') not in (None, 'tfrecord'):
      raise ValueError(
        f'{directory} has files of the format {info["fileFormat"]}; prepare the '
        'dataset with file_format="tfrecord".'
      )
    splits = info.get('splits') or []
    splits.sort(key=lambda split: _checkpoint_of(split) or 0)
    wanted = None
    if checkpoints is not None:
      wanted = number_ranges.parse(checkpoints, '--checkpoints')
    chosen, self._lengths, first = {}, {}, 0
    for split in splits:
      if wanted is None or _checkpoint_of(split) in wanted:
        found = enumerate(self._files_of(info, split), first)
        for number, (path, length) in found:
          if length != '0':
            chosen[number], self._lengths[number] = path, length
      # Each file has the same number whichever checkpoints are chosen.
      first += len(split['shardLengths'])
    missing = sorted({*(wanted or ())} - {*map(_checkpoint_of, splits)})
    if missing or not chosen:
      what = f'checkpoint {missing[0]}' if missing else 'episodes'
      names = [split['name'] for split in splits]
      raise ValueError(
        f'{self.directory} has no {what}; its splits are '
        f'{files.format_names(names)}.'
      )
    super().__init__(chosen)
    config = _CONFIG.fullmatch(info.get('configName') or '')
    path = os.path.join(self.directory, 'metadata.json')
    metadata = files.read_json(path, _METADATA) or {}
    self.agent = metadata.get('agent')
    self.environment = dict(metadata.get('environment') or {})
    self.game = self.environment.get('game') or (config and config['game'])
    self.run = config['run'] if config else '1'
    self.name = '/'.join(
      filter(None, [info['name'], info.get('configName'), info['version']])
    )
    self.last_step = metadata.get('last_step')
    # Our exports have the rewards that were learned from.
    self._clips = metadata.get('rewards') != 'as logged'
    self.order = 'time' if info.get('disableShuffling') else 'as stored'
    if info['name'].startswith('rlu_atari'):
      # According to the dataset's description.
      self.agent = 'dqn'
      self.environment |= {'repeat_action_probability': 0.25, 'frame_skip': 4}

  def _files_of(
    self, info: dict[str, Any], split: dict[str, Any]
  ) -> Iterator[tuple[str, str]]:
    """Returns the paths of a split's files, and their numbers of episodes."""
    start = f'{info["name"]}-{split["name"]}.tfrecord-'
    names = [n for n in os.listdir(self.directory) if n.startswith(start)]
    lengths = split['shardLengths']
    if len(names) != len(lengths):
      raise ValueError(
        f'{self.directory} has {len(names)} files {start}..., but {INFO} lists '
        f'{len(lengths)}; copy the dataset again, or choose the splits that are there '
        'with --checkpoints.'
      )
    paths = [os.path.join(self.directory, name) for name in sorted(names)]
    return zip(paths, lengths, strict=True)

  def read(
    self, part: episode_import.Part, frames: bool = True
  ) -> Iterator[episode_import.StoredEpisode]:
    """See the base class."""
    count = 0
    for name, values, position in self._examples(part, _COLUMNS):
      count += 1
      images, action, reward, is_first, is_last, is_terminal = (
        values[key] for key in _COLUMNS
      )
      if is_first[1:].any() or is_last[:-1].any() or is_terminal[:-1].any():
        raise ValueError(
          f'Invalid dataset: {name} has is_first after its first step, or continues '
          'after is_last or is_terminal.'
        )
      clipped = values.get(_CLIPPED, reward)
      if self._clips:
        clipped = np.clip(clipped, -1, 1)
      returns = values.get('episode_return', [])
      yield episode_import.StoredEpisode(
        name,
        bool(is_first[0]),
        bool(is_terminal[-1]),
        action,
        clipped.astype(np.float32),
        reward,
        float(returns[0]) if len(returns) else None,
        png_frames.PngFrames(name, images) if frames else None,
        position,
        num_actions=self.environment.get('num_actions') or 0,
      )
    if str(count) != self._lengths[part.number]:
      raise ValueError(
        f'{part.name} in {self.directory} has {count} episodes, but '
        f'{self._lengths[part.number]} by {INFO}.'
      )


def _checkpoint_of(split: dict[str, Any]) -> int | None:
  match = _CHECKPOINT_SPLIT.fullmatch(split['name'])
  return int(match[1]) if match else None
