"""The commands `import` and `export`."""

import argparse
import os
from typing import Any

import tqdm.auto as tqdm

from batch_rl.dataset.commands import argument_types, console
from batch_rl.dataset.imports import log_import, store_import
from batch_rl.dataset.interchange import (
  dopamine_import,
  minari_export,
  rlds_export,
  rlds_import,
  shard_discovery,
  source_formats,
)
from batch_rl.dataset.sampling import subsets
from batch_rl.dataset.shards import shard_files, shard_reader
from batch_rl.dataset.store import store_directory
from batch_rl.dataset.unplugged import reader
from batch_rl.utils import number_ranges

# Options that only some formats have.
_OPTIONS = {
  source_formats.DOPAMINE: (),
  source_formats.RLDS: ('shard_rows', 'game', 'checkpoints', 'last_step'),
  source_formats.UNPLUGGED: (
    'shard_rows',
    'game',
    'run_number',
    'checkpoints',
    'last_step',
  ),
}
# Flags that differ from the names of their values.
_FLAGS = {'run_number': 'run'}
_MAX_STACK = 1000


def add_import(commands: Any) -> None:
  """Adds the command `import`."""
  command = console.add_command(
    commands,
    'import',
    _import,
    'import data in another layout or format as a store. Shards of the Dopamine '
    'format may have other prefixes, and folders of their own. RL Unplugged files '
    '(atari_episodes_ordered) are recognised by their names. TFDS datasets must have '
    'the features of rlu_atari. The same command resumes an interrupted import. Exit '
    'code 0 if everything was imported, 1 if a shard was left out, 2 for a wrong '
    'argument.',
  )
  command.add_argument(
    'input_dir',
    metavar='source',
    type=argument_types.path,
    help='folder with shards; folder with files of RL Unplugged, e.g. '
    '.../atari_episodes_ordered/Pong; or the version directory of a TFDS dataset, '
    'local or remote, e.g. .../rlu_atari/Pong_run_1/1.3.0',
  )
  command.add_argument(
    'destination',
    type=argument_types.path,
    help='store to create; with --shards, run directory, <root>/<Game>/<run>',
  )
  command.add_argument(
    '--format',
    choices=sorted(_OPTIONS),
    help='format of the source; default: recognised by the names of its files',
  )
  command.add_argument(
    '--shards',
    action='store_true',
    help='write shards, not a store; files of shards are linked where possible',
  )
  episodes = command.add_argument_group(
    'options for TFDS datasets and RL Unplugged files'
  )
  episodes.add_argument(
    '--shard_rows',
    metavar='N',
    type=argument_types.number(100, shard_reader.MAX_ROWS),
    help='rows of a shard, with --shards for RL Unplugged files; default: as in the '
    'exported run, or at most 1000000',
  )
  episodes.add_argument(
    '--game',
    type=argument_types.game,
    help='name of the game, if the dataset or its folder does not tell',
  )
  argument_types.add_run_number(episodes)
  episodes.add_argument(
    '--checkpoints',
    metavar='A-B',
    help='checkpoints to import: splits checkpoint_00, checkpoint_01, ..., or files '
    'run_1-00000-of-00050, ...; default: all',
  )
  argument_types.add_last_step(episodes)


def _import(arguments: argparse.Namespace) -> int:
  input_format = arguments.format or source_formats.recognise(
    arguments.input_dir
  )
  for name in sorted({name for names in _OPTIONS.values() for name in names}):
    given = getattr(arguments, name) is not None
    if given and name not in _OPTIONS[input_format]:
      raise ValueError(
        f'--{_FLAGS.get(name, name)} does not apply to {arguments.input_dir}, read '
        f'as {input_format} data; remove it, or choose another --format.'
      )
  if input_format == source_formats.DOPAMINE:
    return _import_dopamine(arguments)
  return _import_episodes(arguments, input_format)


def _import_episodes(arguments: argparse.Namespace, input_format: str) -> int:
  argument_types.check_outside(arguments.destination, arguments.input_dir)
  last_step = arguments.last_step or 'auto'
  missing: list[int] = []
  source: rlds_import.RldsReader | reader.UnpluggedReader
  if input_format == source_formats.RLDS:
    source = rlds_import.RldsReader(arguments.input_dir, arguments.checkpoints)
  else:
    source = reader.UnpluggedReader(
      arguments.input_dir,
      arguments.game,
      arguments.run_number,
      arguments.checkpoints,
    )
    missing = source.missing
  by_parts = input_format == source_formats.UNPLUGGED and not arguments.shards
  if by_parts and arguments.shard_rows:
    raise ValueError(
      '--shard_rows needs --shards: a store has one shard for each file.'
    )
  with _ProgressBars() as progress:
    if by_parts:
      summary = store_import.import_parts(
        source, arguments.destination, arguments.game, last_step, progress
      )
    else:
      summary = log_import.import_run(
        source,
        arguments.destination,
        arguments.shards,
        arguments.shard_rows,
        arguments.game,
        last_step,
        progress,
      )
  if left_out := summary.get('left_out'):
    return _print_left_out(arguments, left_out)
  if by_parts:
    # An earlier import may have had other files.
    imported = store_directory.list_shards(arguments.destination)
    missing = sorted(set(missing) - set(imported))
  return _print_summary(arguments, {**summary, 'missing': missing})


def _print_left_out(
  arguments: argparse.Namespace, left_out: dict[str, str]
) -> int:
  if arguments.json:
    console.print_json({'left_out': left_out})
  else:
    for reason in left_out.values():
      print(f'left out: {reason}')
    print(
      f'{arguments.destination} cannot be used yet: replace these files and run the '
      'same import again, or choose others with --checkpoints'
    )
  return 1


