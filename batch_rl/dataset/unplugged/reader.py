"""Reads episodes from files of RL Unplugged's `atari_episodes_ordered`.

A file is a gzipped TFRecord file with an Example for each episode. Its features are
`checkpoint_idx`, `episode_idx` (int64), `episode_return`, `clipped_episode_return`
(float), and a list with an element for each of n steps: `observations` (PNG, 84 x 84),
`actions` (int64), `unclipped_rewards`, `clipped_rewards`, `discounts` (float).

An episode is terminal if its last discount is 0. TFDS says that the last step then has a
valid observation only, and that the "unclipped" rewards are in fact clipped. The data
tell whether terminal steps are transitions, see `episode_import.choose_last_step`.

Source: TFDS, `rl_unplugged/atari_utils.py`. No file of the bucket itself was seen.
"""

import os
from collections.abc import Iterator
from typing import Any

import numpy as np

from batch_rl.dataset.imports import episode_import, png_frames
from batch_rl.dataset.unplugged import file_names
from batch_rl.utils import files, number_ranges

_COLUMNS = {
  'observations': 'bytes',
  'actions': 'int64',
  'unclipped_rewards': 'float32',
  'clipped_rewards': 'float32',
  'discounts': 'float32',
}
_SCALARS = {
  'checkpoint_idx': 'int64',
  'episode_idx': 'int64',
  'episode_return': 'float32',
}


class UnpluggedReader(episode_import.EpisodeReader):
  """Reads one run: all of its files, or some.

  Args:
    path: Folder of a game, or a file; local.
    game: Name of the game; None for the name of the folder.
    run: Number of the run; None if the folder has files of one run only.
    checkpoints: Numbers of the files to read, e.g. '0-9'; None for all.

  Attributes:
    missing: Numbers of the run's files that are not there, unless some were chosen.

  Raises:
    ValueError: If there are no files, they are remote or have other names, or they are
      of several runs.
  """

  format = file_names.NAME
  order = 'time'
  # According to the description of the dataset.
  agent = 'dqn'
  environment = {'repeat_action_probability': 0.25, 'frame_skip': 4}

  def __init__(
    self,
    path: str,
    game: str | None = None,
    run: int | None = None,
    checkpoints: str | None = None,
  ):
    found = _find_files(path, run, checkpoints)
    first, *others = sorted(found)
    if first.count == file_names.SHUFFLED_COUNT:
      raise ValueError(
        f'{found[first]} holds transitions in random order, with eight PNGs each; '
        f'import the copy in order of time, gs://rl_unplugged/{file_names.FOLDER}, '
        'which holds each frame once.'
      )
    self.directory = os.path.dirname(os.path.abspath(found[first]))
    known = {name.lower(): name for name in file_names.GAMES}
    if game is not None and game.lower() not in known:
      raise ValueError(
        f'{game!r} is not one of the {len(known)} games of RL Unplugged, such as Pong.'
      )
    folder = os.path.basename(self.directory)
    self.game = known.get(folder.lower()) or known.get((game or '').lower())
    count = file_names.count_of(self.game) if self.game else first.count
    for name in (first, *others):
      if name.count != count:
        raise ValueError(
          f'{found[name]} is one of {name.count} files, but a run of '
          f'{self.game or "this folder"} has {count}.'
        )
    super().__init__({name.number: found[name] for name in sorted(found)})
    self.run = str(first.run)
    self.name = f'{file_names.FOLDER}/{self.game or "?"}/run_{self.run}'
    lacking = sorted(set(range(count)) - self._paths.keys())
    self.missing = lacking if checkpoints is None else []

  def read(
    self, part: episode_import.Part, frames: bool = True
  ) -> Iterator[episode_import.StoredEpisode]:
    """See the base class."""
    numbers: set[int] = set()
    previous = 0
    for name, values, position in self._examples(part, _COLUMNS, _SCALARS):
      doubts = _check_values(name, values)
      # A file that was appended to itself has intact records.
      if (index := int(values['episode_idx'][0])) in numbers:
        raise ValueError(
          f'Invalid dataset: {name} repeats episode_idx {index}; fetch it again.'
        )
      if numbers and index < previous:
        doubts.append('episodes whose episode_idx is less than the one before')
      numbers.add(index)
      previous = index
      yield episode_import.StoredEpisode(
        name,
        True,
        bool(values['discounts'][-1] == 0),
        values['actions'],
        values['clipped_rewards'],
        values['unclipped_rewards'],
        float(values['episode_return'][0]),
        png_frames.PngFrames(name, values['observations']) if frames else None,
        position,
        (int(values['checkpoint_idx'][0]), index),
        doubts,
      )


def _find_files(
  path: str, run: int | None, checkpoints: str | None
) -> dict[file_names.FileName, str]:
  """Returns the files in a folder, or a file: those of a run and some checkpoints.

  Raises:
    ValueError: If there is no such file, or that of a chosen checkpoint is missing.
  """
  files.check_local(path, 'fetch it first')
  if os.path.isdir(path):
    folder, names = path, files.list_directory(path)
  else:
    folder, names = os.path.split(path)[0], [os.path.basename(path)]
  found = {
    parsed: os.path.join(folder, name)
    for name in names
    if (parsed := file_names.parse(name))
  }
  if not found:
    raise ValueError(
      f'{path} has no file run_<run>-<number>-of-<count>, e.g. '
      f'{file_names.format(1, 0, 50)} (found: {files.format_names(names)}); give the '
      'folder of a game.'
    )
  runs = sorted({name.run for name in found})
  if run is not None:
    found = {name: path for name, path in found.items() if name.run == run}
    if not found:
      raise ValueError(
        f'{path} has no files of run {run}, but of {number_ranges.brief(runs)}.'
      )
  elif len(runs) > 1:
    raise ValueError(
      f'{path} has files of runs {number_ranges.brief(runs)}; choose one with --run.'
    )
  if checkpoints is None:
    return found
  wanted = number_ranges.parse(checkpoints, '--checkpoints')
  numbers = {name.number for name in found}
  if lacking := sorted(set(wanted) - numbers):
    raise ValueError(
      f'{path} has no files of checkpoints {number_ranges.brief(lacking)}, but of '
      f'{number_ranges.brief(sorted(numbers))}.'
    )
  return {name: path for name, path in found.items() if name.number in wanted}


def _check_values(name: str, values: dict[str, Any]) -> list[str]:
  """Returns the doubts about an episode; raises a ValueError about contradictions."""
  clipped = np.clip(values['unclipped_rewards'], -1, 1)
  if not np.array_equal(clipped, values['clipped_rewards']):
    raise ValueError(
      f'Invalid dataset: {name} has clipped_rewards that are not its '
      'unclipped_rewards, clipped to [-1, 1].'
    )
  # The first one precedes all rewards, so it means nothing.
  later = values['discounts'][1:]
  if not ((later >= 0) & (later <= 1)).all() or not later[:-1].all():
    raise ValueError(
      f'Invalid dataset: {name} has discounts outside [0, 1], or has steps after '
      'one of 0.'
    )
  is_odd = not np.isin(later, (0, 1)).all()
  return ['episodes with discounts other than 0 and 1'] if is_odd else []
