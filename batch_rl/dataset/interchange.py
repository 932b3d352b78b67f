"""The commands `import` and `export`: which formats there are, and their options."""

import argparse
from collections.abc import Callable
from typing import Any

import tqdm.auto as tqdm

from batch_rl.dataset import directories, minari_export, rlds


def add_import_arguments(command: argparse.ArgumentParser) -> None:
  """Adds what `import_` wants to know."""
  command.add_argument(
    'source',
    help='a TFDS directory with the features of rlu_atari, local or remote: the '
    'one of a version, e.g. .../rlu_atari/Pong_run_1/1.3.0',
  )
  command.add_argument(
    'destination',
    help='the store to make, or with --shards the run, <root>/<Game>/<run>',
  )
  command.add_argument(
    '--format', choices=['rlds'], default='rlds', help='of the source'
  )
  command.add_argument(
    '--shards', action='store_true', help='write shards, not a store'
  )
  command.add_argument(
    '--shard-rows',
    metavar='N',
    type=_at_least(100),
    help='rows of a shard; default: as in the run that was exported, or 1000000',
  )
  command.add_argument(
    '--game', help='needed if the dataset is not named like Pong_run_1'
  )
  command.add_argument(
    '--checkpoints',
    metavar='A-B',
    help='only these of the splits checkpoint_00, checkpoint_01, ...',
  )
  command.add_argument(
    '--last-step',
    choices=rlds.LAST_STEPS,
    default='auto',
    help='what the last step of an episode that ended has: a transition, or (as '
    'RLDS says) an observation only; default: found out by returns',
  )


def import_(arguments: argparse.Namespace) -> dict[str, Any]:
  """Imports what the arguments say; see `rlds.import_run`."""
  with _Progress() as progress:
    return rlds.import_run(
      arguments.source,
      arguments.destination,
      arguments.shards,
      arguments.shard_rows,
      arguments.game,
      arguments.checkpoints,
      arguments.last_step,
      progress,
    )


def add_export_arguments(command: argparse.ArgumentParser) -> None:
  """Adds what `export` wants to know, but the run."""
  command.add_argument('destination', help='the directory to make')
  command.add_argument(
    '--format',
    choices=['rlds', 'minari'],
    required=True,
    help='rlds: as rlu_atari in TFDS; minari: an HDF5 dataset of Minari, frames '
    'uncompressed (7 kB each)',
  )
  command.add_argument(
    '--stack',
    metavar='N',
    type=_at_least(1),
    help='frames in an observation, for minari; default: single frames',
  )
  command.add_argument(
    '--subset',
    metavar='TEXT',
    help="whole trajectories only, e.g. 'random_trajectories(0.1)'",
  )


def export(
  arguments: argparse.Namespace, run: directories.Run
) -> dict[str, Any]:
  """Exports a run; see `rlds.export` and `minari_export.export`.

  Raises:
    ValueError: see there; also for an option of the other format.
  """
  target = arguments.destination
  with _Progress() as progress:
    if arguments.format == 'minari':
      return minari_export.export(
        run, target, arguments.stack, arguments.subset, progress
      )
    if arguments.stack is not None:
      raise ValueError('--stack is for minari; rlu_atari has single frames.')
    return rlds.export(run, target, arguments.subset, progress)


def describe(made: dict[str, Any]) -> list[str]:
  """Lines that say what was made, out of what an import or export returned."""
  lines = [
    f'{made["destination"]}: {made["game"]}, {made["episodes"]:,} episodes, '
    f'{made["steps"]:,} steps, hash {made["hash"]}'
  ]
  if 'last_step' in made:
    lines.append(f'last steps of episodes that ended: {made["last_step"]}')
  if made.get('order') == 'as stored':
    lines.append(
      'note: the dataset was shuffled; episodes are in the order of its files, '
      'not of time.'
    )
  if made.get('skipped'):
    lines.append(f'note: {made["skipped"]:,} episodes have no transition.')
  if made['truncated']:
    lines.append(
      f'note: {made["truncated"]:,} episodes were cut off; they have no terminal, '
      'and no transition at their last observation.'
    )
  if 'dataset_id' in made:
    lines.append(
      f'minari.load_dataset({made["dataset_id"]!r}), environment '
      f'{made["environment"] or "not known"}'
    )
  return lines


def _at_least(least: int) -> Callable[[str], int]:
  def number(text: str) -> int:
    value = int(text)
    if value < least:
      raise ValueError
    return value

  number.__name__ = f'number (at least {least})'
  return number


class _Progress:
  """A bar for one thing that is being done after the other."""

  def __init__(self) -> None:
    self._what: str | None = None
    self._bar: Any = None

  def __enter__(self):
    return self

  def __exit__(self, *error):
    if self._bar is not None:
      self._bar.close()

  def __call__(self, what: str, count: int, total: int) -> None:
    """See `rlds.import_run`."""
    if what != self._what:
      self.__exit__()
      self._what = what
      self._bar = tqdm.tqdm(
        total=total, desc=what, unit='', unit_scale=True, disable=None
      )
    self._bar.update(count)
