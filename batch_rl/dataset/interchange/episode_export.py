"""Export of episodes, shared by all formats."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

from batch_rl.dataset import game_names, run_directories
from batch_rl.dataset.sampling import episodes
from batch_rl.dataset.shards import manifests
from batch_rl.utils import progress_bars, staging_directory

# A function that writes an episode and returns its number of steps (0 if it was skipped),
# and entries for the summary.
Writer = tuple[Callable[[episodes.Episode], int], dict[str, Any]]
# Opens a dataset in an empty directory.
OpenWriter = Callable[[episodes.Reader, str], AbstractContextManager[Writer]]


def environment_of(reader: episodes.Reader) -> dict[str, Any]:
  """Returns the manifest's entry about the environment, for exports.

  The game is None if the manifest names none, and the folder none of Atari or MinAtar.
  """
  environment = reader.manifest.get('environment') or {}
  if manifests.atari_if_known(reader.manifest) is None:
    environment = {'repeat_action_probability': 0.25, **environment}
  game = environment.get('game') or game_names.known(reader.game)
  return {**environment, 'game': game}


def export(
  run: run_directories.RunDirectory,
  destination: str,
  open_writer: OpenWriter,
  subset: str | None = None,
) -> dict[str, Any]:
  """Writes a run in another format, atomically.

  Args:
    run: Run or store to export.
    destination: Directory to create.
    open_writer: Opener of the dataset in the other format.
    subset: Subset of complete trajectories (`subsets`); None for all.

  Returns:
    A summary of the export, JSON-serialisable.

  Raises:
    ValueError: If the run cannot be read, has no transitions, or does not fit the
      format, or the destination exists or cannot be written.
    OSError: If the disk is full.
  """
  reader = episodes.Reader(run, subset)
  count = steps = truncated = 0
  with staging_directory.StagingDirectory(destination) as stage:
    with (
      open_writer(reader, stage.create('made')) as (write, summary),
      progress_bars.meter(reader.rows, 'step') as bar,
    ):
      for episode in reader:
        if written := write(episode):
          count += 1
          steps += written
          truncated += not episode.ended
        bar.update(len(episode.action))
      if not count:
        raise ValueError(f'{run.directory} has no transitions.')
    stage.publish()
  return {
    'destination': destination,
    'game': reader.game,
    'episodes': count,
    'steps': steps,
    'truncated': truncated,
    'hash': reader.hash,
    **summary,
  }
