"""Transitions of a logged run, for a share of each batch of an online agent."""

from collections.abc import Iterable
from typing import Any

import numpy as np
from absl import logging
from dopamine.tf.replay_memory import circular_replay_buffer

from batch_rl.dataset import run_directories
from batch_rl.dataset.sampling import sampler as sampler_lib
from batch_rl.dataset.shards import manifests
from batch_rl.dataset.store import store as store_lib
from batch_rl.dataset.store import store_directory
from batch_rl.runs import games
from batch_rl.utils import seeding


class OfflineRows:
  """Draws a fixed number of logged transitions for each batch.

  With a share of one half this is the symmetric sampling of RLPD (Ball et al., 2023).
  The transitions of batch k are a function of the seed and k.

  Args:
    memory: Memory of the agent, whose shapes, dtypes, batch size and returns they have.
    directory: Directory of a run, or a store. None is an error.
    fraction: Fraction of the transitions of a batch, at most 1, rounded to whole
      transitions. There must be at least one.
    subset: Part of the run, e.g. 'random_trajectories(0.1)'; None for all.
    cache_dir: Directory for compressed runs; None to keep this one in memory only.
    seed: Seed of the run; None for other transitions each time.

  Attributes:
    count: Number of logged transitions in a batch.
    next_batch: Number of the next batch. A memory saves and restores it.

  Raises:
    ValueError: If `directory` is not a run, `fraction` or `subset` is invalid, the
      memory has further columns, or the observations are not the agent's.
    batch_rl.dataset.shards.shard_reader.DataError: If a shard is damaged.
  """

  def __init__(
    self,
    memory: circular_replay_buffer.OutOfGraphReplayBuffer,
    directory: str | None,
    fraction: float,
    subset: str | None,
    cache_dir: str | None,
    seed: int | None,
  ):
    if directory is None:
      raise ValueError(
        f'offline_fraction={fraction} needs data: bind '
        'WrappedLoggedReplayBuffer.offline_dir to the directory of a run.'
      )
    if memory._extra_storage_types:
      raise ValueError(
        'A memory with extra_storage_types cannot have offline rows, which lack them: '
        'set offline_fraction to 0.'
      )
    batch_size = memory._batch_size
    self.count = round(fraction * batch_size)
    self.next_batch = 0
    if not 1 <= self.count <= batch_size:
      raise ValueError(
        f'offline_fraction={fraction} of a batch of {batch_size} is {self.count} '
        f'transitions: give 0, or a share from {1 / batch_size:.2g} to 1.'
      )
    data_dir = run_directories.find_data(directory)
    cached = cache_dir and store_directory.in_cache(cache_dir, data_dir)
    self._store = store_lib.Store(data_dir, directory=cached, pack=False)
    frame = memory._observation_shape, memory._observation_dtype
    self._store.check_frames(*frame)
    sizes = memory._stack_size, memory._update_horizon, memory._gamma
    seed = seeding.derive(seed, 'offline rows')
    self._sampler = sampler_lib.Sampler(self._store, *sizes, subset, seed)
    self._store.start()
    self._store.wait()
    self._sampler.draw(0, 1)  # Raises an error if there is no transition.
    logging.info(
      'Offline rows: %d of the %d transitions of a batch, from %d in %s.',
      self.count,
      batch_size,
      self._sampler.num_transitions,
      data_dir,
    )

  def draw(
    self, elements: Iterable[circular_replay_buffer.ReplayElement]
  ) -> list[np.ndarray]:
    """Returns the transitions of the next batch, in Dopamine's arrays.

    Args:
      elements: Names and dtypes of the arrays. Indices are -1, since the rows are not
        in the memory.
    """
    [batch] = self._sampler.batches(self.next_batch, self.count, 1, 'stacks')
    self.next_batch += 1
    return [
      np.full(self.count, -1, element.type)
      if element.name == 'indices'
      else np.asarray(getattr(batch, element.name), element.type)
      for element in elements
    ]

  def describe(self) -> dict[str, Any]:
    """Describes the data for the run's record."""
    return {
      'directory': store_directory.absolute(self._store.data_dir),
      'transitions_in_batch': self.count,
      'subset': self._sampler.subset,
      'subset_hash': self._sampler.subset_hash(),
      'shards': sorted(self._store.suffixes),
      'trajectories': self._sampler.num_trajectories,
    }

  def file_hashes(self) -> dict[str, str]:
    """Returns the hash of each file of the shards, by file name."""
    return self._store.file_hashes()

  def raise_error(self) -> None:
    """Raises a DataError if a batch could not be read since the data is damaged."""
    self._store.raise_error()

  def check_actions(self, num_actions: int) -> None:
    """Raises a ValueError unless the environment has all logged actions."""
    actions = self._store.action_range()
    games.check_actions(actions, num_actions, self._store.data_dir)

  def check_rewards(self, clips: bool) -> None:
    """Checks that logged rewards are clipped to [-1, 1] if those of the run are.

    It warns if they may be clipped, and those of the run are not.

    Args:
      clips: Whether the run clips rewards.

    Raises:
      ValueError: If the run clips, and a logged reward is not in [-1, 1].
    """
    rewards = self._store.reward
    largest = max(rewards.max(), -float(rewards.min()))  # -int8(-128) is -128.
    manifest = manifests.read(self._store.data_dir)
    learnt, played = (
      manifests.look_up(manifest, 'episodes', name, 'mean', kind=float)
      for name in ('return', 'unclipped_return')
    )
    if not clips and largest <= 1 and (played is None or learnt != played):
      logging.warning(
        '%s holds rewards in [-1, 1], which may be clipped; those of the run are not: '
        'bind LoggedRunner.clip_rewards = True, unless they are so in the game.',
        self._store.data_dir,
      )
    if clips and largest > 1:
      raise ValueError(
        f'{self._store.data_dir} holds rewards of up to {largest:g}, but the run clips '
        'its own to [-1, 1]: bind LoggedRunner.clip_rewards = False, or use other data.'
      )