def _import_dopamine(arguments: argparse.Namespace) -> int:
  shards = shard_discovery.discover(arguments.input_dir)
  argument_types.check_outside(arguments.destination, arguments.input_dir)
  table = shards.table()
  document = {
    'source': shards.input_dir,
    'destination': arguments.destination,
    'shards': sorted(shards.contents),
    'ignored': shards.ignored,
    'left_out': shards.left_out,
    'taken': table[1:],
  }
  if not arguments.json:
    console.print_table(table, left=(1, 2))
    for name in shards.ignored:
      print(f'ignored: {name}')
    for line in shards.left_out:
      print(f'missing: {line}')
  notes = _import_shards(arguments, shards)
  if arguments.json:
    console.print_json({**document, 'notes': notes})
  else:
    for line in notes:
      print(f'note: {line}')
    print(f'{arguments.destination}: {len(shards.contents)} shards')
  return int(bool(shards.left_out))


def _import_shards(
  arguments: argparse.Namespace, shards: shard_discovery.DiscoveredShards
) -> list[str]:
  if arguments.shards:
    logs = os.path.join(arguments.destination, shard_files.REPLAY_LOGS)
    total = len(shards.contents) * len(shard_files.FILES)
    with tqdm.tqdm(total=total, unit='file', disable=None, leave=False) as bar:
      return dopamine_import.import_shards(shards, logs, bar.update)
  with tqdm.tqdm(unit='row', unit_scale=True, disable=None, leave=False) as bar:
    return dopamine_import.import_store(
      shards, arguments.destination, bar.update
    )


def add_export(commands: Any) -> None:
  """Adds the command `export`."""
  command = console.add_command(
    commands,
    'export',
    _export,
    'export a run as a dataset of another library. The destination appears only '
    'when it is complete.',
  )
  command.add_argument(
    'directory', type=argument_types.path, help=console.DIRECTORY
  )
  command.add_argument(
    'destination', type=argument_types.path, help='directory to create'
  )
  command.add_argument(
    '--format',
    choices=['rlds', 'minari'],
    required=True,
    help='rlds: a TFDS dataset like rlu_atari; minari: an HDF5 dataset of Minari '
    'with uncompressed frames (7 kB each)',
  )
  command.add_argument(
    '--stack',
    metavar='N',
    type=argument_types.number(1, _MAX_STACK),
    help='number of stacked frames in an observation, for minari; default: single '
    'frames',
  )
  command.add_argument(
    '--subset',
    metavar='SUBSET',
    help="subset of complete trajectories, e.g. 'random_trajectories(0.1)'; "
    'default: all',
  )


def _export(arguments: argparse.Namespace) -> int:
  if arguments.subset is not None:
    subsets.parse(arguments.subset)  # before the run is read
  run = console.one_run(arguments)
  destination = arguments.destination
  argument_types.check_outside(destination, run.data_dir)
  with _ProgressBars() as progress:
    if arguments.format == 'minari':
      summary = minari_export.export(
        run, destination, arguments.stack, arguments.subset, progress
      )
    elif arguments.stack is not None:
      raise ValueError(
        '--stack needs --format minari; rlu_atari has single frames.'
      )
    else:
      summary = rlds_export.export(run, destination, arguments.subset, progress)
  return _print_summary(arguments, summary)


def _print_summary(
  arguments: argparse.Namespace, summary: dict[str, Any]
) -> int:
  if arguments.json:
    console.print_json(summary)
  else:
    print('\n'.join(describe(summary)))
  return 0


def describe(summary: dict[str, Any]) -> list[str]:
  """Returns the lines that report an import or export."""
  lines = [
    f'{summary["destination"]}: {summary["game"]}, {summary["episodes"]:,} '
    f'episodes, {summary["steps"]:,} steps, hash {summary["hash"]}'
  ]
  if 'last_step' in summary:
    assumed = ', assumed: no terminal step has a reward, which would tell'
    lines.append(
      f'terminal steps: {summary["last_step"]}'
      f'{assumed if summary.get("last_step_assumed") else ""}'
    )
  if summary.get('order') == 'as stored':
    lines.append(
      'note: the dataset was shuffled; episodes are in the order of its files, '
      'not of time.'
    )
  if summary.get('missing'):
    lines.append(
      f'note: there are no files of checkpoints '
      f'{number_ranges.brief(summary["missing"])}.'
    )
  if summary.get('skipped'):
    lines.append(f'note: {summary["skipped"]:,} episodes have no transition.')
  if summary['truncated']:
    lines.append(
      f'note: {summary["truncated"]:,} episodes are truncated: they have no '
      'terminal, and their last row is an observation only.'
    )
  if 'dataset_id' in summary:
    lines.append(
      f'minari.load_dataset({summary["dataset_id"]!r}), environment '
      f'{summary["environment"] or "not known"}'
    )
  return lines


class _ProgressBars:
  """Shows a progress bar for the current stage."""

  def __init__(self) -> None:
    self._stage: str | None = None
    self._bar: Any = None

  def __enter__(self):
    return self

  def __exit__(self, *error):
    if self._bar is not None:
      self._bar.close()

  def __call__(self, stage: str, count: int, total: int) -> None:
    """Advances the bar of a stage; see `episode_import.Progress`."""
    if stage != self._stage:
      self.__exit__()
      self._stage = stage
      self._bar = tqdm.tqdm(
        total=total,
        desc='import' if stage == 'B' else stage,
        unit='B' if stage == 'B' else '',
        unit_scale=True,
        disable=None,
      )
    self._bar.update(count)
