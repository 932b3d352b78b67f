"""Runs as RLDS episodes in TFDS, in the layout of `rlu_atari`, and back.

RLDS says that step t holds `(o_t, a_t, r_t)` and that the last step has an
observation only: its action, reward and discount mean nothing
(github.com/google-research/rlds, "Dataset Format"). Our format has no observation
after a terminal. So an episode of n rows that ended becomes n + 1 steps, the last
one with a frame of zeros; one that was cut off becomes n steps, its last row having
an observation only in either format.

`rlu_atari` itself (TFDS, `rl_unplugged/atari_utils.py`) has as many steps as the
logged episode had rows, marks the last one `is_terminal`, and says that only its
observation is valid. It was made from the DQN Replay Dataset, whose logger never
had that observation, but has a reward there. So what a last step is, is found out
from the data, see `_Source.last_step`.

TensorFlow and TFDS are imported when they are needed.
"""

import collections
import concurrent.futures
import contextlib
import dataclasses
import hashlib
import json
import os
import re
from collections.abc import Callable, Iterator
from typing import Any

import cv2
import numpy as np

from batch_rl.dataset import run_directories
from batch_rl.dataset.sampling import episodes
from batch_rl.dataset.shards import (
  manifests,
  replay_log,
  shard_files,
  stitching,
)
from batch_rl.dataset.store import store as store_lib
from batch_rl.utils import files, machine, staging_directory

FRAME_SHAPE = (84, 84)
LAST_STEPS = ('auto', 'transition', 'observation')
_NAME, _VERSION = 'dqn_replay', '1.0.0'
_PNG_LEVEL = 6  # zlib's default, and TFDS's
_EPISODES_A_FILE = 200  # some 100 to 400 MB
_STEP_FEATURES = {
  'observation': None,
  'action': 'iu',
  'reward': 'f',
  'is_first': 'b',
  'is_last': 'b',
  'is_terminal': 'b',
}
_CHECKPOINT = re.compile(r'checkpoint_(\d+)')
_CONFIG = re.compile(r'(?P<game>[A-Za-z]+)_run_(?P<run>\d+)')
_CHUNK_STEPS = 1024
# A dataset may have less than a million steps if it is smaller.
_SMALL_BYTES = 500e6
# Rows between two points from which an import that was stopped goes on.
_ROWS_BETWEEN_CUTS = 100_000


def _import_tfds() -> Any:
  try:
    import tensorflow as tf
    import tensorflow_datasets as tfds
  except ImportError as error:
    raise ValueError(
      f'RLDS needs {error.name}: pip install "tensorflow-datasets>=4.9.10,<5", '
      "or this package with its extra, '.[rlds]'."
    ) from None
  with contextlib.suppress(RuntimeError):  # it is in use already
    # Nothing here is for a GPU, and TensorFlow would take all of its memory.
    tf.config.set_visible_devices([], 'GPU')
  return tfds


# --- export -------------------------------------------------------------------


def export(
  run: run_directories.RunDirectory,
  destination: str,
  subset: str | None = None,
  progress: Callable[[str, int, int], None] = lambda what, count, total: None,
) -> dict[str, Any]:
  """Writes a run as a dataset that `tfds.builder_from_directory` loads.

  Its features are those of `rlu_atari`; `checkpoint_id` is the number of the
  shard in which an episode begins. Split `train` has all episodes in time order.

  Args:
    run: shards, or a store.
    destination: the directory to make.
    subset: of whole trajectories (`subsets`); None for all.
    progress: called with what is being done, how much more of it has been, and
      how much there is.

  Returns:
    What was written, JSON-able.

  Raises:
    ValueError: if the run cannot be read or has other frames than 84 x 84 uint8,
      the destination exists or cannot be written, or TFDS is not installed.
  """
  staging_directory.check_new(destination)
  tfds = _import_tfds()
  reader = episodes.Reader(run, subset)
  if (reader.frame_shape, reader.frame_dtype) != (FRAME_SHAPE, np.uint8):
    shape = ' x '.join(map(str, reader.frame_shape))
    raise ValueError(
      f'{run.directory} has observations of {shape or "one number"} '
      f'{reader.frame_dtype}; rlu_atari has 84 x 84 uint8.'
    )
  truncated = 0
  with (
    staging_directory.StagingDirectory(destination) as stage,
    files.remote_errors(destination),
    concurrent.futures.ThreadPoolExecutor(machine.num_cpus()) as pool,
  ):
    writer = _writer(tfds, reader, stage.fresh('made'))
    writer.initialize_splits(['train'])
    for episode in reader:
      writer.add_examples({'train': [_example(episode, pool)]})
      truncated += not episode.ended
      progress('steps', len(episode.action), reader.rows)
    writer.close_all()
    stage.publish('made')
  return {
    'destination': destination,
    'format': 'rlds',
    'game': reader.game,
    'episodes': reader.count,
    'steps': reader.rows,
    'truncated': truncated,
    'hash': reader.hash,
  }


