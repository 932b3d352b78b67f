"""Fetches shards in the dataset's layout."""

import contextlib
import os

from batch_rl.dataset.fetch import fetcher, partial_file, plan, remotes
from batch_rl.dataset.shards import incoming_shards, shard_files


class ShardFetcher(fetcher.Fetcher):
  """Fetches shards into `<Game>/<run>/replay_logs`; see the base class."""

  def _open(
    self, run: plan.RunPlan, stack: contextlib.ExitStack
  ) -> incoming_shards.IncomingShards:
    return stack.enter_context(
      incoming_shards.IncomingShards(
        os.path.join(run.directory, shard_files.REPLAY_LOGS),
        {'how': 'fetch', 'source': self._remote.name},
        run.manifest,
      )
    )

  def _is_done(
    self, destination: incoming_shards.IncomingShards, file: plan.FilePlan
  ) -> bool:
    return file.there and destination.has(file.name)

  def _path(
    self, destination: incoming_shards.IncomingShards, file: plan.FilePlan
  ) -> str:
    return destination.partial(file.name)

  def _obtain(
    self,
    run: plan.RunPlan,
    destination: incoming_shards.IncomingShards,
    file: plan.FilePlan,
    partial: partial_file.PartialFile,
  ) -> None:
    """Also accepts files that another program has put in place."""
    final = os.path.join(destination.data_dir, file.name)
    if not os.path.exists(final):
      super()._obtain(run, destination, file, partial)
      return
    try:
      destination.accept(file.name, path=final)
    except ValueError as error:
      raise ValueError(f'{error} Move it away and fetch again.') from None

  def _accept(
    self,
    run: plan.RunPlan,
    destination: incoming_shards.IncomingShards,
    file: plan.FilePlan,
    partial: partial_file.PartialFile,
    stat: remotes.RemoteStat,
  ) -> None:
    partial.remove_note()  # before the move: later fetches skip a file in place
    destination.accept(file.name, stat.hashes)

  def _finish(
    self, run: plan.RunPlan, destination: incoming_shards.IncomingShards
  ) -> tuple[list[str], list[str]]:
    destination.finish()
    return incoming_shards.check_shards(
      destination.data_dir, destination.complete_suffixes()
    )
