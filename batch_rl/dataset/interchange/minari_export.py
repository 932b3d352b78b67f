"""Exports a run as a Minari dataset.

Minari stores n + 1 observations for an episode of n transitions. Our format logs no
observation after a terminal, so the last one is zeros in that case. A truncated episode
has one transition fewer than rows, and its last transition is a truncation. Frames
are stored losslessly (Minari's default for images is JPEG).

Minari is imported on first use.
"""

import contextlib
import functools
import importlib.metadata
import itertools
import os
from collections.abc import Iterator
from typing import Any

import numpy as np
from absl import logging

from batch_rl.dataset.interchange import episode_export
from batch_rl.dataset.sampling import episodes
from batch_rl.dataset.shards import manifests


def opener(destination: str) -> episode_export.OpenWriter:
  """Returns the opener of a Minari dataset.

  The id for `minari.load_dataset` is the path below `$MINARI_DATASETS_PATH` (or
  Minari's default). For a destination elsewhere, it is the last part of the path;
  load it with `MINARI_DATASETS_PATH` set to the folder above.

  Args:
    destination: Directory to create; its name ends in a version, as in `pong-v0`.

  Raises:
    ValueError: If the destination has no version, or Minari is not installed.
  """
  try:
    import h5py  # noqa: F401 (Minari needs it and does not install it)
    import minari  # noqa: F401
  except ImportError as error:
    raise ValueError(
      f'Minari needs {error.name}: pip install "minari[hdf5]>=0.5.4,<0.6", or '
      "this package with its extra, '.[minari]'; on Python 3.11 or newer."
    ) from None
  return functools.partial(_open_writer, _dataset_id(destination))


@contextlib.contextmanager
def _open_writer(
  name: str, reader: episodes.Reader, directory: str
) -> Iterator[episode_export.Writer]:
  """Opens a Minari dataset; see `episode_export.OpenWriter`."""
  from minari.data_collector import EpisodeBuffer
  from minari.dataset.minari_storage import MinariStorage

  spec, meanings = _environment(reader)
  path = os.path.join(directory, 'data')
  storage = MinariStorage.new(
    path, **_spaces(reader), env_spec=spec, jpeg_encoding=False
  )
  ids = itertools.count()

  def write(episode: episodes.Episode) -> int:
    columns = _columns(episode)
    if columns is None:
      return 0
    number = next(ids)
    storage.update_episodes([EpisodeBuffer(id=number, **columns)])
    metadata = {
      'episode': episode.number,
      'shard': episode.shard,
      'begins_at_reset': episode.begins_at_reset,
    }
    storage.update_episode_metadata([metadata], [number])
    return len(columns['actions'])

  environment = spec.id if spec else None
  summary = {'format': 'minari', 'dataset_id': name, 'environment': environment}
  yield write, summary
  storage.update_metadata(_metadata(reader, name, spec, meanings))


def _dataset_id(destination: str) -> str:
  from minari.dataset.minari_dataset import parse_dataset_id
  from minari.storage.datasets_root_dir import get_dataset_path

  path, root = os.path.abspath(destination), os.path.abspath(get_dataset_path())
  below = os.path.relpath(path, root)
  name = os.path.basename(path) if below.startswith('..') else below
  try:
    parse_dataset_id(name)
  except (ValueError, TypeError):  # TypeError if there is no version
    raise ValueError(
      f'{destination} is not a valid name of a Minari dataset; end it in a '
      'version, as in pong-v0.'
    ) from None
  return name


def _spaces(reader: episodes.Reader) -> dict[str, Any]:
  import gymnasium

  shape, dtype = reader.frame_shape, reader.frame_dtype
  low, high = (0, 1) if dtype.kind == 'b' else (-np.inf, np.inf)
  if dtype.kind in 'iu':
    low, high = np.iinfo(dtype).min, np.iinfo(dtype).max
  return {
    'observation_space': gymnasium.spaces.Box(low, high, shape, dtype.type),
    'action_space': gymnasium.spaces.Discrete(reader.num_actions),
  }


def _environment(reader: episodes.Reader) -> tuple[Any, list[str] | None]:
  """Makes the Gymnasium environment with the run's observations, if possible.

  Returns:
    The environment's specification and the meanings of its actions, or Nones.
  """
  logged = reader.manifest.get('environment') or {}
  if reader.frame_shape != (84, 84):
    return None, None
  most_frames = logged.get('max_num_frames_per_episode', 108_000)
  skip = logged.get('frame_skip', 4)
  try:
    import ale_py
    import gymnasium
    from gymnasium import wrappers

    gymnasium.register_envs(ale_py)
    ale_py.ALEInterface.setLoggerMode(ale_py.LoggerMode.Error)
    env = gymnasium.make(
      f'ALE/{reader.game}-v5',
      frameskip=1,
      repeat_action_probability=logged.get('repeat_action_probability', 0.25),
      max_num_frames_per_episode=most_frames,
      full_action_space=False,
    )
    meanings = env.unwrapped.get_action_meanings()  # type: ignore[attr-defined]
    env = wrappers.AtariPreprocessing(env, noop_max=0, frame_skip=skip)
    env.close()
  except Exception as error:  # an unknown game, a missing ROM, no ale-py
    logging.warning('No environment for %s: %s', reader.game, error)
    return None, None
  if len(meanings) != reader.num_actions:
    return None, None
  return env.spec, meanings


def _metadata(
  reader: episodes.Reader, name: str, spec: Any, meanings: list[str] | None
) -> dict[str, Any]:
  metadata = {
    'dataset_id': name,
    'minari_version': importlib.metadata.version('minari'),
    'algorithm_name': reader.agent,
    'description': (
      f'The transitions that an agent ({reader.agent or "unknown"}) experienced '
      f'in {reader.game}, in time order, with rewards as logged. The last '
      'observation of a terminated episode is zeros, because none was logged.'
    ),
    'game': reader.game,
    'action_meanings': meanings,
    'seed': manifests.look_up(reader.manifest, 'seed', kind=int),
    'environment': reader.manifest.get('environment', {}),
    'requirements': ['ale-py', 'gymnasium'] if meanings else None,
    'source': reader.run.directory,
    'source_hash': reader.hash,
    'eval_env_spec': spec.to_json() if spec else None,
  }
  return {key: value for key, value in metadata.items() if value is not None}


def _columns(episode: episodes.Episode) -> dict[str, Any] | None:
  """Returns an episode as Minari's columns; None if it has no transition."""
  frames = episode.observation
  count = len(frames) - (not episode.ended)
  if count < 1:
    return None
  last = np.arange(count) == count - 1
  # The observation after a terminal was not logged.
  after = np.zeros((int(episode.ended), *frames.shape[1:]), frames.dtype)
  return {
    'observations': np.concatenate([frames, after]),
    'actions': episode.action[:count].astype(np.int64),
    'rewards': episode.reward[:count],
    'terminations': last & episode.ended,
    'truncations': last & (not episode.ended),
  }