def _writer(tfds: Any, reader: episodes.Reader, directory: str) -> Any:
  from tensorflow_datasets.rl_unplugged import atari_utils

  game, name = reader.game, reader.run.name
  info = tfds.core.DatasetInfo(
    builder=tfds.core.dataset_info.DatasetIdentity(
      name=_NAME,
      version=tfds.core.Version(_VERSION),
      data_dir=directory,
      module_name=__name__,
      config_name=f'{game}_run_{name}',
    ),
    description=(
      'A run of the DQN Replay Dataset, or in its format, in the layout of '
      'rlu_atari. Rewards are as logged: clipped, in that dataset. The last step '
      'of an episode has an observation only, of zeros where the episode ended: '
      'none was logged.'
    ),
    features=atari_utils.features_dict(),
    disable_shuffling=True,
    metadata=tfds.core.MetadataDict(
      {
        'source': reader.run.directory,
        'hash': reader.hash,
        'last_step': 'observation',
        'steps': reader.rows,
        'shard_capacity': manifests.look_up(
          reader.manifest, 'format', 'shard_capacity', kind=int
        ),
        'agent': reader.agent,
        'environment': {
          'num_actions': reader.num_actions,
          **(
            manifests.look_up(reader.manifest, 'environment', kind=dict) or {}
          ),
          'game': game,
        },
      }
    ),
  )
  return tfds.core.SequentialWriter(info, _EPISODES_A_FILE)


def _example(
  episode: episodes.Episode, pool: concurrent.futures.ThreadPoolExecutor
) -> dict[str, Any]:
  """An episode as `rlu_atari` has it, the observations as PNG."""
  # The observation after the end was never logged.
  extra = int(episode.ended)
  frames = list(pool.map(_encode_png, episode.observation))
  frames += [_encode_png(np.zeros(FRAME_SHAPE, np.uint8))] * extra
  n = len(frames)
  flags = {
    key: np.zeros(n, bool) for key in ('is_first', 'is_last', 'is_terminal')
  }
  flags['is_first'][0] = episode.begins_at_reset
  flags['is_last'][-1] = True
  flags['is_terminal'][-1] = episode.ended
  discount = np.ones(n, np.float32)
  if episode.ended:
    discount[-2:] = 0
  return {
    'steps': {
      'observation': frames,
      'action': np.pad(episode.action, (0, extra)).astype(np.int64),
      'reward': np.pad(episode.reward, (0, extra)),
      'discount': discount,
      **flags,
    },
    'checkpoint_id': episode.shard,
    'episode_id': episode.number,
    'episode_return': float(episode.reward.sum(dtype=np.float64)),
  }


def _encode_png(frame: np.ndarray) -> bytes:
  options = [cv2.IMWRITE_PNG_COMPRESSION, _PNG_LEVEL]
  return cv2.imencode('.png', frame, options)[1].tobytes()


