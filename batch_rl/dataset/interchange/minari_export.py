"""Runs as Minari datasets.

Minari stores, for an episode of n transitions, n + 1 observations. Our format has no
observation after a terminal, so there the last one is of zeros; an episode that was
cut off is one transition shorter than its rows, and its last one is a truncation.
Frames are stored without loss (Minari's default for images is JPEG).

Minari is imported when it is needed.
"""

import logging
import os
from collections.abc import Callable
from typing import Any

import numpy as np

from batch_rl.dataset import run_directories
from batch_rl.dataset.sampling import episodes
from batch_rl.dataset.shards import manifests
from batch_rl.utils import staging_directory

_log = logging.getLogger('absl')


def _import_minari() -> Any:
  try:
    import h5py  # noqa: F401 (Minari needs it and does not install it)
    import minari
  except ImportError as error:
    raise ValueError(
      f'Minari needs {error.name}: pip install "minari[hdf5]>=0.5.4,<0.6", or '
      "this package with its extra, '.[minari]'; on Python 3.11 or newer."
    ) from None
  return minari


def export(
  run: run_directories.RunDirectory,
  destination: str,
  stack_size: int | None = None,
  subset: str | None = None,
  progress: Callable[[str, int, int], None] = lambda what, count, total: None,
) -> dict[str, Any]:
  """Writes a run as a Minari dataset.

  Below `$MINARI_DATASETS_PATH` (or Minari's default), the id by which
  `minari.load_dataset` finds it is the path from there; elsewhere, it is the last
  part of the path, for a `MINARI_DATASETS_PATH` that is the rest.

  Args:
    run: shards, or a store.
    destination: the directory to make; its name ends in a version, as in
      `pong-v0`.
    stack_size: frames in an observation, oldest first, zeros before the first:
      (stack_size, *frame_shape). None for single frames.
    subset: of whole trajectories (`subsets`); None for all.
    progress: called with what is being done, how much more of it has been, and
      how much there is.

  Returns:
    What was written, JSON-able.

  Raises:
    ValueError: if the run cannot be read, the destination exists, cannot be
      written or has no version, or Minari is not installed.
  """
  staging_directory.check_new(destination)
  if stack_size is not None and stack_size < 1:
    raise ValueError(f'A stack has at least one frame, not {stack_size}.')
  minari = _import_minari()
  from minari.data_collector import EpisodeBuffer
  from minari.dataset.minari_storage import MinariStorage

  name = _dataset_id(minari, destination)
  reader = episodes.Reader(run, subset)
  spec, meanings = _environment(reader, stack_size)
  truncated = written = 0
  with staging_directory.StagingDirectory(destination) as stage:
    made = stage.fresh('made')
    storage = MinariStorage.new(
      os.path.join(made, 'data'),
      **_spaces(reader, stack_size),
      env_spec=spec,
      jpeg_encoding=False,
    )
    for episode in reader:
      buffer = _buffer(episode, stack_size)
      if buffer is not None:
        storage.update_episodes([EpisodeBuffer(id=written, **buffer)])
        storage.update_episode_metadata(
          [
            {
              'episode': episode.number,
              'shard': episode.shard,
              'begins_at_reset': episode.begins_at_reset,
            }
          ],
          [written],
        )
        written += 1
        truncated += not episode.ended
      progress('steps', len(episode.action), reader.rows)
    if not written:
      raise ValueError(f'{run.directory} has no transitions.')
    about = _metadata(reader, name, stack_size, meanings)
    if spec is not None:
      about['eval_env_spec'] = spec.to_json()
    storage.update_metadata(about)
    steps = storage.total_steps
    stage.publish('made')
  return {
    'destination': destination,
    'format': 'minari',
    'dataset_id': name,
    'game': reader.game,
    'environment': spec.id if spec else None,
    'episodes': written,
    'steps': steps,
    'truncated': truncated,
    'hash': reader.hash,
  }


def _dataset_id(minari: Any, destination: str) -> str:
  from minari.dataset.minari_dataset import parse_dataset_id
  from minari.storage.datasets_root_dir import get_dataset_path

  path, root = os.path.abspath(destination), os.path.abspath(get_dataset_path())
  below = os.path.relpath(path, root)
  name = os.path.basename(path) if below.startswith('..') else below
  try:
    parse_dataset_id(name)
  except (ValueError, TypeError):  # TypeError if there is no version
    raise ValueError(
      f'{destination} is no name for a Minari dataset: it ends in a version, as '
      'in pong-v0.'
    ) from None
  return name


