"""The commands `import` and `export`."""

import argparse
import os
from typing import Any

import tqdm.auto as tqdm

from batch_rl.dataset import run_directories
from batch_rl.dataset.commands import console
from batch_rl.dataset.interchange import dopamine_import, minari_export, rlds
from batch_rl.dataset.shards import shard_files


def add_import(commands: Any) -> None:
  """Adds it to the commands."""
  command = console.add_command(
    commands,
    'import',
    _import,
    "make a store of other people's data. Shards of Dopamine's format are found in "
    'any layout, by what the files hold; TFDS datasets are those with the features '
    'of rlu_atari. Start it again to go on where it was stopped. Exit code 0 if all '
    'was taken, 1 if a shard was left out, 2 for a wrong argument.',
  )
  command.add_argument(
    'source',
    help='the folder that holds shards, somewhere; or a TFDS directory, local or '
    'remote: the one of a version, e.g. .../rlu_atari/Pong_run_1/1.3.0',
  )
  command.add_argument(
    'destination',
    help='the store to make, or with --shards the run, <root>/<Game>/<run>',
  )
  command.add_argument(
    '--format',
    choices=['dopamine', 'rlds'],
    help='of the source; default: rlds for a TFDS directory, else dopamine',
  )
  command.add_argument(
    '--shards',
    action='store_true',
    help='make shards, not a store; those that are there are linked where that '
    'can be',
  )
  command.add_argument(
    '--dry_run',
    action='store_true',
    help='of shards: show what would be taken for what',
  )
  rlds_only = command.add_argument_group('of TFDS datasets')
  rlds_only.add_argument(
    '--shard_rows',
    metavar='N',
    type=console.at_least(100),
    help='rows of a shard; default: as in the run that was exported, or 1000000',
  )
  rlds_only.add_argument(
    '--game', help='needed if the dataset is not named like Pong_run_1'
  )
  rlds_only.add_argument(
    '--checkpoints',
    metavar='A-B',
    help='only these of the splits checkpoint_00, checkpoint_01, ...',
  )
  rlds_only.add_argument(
    '--last_step',
    choices=rlds.LAST_STEPS,
    help='what the last step of an episode that ended has: a transition, or (as '
    'RLDS says) an observation only; default: auto, found out by returns',
  )


def _import(arguments: argparse.Namespace) -> int:
  chosen = arguments.format or (
    'rlds' if rlds.is_dataset(arguments.source) else 'dopamine'
  )
  others = {
    'rlds': ('dry_run',),
    'dopamine': ('shard_rows', 'game', 'checkpoints', 'last_step'),
  }[chosen]
  for name in others:
    if getattr(arguments, name):
      raise ValueError(
        f'--{name} has no meaning for {arguments.source}, which is taken for '
        f'{chosen} data (--format).'
      )
  return {'rlds': _import_rlds, 'dopamine': _import_dopamine}[chosen](arguments)


def _import_rlds(arguments: argparse.Namespace) -> int:
  with _Progress() as progress:
    made = rlds.import_run(
      arguments.source,
      arguments.destination,
      arguments.shards,
      arguments.shard_rows,
      arguments.game,
      arguments.checkpoints,
      arguments.last_step or 'auto',
      progress,
    )
  return _print_made(arguments, made)


def _import_dopamine(arguments: argparse.Namespace) -> int:
  layout = dopamine_import.find(arguments.source)
  document = {
    'source': layout.source,
    'destination': arguments.destination,
    'shards': sorted(layout.shards),
    'ignored': layout.ignored,
    'left_out': layout.left_out,
    'assumed': layout.assumed,
    'taken': layout.table()[1:],
    'notes': [],
  }
  if not arguments.json:
    console.print_table(layout.table(), left=(1, 2, 3))
    for name, why in layout.ignored.items():
      print(f'ignored: {name}: {why}')
    for line in layout.assumed:
      print(f'assumed: {line}')
    for line in layout.left_out:
      print(f'missing: {line}')
  if not arguments.dry_run:
    document['notes'] = _do_import(arguments, layout)
  if arguments.json:
    console.print_json(document)
  elif not arguments.dry_run:
    for line in document['notes']:
      print(f'note: {line}')
    print(f'{arguments.destination}: {len(layout.shards)} shards')
  return int(bool(layout.left_out))


def _do_import(
  arguments: argparse.Namespace, layout: dopamine_import.Layout
) -> list[str]:
  if arguments.shards:
    logs = os.path.join(arguments.destination, run_directories.LOGS)
    total = len(layout.shards) * len(shard_files.FILES)
    with tqdm.tqdm(total=total, unit='file', disable=None, leave=False) as bar:
      return dopamine_import.import_shards(layout, logs, bar.update)
  with tqdm.tqdm(unit='row', unit_scale=True, disable=None, leave=False) as bar:
    return dopamine_import.import_store(
      layout, arguments.destination, bar.update
    )


def add_export(commands: Any) -> None:
  """Adds it to the commands."""
  command = console.add_command(
    commands,
    'export',
    _export,
    "write a run as another library's dataset. It is there once it is whole.",
  )
  command.add_argument('directory', help=console.DIRECTORY)
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
    type=console.at_least(1),
    help='frames in an observation, for minari; default: single frames',
  )
  command.add_argument(
    '--subset',
    metavar='TEXT',
    help="whole trajectories only, e.g. 'random_trajectories(0.1)'",
  )


def _export(arguments: argparse.Namespace) -> int:
  run = console.one_run(arguments)
  target = arguments.destination
  with _Progress() as progress:
    if arguments.format == 'minari':
      made = minari_export.export(
        run, target, arguments.stack, arguments.subset, progress
      )
    elif arguments.stack is not None:
      raise ValueError('--stack is for minari; rlu_atari has single frames.')
    else:
      made = rlds.export(run, target, arguments.subset, progress)
  return _print_made(arguments, made)


def _print_made(arguments: argparse.Namespace, made: dict[str, Any]) -> int:
  if arguments.json:
    console.print_json(made)
  else:
    print('\n'.join(_describe(made)))
  return 0


def _describe(made: dict[str, Any]) -> list[str]:
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