# --- import -------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class _Steps:
  """An episode as it is in the dataset; n is its number of steps.

  Attributes:
    name: for messages.
    checkpoint: its `checkpoint_id`, or None.
    whole: whether it begins with the first observation.
    terminal: whether its last step is terminal.
    action: int32 (n,).
    reward: float32 (n,), in [-1, 1].
    unclipped: float32 (n,).
    episode_return: as the dataset has it, or None.
    observation: uint8 (n, 84, 84); None if only the rest was read.
  """

  name: str
  checkpoint: int | None
  whole: bool
  terminal: bool
  action: np.ndarray
  reward: np.ndarray
  unclipped: np.ndarray
  episode_return: float | None
  observation: np.ndarray | None

  def last_step(self) -> str | None:
    """What its last step is, by its reward; None if that does not tell."""
    if not self.terminal or not self.reward[-1]:
      return None
    if self.episode_return is None:
      return 'transition'
    for reward in (self.unclipped, self.reward):
      total = float(reward.sum(dtype=np.float64))
      for what, expected in (
        ('transition', total),
        ('observation', total - float(reward[-1])),
      ):
        if abs(self.episode_return - expected) < 1e-3 * max(1, abs(expected)):
          return what
    return None


def is_dataset(directory: str) -> bool:
  """Whether a directory, local or remote, looks like a TFDS dataset."""
  with contextlib.suppress(ValueError):  # nor what cannot be read
    about = os.path.join(directory, 'dataset_info.json')
    return files.read_json(about) is not None
  return False