def _spaces(reader: episodes.Reader, stack_size: int | None) -> dict[str, Any]:
  import gymnasium

  shape, dtype = reader.frame_shape, reader.frame_dtype
  low: Any = -np.inf
  high: Any = np.inf
  if dtype.kind in 'iu':
    low, high = np.iinfo(dtype).min, np.iinfo(dtype).max
  stacked = shape if stack_size is None else (stack_size, *shape)
  return {
    'observation_space': gymnasium.spaces.Box(low, high, stacked, dtype.type),
    'action_space': gymnasium.spaces.Discrete(reader.num_actions),
  }


def _environment(
  reader: episodes.Reader, stack_size: int | None
) -> tuple[Any, list[str] | None]:
  """The Gymnasium environment that gives such observations, if it can be made.

  Returns:
    Its specification, and the meanings of its actions; None if there is none.
  """
  import ale_py
  import gymnasium
  from gymnasium import wrappers

  known = manifests.look_up(reader.manifest, 'environment', kind=dict) or {}
  if reader.frame_shape != (84, 84):
    return None, None
  gymnasium.register_envs(ale_py)
  ale_py.ALEInterface.setLoggerMode(ale_py.LoggerMode.Error)
  try:
    env = gymnasium.make(
      f'ALE/{reader.game}-v5',
      frameskip=1,
      repeat_action_probability=known.get('repeat_action_probability', 0.25),
      max_num_frames_per_episode=known.get(
        'max_num_frames_per_episode', 108_000
      ),
      full_action_space=False,
    )
    meanings = env.unwrapped.get_action_meanings()  # type: ignore[attr-defined]
    env = wrappers.AtariPreprocessing(
      env, noop_max=0, frame_skip=known.get('frame_skip', 4)
    )
    if stack_size is not None:
      env = wrappers.FrameStackObservation(env, stack_size, padding_type='zero')
    env.close()
  except Exception as error:  # an unknown game, a ROM that is not there
    _log.warning('There is no environment for %s: %s', reader.game, error)
    return None, None
  if len(meanings) != reader.num_actions:
    return None, None
  return env.spec, meanings


def _metadata(
  reader: episodes.Reader,
  name: str,
  stack_size: int | None,
  meanings: list[str] | None,
) -> dict[str, Any]:
  manifest = reader.manifest
  environment = manifests.look_up(manifest, 'environment', kind=dict) or {}
  about = {
    'dataset_id': name,
    'minari_version': _version('minari'),
    'algorithm_name': reader.agent,
    'description': (
      f'What an agent ({reader.agent or "not known"}) experienced in '
      f'{reader.game}, in time order, with rewards as logged. Where an episode '
      'ended, no last observation was logged: it is zeros.'
    ),
    'game': reader.game,
    'action_meanings': meanings,
    'seed': manifests.look_up(manifest, 'seed', kind=int),
    'stack_size': stack_size,
    'environment': environment,
    'requirements': ['ale-py', 'gymnasium'],
    'source': reader.run.directory,
    'source_hash': reader.hash,
  }
  return {key: value for key, value in about.items() if value is not None}


def _version(package: str) -> str:
  import importlib.metadata

  return importlib.metadata.version(package)


def _buffer(
  episode: episodes.Episode, stack_size: int | None
) -> dict[str, Any] | None:
  """An episode as Minari has it; None if there is no transition in it."""
  n = len(episode.action)
  # Without the beginning, stacks are whole from here on.
  first = 0 if episode.begins_at_reset or stack_size is None else stack_size - 1
  stop = n if episode.ended else n - 1
  if stop <= first:
    return None
  ends = np.zeros(stop - first, bool)
  ends[-1] = True
  never = np.zeros_like(ends)
  return {
    'observations': _observations(episode, stack_size)[first:],
    'actions': episode.action[first:stop].astype(np.int64),
    'rewards': episode.reward[first:stop],
    'terminations': ends if episode.ended else never,
    'truncations': never if episode.ended else ends,
  }


def _observations(
  episode: episodes.Episode, stack_size: int | None
) -> np.ndarray:
  """Frames, or stacks of them, and zeros for the one after the end."""
  frames = episode.observation
  n, size = len(frames), stack_size or 1
  out = np.zeros((n + episode.ended, size, *frames.shape[1:]), frames.dtype)
  for j in range(size):
    behind = size - 1 - j
    out[behind:n, j] = frames[: max(n - behind, 0)]
  return out[:, 0] if stack_size is None else out
