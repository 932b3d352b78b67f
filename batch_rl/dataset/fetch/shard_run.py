"""Shards in the layout of the DQN Replay Dataset, `<Game>/<run>/replay_logs`."""

import contextlib
import os
from collections.abc import Callable, Collection, Mapping, Sequence

from batch_rl.dataset.fetch import fetched_run, partial_file
from batch_rl.dataset.shards import incoming_shards, manifests, shard_files
from batch_rl.dataset.store import store_directory

# Number of shards to ask for without a listing; no run of the dataset has more.
_MAX_SHARDS = 51


class ShardRun(fetched_run.FetchedRun):
  """Shards of six files; they are fetched as they are.

  Raises:
    ValueError: If the directory is a store.
  """

  unit = 'shard'
  advice = (
    "The dataset's public bucket, gs://atari-replay-datasets/dqn, has refused many "
    'users since 2025. Alternatives: RL Unplugged, the same runs of 46 games (`fetch '
    'gs://rl_unplugged --layout=unplugged`), local copies, in any layout (`python -m '
    'batch_rl.dataset import`), the RLDS copy, rlu_atari_checkpoints_ordered '
    '(`import`, too), and your own data (`python -um batch_rl.baselines.train`).'
  )

  def __init__(self, source: str, game: str, number: int, directory: str):
    super().__init__(source, game, number, directory)
    self.folder = f'{game}/{number}/{shard_files.REPLAY_LOGS}'
    if store_directory.is_store(directory):
      raise ValueError(
        f'{directory} is a store, not a directory of shards; choose another '
        '--data_dir.'
      )
    self._data_dir = os.path.join(directory, shard_files.REPLAY_LOGS)
    self._recorded = (
      incoming_shards.recorded_files(self._data_dir)
      if os.path.isdir(self._data_dir)
      else {}
    )

  def names(self, number: int) -> list[str]:
    """See the base class."""
    return [shard_files.file_name(name, number) for name in shard_files.FILES]

  def all_numbers(self, found: Collection[int]) -> Sequence[int]:
    """See the base class."""
    return sorted(found) or range(_MAX_SHARDS)

  def has(self, name: str, size: int | None) -> bool:
    """See the base class."""
    final = os.path.join(self._data_dir, name)
    if not os.path.exists(final):
      return False
    expected = incoming_shards.manifest_files(self.manifest).get(name, {})
    sha256 = manifests.look_up(expected, 'sha256', kind=str)
    local_size = os.path.getsize(final)
    record = self._recorded.get(name)
    differs = record and sha256 not in (None, record.get('sha256'))
    if differs or size not in (None, local_size):
      raise ValueError(
        f'{final} ({local_size:,} B) is not the file that {self.source} has '
        f'({"?" if size is None else f"{size:,}"} B): does it belong to another run? '
        'Move it away, or choose another --data_dir.'
      )
    return True

  def partial(self, name: str) -> str:
    """See the base class."""
    return os.path.join(self._data_dir, shard_files.PARTIAL, name)

  def open(self, stack: contextlib.ExitStack) -> None:
    """See the base class."""
    origin = {'how': 'fetch', 'source': self.source}
    self._shards = stack.enter_context(
      incoming_shards.IncomingShards(self._data_dir, origin, self.manifest)
    )

  def accept(
    self,
    file: fetched_run.FilePlan,
    partial: partial_file.PartialFile,
    hashes: Mapping[str, str],
    advance: Callable[[int], None],
  ) -> None:
    """See the base class."""
    if not file.there:
      # Before the move: later fetches skip a file in place.
      partial.remove_note()
      self._shards.accept(file.name, hashes)
    elif not self._shards.has(file.name):
      final = os.path.join(self._data_dir, file.name)
      try:
        self._shards.accept(file.name, path=final)
      except ValueError as error:
        raise ValueError(f'{error} Move it away and fetch again.') from None

  def finish(self) -> tuple[list[str], list[str], None]:
    """See the base class."""
    self._shards.finish()
    complete = self._shards.complete_suffixes()
    return *incoming_shards.check_shards(self._data_dir, complete), None