class _Source:
  """A TFDS dataset of Atari episodes.

  Args:
    directory: with `dataset_info.json`; local or remote.

  Raises:
    ValueError: if there is none, or it has other features.
  """

  def __init__(self, directory: str):
    self.directory = directory.rstrip('/')
    self._check_directory()
    self._tfds = _import_tfds()
    try:
      self._builder = self._tfds.builder_from_directory(self.directory)
      self.info = self._builder.info
      self.metadata = dict(self.info.metadata or {})
    except Exception as error:  # TFDS raises whatever it meets
      raise ValueError(
        f'{directory} cannot be read by TFDS: {_first_line(error)}'
      ) from error
    self._check_features()
    self.splits = self._order_splits()

  def _check_directory(self) -> None:
    if is_dataset(self.directory):
      return
    below = []
    with contextlib.suppress(ValueError, OSError):
      below = sorted(files.list_directory(self.directory))
    shown = ', '.join(below[:8]) + (', ...' if len(below) > 8 else '')
    raise ValueError(
      f'{self.directory} is not a TFDS directory: it has no dataset_info.json '
      f'(found: {shown or "nothing"}); give the one of a version, e.g. '
      'rlu_atari/Pong_run_1/1.3.0.'
    )

  def _check_features(self) -> None:
    features, tfds = self.info.features, self._tfds
    where = f'{self.directory} has other features than rlu_atari'
    dataset = tfds.features.Dataset
    if 'steps' not in features or not isinstance(features['steps'], dataset):
      raise ValueError(
        f'{where}: no dataset of steps, but {", ".join(sorted(features))}.'
      )
    steps = features['steps'].feature
    names = sorted(steps) if hasattr(steps, 'keys') else []
    missing = sorted(set(_STEP_FEATURES) - set(names))
    if missing:
      raise ValueError(
        f'{where}: its steps have no {", ".join(missing)}, but '
        f'{", ".join(names) or "no names"}.'
      )
    for name, kinds in _STEP_FEATURES.items():
      dtype = np.dtype(steps[name].np_dtype)
      if kinds and (dtype.kind not in kinds or steps[name].shape):
        raise ValueError(f'{where}: {name} is {dtype} {steps[name].shape}.')
    frame = steps['observation']
    if frame.np_dtype != np.uint8 or tuple(frame.shape) not in (
      FRAME_SHAPE,
      (*FRAME_SHAPE, 1),
    ):
      raise ValueError(
        f'{where}: observations are {np.dtype(frame.np_dtype)} '
        f'{tuple(frame.shape)}, not uint8 (84, 84, 1).'
      )
    self._is_png = (
      isinstance(frame, tfds.features.Image) and frame.encoding_format == 'png'
    )
    self._clipped = 'clipped_reward' if 'clipped_reward' in names else 'reward'

  def _order_splits(self) -> dict[str, int]:
    counts = {name: s.num_examples for name, s in self.info.splits.items()}
    if not sum(counts.values()):
      raise ValueError(f'{self.directory} has no episodes.')

    def key(name):
      match = _CHECKPOINT.fullmatch(name)
      return (0, int(match[1])) if match else (1, 0)

    return {name: counts[name] for name in sorted(counts, key=key)}

  def choose(self, checkpoints: str) -> None:
    """Takes the splits of some checkpoints only, e.g. '0-9' or '3'.

    Raises:
      ValueError: if there are no such splits.
    """
    match = re.fullmatch(r'(\d+)(?:-(\d+))?', checkpoints)
    if not match:
      raise ValueError(f'Checkpoints are e.g. 3 or 0-9, not {checkpoints!r}.')
    low, high = int(match[1]), int(match[2] or match[1])
    chosen = {
      name: count
      for name, count in self.splits.items()
      if (found := _CHECKPOINT.fullmatch(name)) and low <= int(found[1]) <= high
    }
    if not sum(chosen.values()):
      names = list(self.splits)
      raise ValueError(
        f'{self.directory} has no checkpoints {checkpoints}; its splits are '
        f'{names[0]}{" to " + names[-1] if names[1:] else ""}.'
      )
    self.splits = chosen

  @property
  def has_unclipped(self) -> bool:
    """Whether rewards are there as the game gave them, beside the clipped."""
    return self._clipped != 'reward'

  @property
  def name(self) -> str:
    """As TFDS has it: name, configuration, version."""
    return self.info.full_name

  @property
  def game_and_run(self) -> tuple[str | None, str]:
    """Out of the configuration's name, e.g. 'Pong_run_1'."""
    match = _CONFIG.fullmatch(self.info.config_name or '')
    named = manifests.look_up(self.metadata, 'environment', 'game', kind=str)
    return named or (match and match['game']), match['run'] if match else '1'

  def fingerprint(self) -> str:
    """Identifies the dataset by what TFDS says of it: hex sha256."""
    content = {'info': self.info.as_json, 'splits': self.splits}
    text = json.dumps(content, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()

  def read(
    self, split: str, first: int = 0, frames: bool = True
  ) -> Iterator[_Steps]:
    """The episodes of a split, as they are stored, from number `first` on.

    Raises:
      ValueError: if they cannot be read, or one is not an episode.
    """
    tfds = self._tfds
    read_config = tfds.ReadConfig(
      interleave_cycle_length=1, try_autocache=False, skip_prefetch=True
    )
    decoders = None
    if self._is_png:  # decoded here, by all cores
      decoders = {'steps': {'observation': tfds.decode.SkipDecoding()}}
    with concurrent.futures.ThreadPoolExecutor(machine.num_cpus()) as pool:
      try:
        found = self._builder.as_dataset(
          split=f'{split}[{first}:]',
          shuffle_files=False,
          read_config=read_config,
          decoders=decoders,
        )
        for number, example in enumerate(found, first):
          name = f'episode {number} of split {split} in {self.directory}'
          yield self._parse(name, example, pool if frames else None)
      except ValueError:
        raise
      except Exception as error:  # TensorFlow's, for what is damaged or remote
        raise ValueError(
          f'{self.directory}, split {split}: {_first_line(error)}'
        ) from error

  def _parse(
    self,
    name: str,
    example: dict[str, Any],
    pool: concurrent.futures.ThreadPoolExecutor | None,
  ) -> _Steps:
    columns = collections.defaultdict(list)
    for chunk in example['steps'].batch(_CHUNK_STEPS):
      for key in {*_STEP_FEATURES, self._clipped} - {'observation'}:
        columns[key].append(chunk[key].numpy())
      if pool is not None:
        frames = chunk['observation'].numpy()
        if self._is_png:
          decoded = list(pool.map(_decode_png, frames))
          if any(frame is None for frame in decoded):
            raise ValueError(
              f'The {name} has frames that are not 84 x 84 gray.'
            )
          frames = np.stack(decoded)
        columns['observation'].append(frames.reshape(-1, *FRAME_SHAPE))
    if not columns:
      raise ValueError(f'The {name} has no steps.')
    arrays = {key: np.concatenate(parts) for key, parts in columns.items()}
    for key in ('is_last', 'is_terminal'):
      if arrays[key][:-1].any():
        raise ValueError(f'The {name} goes on after a step that {key}.')
    action, reward = arrays['action'], arrays['reward']
    if arrays['is_first'][1:].any():
      raise ValueError(f'The {name} has an is_first within.')
    if action.min() < 0 or action.max() > 17 or not np.isfinite(reward).all():
      raise ValueError(f'The {name} has actions or rewards that cannot be.')

    def entry(key, kind):
      return kind(example[key].numpy()) if key in example else None

    return _Steps(
      name,
      entry('checkpoint_id', int),
      bool(arrays['is_first'][0]),
      bool(arrays['is_terminal'][-1]),
      action.astype(np.int32),
      np.clip(arrays[self._clipped], -1, 1).astype(np.float32),
      reward.astype(np.float32),
      entry('episode_return', float),
      arrays.get('observation'),
    )

  def shard_rows(self, progress: Callable[[str, int, int], None]) -> int:
    """A million, as in the DQN Replay Dataset, or all rows if they are fewer.

    A shard is as long on disk and for its readers whatever is in it.
    """
    if sum(s.num_bytes for s in self.info.splits.values()) > _SMALL_BYTES:
      return 1_000_000
    rows, total = 0, sum(self.splits.values())
    for split in self.splits:
      for steps in self.read(split, frames=False):
        rows += len(steps.action) + 3
        progress('counting', 1, total)
    return min(1_000_000, max(rows + 1, 100))

  def last_step(self, progress: Callable[[str, int, int], None]) -> str:
    """Finds out what the last step of an episode that ended is.

    If its reward is part of `episode_return` (or there is none to compare), it
    is a transition like others. If no episode has a reward there, it is taken for
    what RLDS says: nothing then is lost but a step without reward, before which
    the episode ends.

    Returns:
      'transition' or 'observation'.
    """
    if known := manifests.look_up(self.metadata, 'last_step', kind=str):
      return known
    total = sum(self.splits.values())
    for split in self.splits:
      for steps in self.read(split, frames=False):
        progress('looking at last steps', 1, total)
        if found := steps.last_step():
          return found
    return 'observation'


def _decode_png(data: bytes) -> Any:
  """A frame, or None if it is none of ours."""
  frame: Any = cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_UNCHANGED)
  right = frame is not None and frame.dtype == np.uint8
  return frame if right and frame.shape == FRAME_SHAPE else None


