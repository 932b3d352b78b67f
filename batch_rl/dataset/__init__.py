"""Logged data: shards, stores, batches, checks, and the command-line tools."""

from typing import TYPE_CHECKING

from batch_rl.utils import lazy_exports

if TYPE_CHECKING:
  from .logged_run import LoggedRun, open
  from .run_directories import RunDirectory, find_runs
  from .sampling import sampler, sequences, subsets
  from .sampling.columns import column
  from .sampling.episodes import Episode
  from .sampling.sampler import Batch, Sampler
  from .sampling.sequences import SequenceBatch, SequenceSampler
  from .shards.replay_log import ReplayLog
  from .shards.shard_reader import DataError

__all__ = [
  'Batch', 'DataError', 'Episode', 'LoggedRun', 'ReplayLog', 'RunDirectory',
  'Sampler', 'SequenceBatch', 'SequenceSampler', 'column', 'find_runs', 'open',
  'sampler', 'sequences', 'subsets',
]  # fmt: skip
lazy_exports.install(__name__)