def _first_line(error: Exception) -> str:
  return (str(error).strip() or type(error).__name__).splitlines()[0]


class _Importer:
  """Writes episodes to a log, and knows how to go on after a stop."""

  def __init__(
    self,
    source: _Source,
    stage: staging_directory.StagingDirectory,
    options: dict,
  ):
    self._source, self._stage = source, stage
    self._state_path = stage.join('state.json')
    self._options = {'fingerprint': source.fingerprint(), **options}
    self._state: dict[str, Any] = files.read_json(self._state_path) or {}
    if self._state and self._state['options'] != self._options:
      raise ValueError(
        f'{stage.path} is an import with another source or other options; '
        'delete it to start again.'
      )
    run = os.path.join(options['game'], options['run'])
    self.run_directory = stage.join('runs', run)
    self._log = replay_log.ReplayLog(
      os.path.join(self.run_directory, run_directories.LOGS),
      FRAME_SHAPE,
      np.uint8,
      options['shard_rows'],
      metadata=self._metadata(),
    )

  def _metadata(self) -> dict[str, Any]:
    from batch_rl import __version__

    source, options = self._source, self._options
    environment = {
      **(source.metadata.get('environment') or {}),
      'game': options['game'],
    }
    agent = source.metadata.get('agent')
    if source.info.name.startswith('rlu_atari'):
      # What the dataset was made with, as its description says.
      agent = 'dqn'
      environment |= {'repeat_action_probability': 0.25, 'frame_skip': 4}
    return {
      'run_id': options['fingerprint'][:16],
      'agent': agent,
      'environment': environment,
      'versions': {'batch_rl': __version__},
      'source': {
        'format': 'rlds',
        'directory': source.directory,
        'name': source.name,
        'version': str(source.info.version),
        'splits': source.splits,
        'fingerprint': options['fingerprint'],
        'order': 'time' if source.info.disable_shuffling else 'as stored',
      },
    }

  def run(self, progress: Callable[[str, int, int], None]) -> dict[str, Any]:
    """Writes all episodes that are not written yet; returns what there is."""
    state = self._state
    if not state:
      last_step = self._options['last_step']
      if last_step == 'auto':
        last_step = self._source.last_step(progress)
      state = {
        'options': self._options,
        'last_step': last_step,
        'done': {},
        'episodes': 0,
        'truncated': 0,
        'skipped': 0,
        'unclipped': self._source.has_unclipped,
        'checkpoints': [],
        'log': None,
        'finished': False,
      }
    self._log.metadata['source']['last_step'] = state['last_step']
    total = sum(self._source.splits.values())
    if state['finished']:
      return state
    if state['log']:
      self._log.restore(state['log'])
      progress('episodes', state['episodes'], total)
    self._state = state
    waiting = None
    safe_rows = self._log.rows
    for split, count in self._source.splits.items():
      done = state['done'].get(split, 0)
      if done == count:
        continue
      for steps in self._source.read(split, done):
        if waiting is not None:
          self._add(waiting, truncated=True)
          waiting = None
          if self._log.rows - safe_rows >= _ROWS_BETWEEN_CUTS:
            self._save(self._log.checkpoint())
            safe_rows = self._log.rows
        waiting = self._write(split, steps)
        progress('episodes', 1, total)
        if waiting is None and (
          self._log.rows - safe_rows >= _ROWS_BETWEEN_CUTS
        ):
          self._save(self._log.checkpoint())
          safe_rows = self._log.rows
    if waiting is not None:
      # The run just ends there, as one that is under way.
      self._add(waiting)
    if not self._log.rows:
      raise ValueError(f'{self._source.directory} has no transitions.')
    self._log.metadata['checkpoints'] = state['checkpoints']
    self._log.metadata['source']['episodes'] = state['episodes']
    self._log.metadata['source']['skipped'] = state['skipped']
    self._log.close()
    if not state['unclipped']:
      self._forget_unclipped_returns()
    state['finished'] = True
    self._save(None)
    return state

  def _forget_unclipped_returns(self) -> None:
    """Nobody knows them: the dataset has clipped rewards only."""
    path = os.path.join(self._log.directory, manifests.FILE_NAME)
    manifest = manifests.read(self._log.directory)
    for entry in (manifest, *manifest['shards']):
      entry['episodes'].pop('unclipped_return', None)
    files.write_json(path, manifest)

  def _save(self, log: dict | None) -> None:
    self._state['log'] = log
    files.write_json(self._state_path, self._state)

  def _write(self, split: str, steps: _Steps) -> tuple | None:
    """Logs an episode; returns its last row if it depends on what follows."""
    state = self._state
    what, found = state['last_step'], steps.last_step()
    chosen = self._options['last_step'] != 'auto'
    if found and found != what and not chosen:
      raise ValueError(
        f'The last step of {steps.name} is a{"n" * (found[0] == "o")} {found} by '
        f'its return, of others it is not; choose with --last_step.'
      )
    state['done'][split] = state['done'].get(split, 0) + 1
    state['episodes'] += 1
    state['unclipped'] |= bool(np.abs(steps.unclipped).max() > 1)
    n = len(steps.action)
    if steps.terminal and what == 'observation':
      n -= 1
    if n < 1 + (not steps.terminal):
      state['skipped'] += 1
      return None
    self._begin_checkpoint(split, steps)
    for i in range(n - 1):
      self._add((steps, i))
    if not steps.terminal:
      state['truncated'] += 1
      return steps, n - 1
    self._add((steps, n - 1), terminal=True)
    return None

  def _begin_checkpoint(self, split: str, steps: _Steps) -> None:
    """Notes where the episodes of another checkpoint begin."""
    match = _CHECKPOINT.fullmatch(split)
    number = int(match[1]) if match else steps.checkpoint
    found = self._state['checkpoints']
    if number is not None and (not found or found[-1]['checkpoint'] != number):
      row = self._log.rows
      found.append(
        {
          'checkpoint': number,
          'first_row': row,
          'shard': (row + 1) // self._options['shard_rows'],
        }
      )

  def _add(self, row: tuple, terminal=False, truncated=False) -> None:
    steps, i = row
    self._log.unclipped_reward = float(steps.unclipped[i])
    self._log.add(
      steps.observation[i],
      steps.action[i],
      steps.reward[i],
      terminal,
      truncated,
      padded=steps.whole,
    )


def import_run(
  directory: str,
  destination: str,
  shards: bool = False,
  shard_rows: int | None = None,
  game: str | None = None,
  checkpoints: str | None = None,
  last_step: str = 'auto',
  progress: Callable[[str, int, int], None] = lambda what, count, total: None,
) -> dict[str, Any]:
  """Makes a store, or shards, of a TFDS dataset with the features of `rlu_atari`.

  An import that was stopped goes on where it was.

  Args:
    directory: of the dataset, with `dataset_info.json`; local or remote.
    destination: the store to make, or with `shards` the run: `<root>/<Game>/<run>`.
    shards: whether to write shards rather than a store.
    shard_rows: rows of a shard; None for those of the run that was exported, or
      1,000,000.
    game: e.g. 'Pong'; None for what the dataset says.
    checkpoints: which of the splits `checkpoint_00`, ..., e.g. '0-9'; None for
      all.
    last_step: what the last step of an episode that ended is (`LAST_STEPS`).
    progress: called with what is being done, how much more of it has been, and
      how much there is.

  Returns:
    What was written, JSON-able.

  Raises:
    ValueError: if the dataset cannot be read or is none of this kind, the game is
      another or not known, the destination exists or cannot be written, or TFDS
      is not installed.
  """
  staging_directory.check_new(destination)
  source = _Source(directory)
  if checkpoints is not None:
    source.choose(checkpoints)
  named, run = source.game_and_run
  if game and named and game.lower() != named.lower():
    raise ValueError(f'{directory} is of {named}, not of {game}.')
  if not (named or game):
    raise ValueError(
      f'{directory} does not say of which game it is; add --game.'
    )
  options = {
    'game': named or game,
    'run': run,
    'shard_rows': shard_rows
    or manifests.look_up(source.metadata, 'shard_capacity', kind=int)
    or source.shard_rows(progress),
    'last_step': last_step,
  }
  with staging_directory.StagingDirectory(destination) as stage:
    importer = _Importer(source, stage, options)
    state = importer.run(progress)
    made = importer.run_directory
    if not shards:
      made = stage.join('store')
      logs = os.path.join(importer.run_directory, run_directories.LOGS)
      placements, _ = stitching.place(logs, shard_files.list_suffixes(logs))
      total = sum(placement.capacity for placement in placements)
      store_lib.convert(
        logs, made, lambda rows: progress('packing', rows, total)
      )
    data = episodes.Reader(run_directories.find_runs(made)[0])
    stage.publish(os.path.relpath(made, stage.path))
  return {
    'destination': destination,
    'format': 'rlds',
    'source': source.name,
    'game': options['game'],
    'episodes': state['episodes'],
    'steps': data.rows,
    'truncated': state['truncated'],
    'skipped': state['skipped'],
    'last_step': state['last_step'],
    'order': 'time' if source.info.disable_shuffling else 'as stored',
    'hash': data.hash,
  }
