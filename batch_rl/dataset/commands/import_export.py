"""The commands `import` and `export`."""

import argparse
import os
from typing import Any

from batch_rl.dataset.commands import argument_types, console
from batch_rl.dataset.imports import episode_import, store_import
from batch_rl.dataset.interchange import (
  dopamine_import,
  episode_export,
  minari_export,
  rlds_export,
  rlds_import,
  shard_discovery,
  shards_export,
)
from batch_rl.dataset.sampling import subsets
from batch_rl.dataset.store import store_directory
from batch_rl.dataset.unplugged import file_names, reader
from batch_rl.utils import files, number_ranges, staging_directory

_DOPAMINE, _RLDS, _UNPLUGGED = 'dopamine', 'rlds', 'unplugged'
# Options that a format does not have.
_WRONG_OPTIONS = {
  _DOPAMINE: ('game', 'run', 'checkpoints', 'last_step'),
  _RLDS: ('run',),
  _UNPLUGGED: (),
}


def add(commands: Any) -> None:
  """Adds the commands `import` and `export`."""
  command = console.add_command(commands, _import, 'import')
  argument_types.add_path(
    command,
    'input_dir',
    'folder with shards; folder with files of RL Unplugged, e.g. '
    '.../atari_episodes_ordered/Pong; or the version directory of a TFDS dataset, '
    'e.g. .../rlu_atari/Pong_run_1/1.3.0',
    metavar='source',
  )
  argument_types.add_path(command, 'destination', 'store to create')
  episodes = command.add_argument_group(
    'options for TFDS datasets and RL Unplugged files'
  )
  episodes.add_argument(
    '--game',
    type=argument_types.game,
    help='name of the game, if the dataset or its folder does not name it',
  )
  meaning = 'run to read, if a folder has RL Unplugged files of several runs'
  argument_types.add_number(episodes, '--run', 0, 10**9, meaning)
  episodes.add_argument(
    '--checkpoints',
    metavar='A-B',
    help='checkpoints to import: splits checkpoint_00, checkpoint_01, ..., or files '
    'run_1-00000-of-00050, ...; default: all',
  )
  argument_types.add_last_step(episodes)
  command = console.add_command(commands, _export, 'export')
  argument_types.add_run_directory(command)
  argument_types.add_path(command, 'destination', 'directory to create')
  command.add_argument(
    '--format',
    choices=['shards', 'rlds', 'minari'],
    required=True,
    help='shards: files in the layout of the DQN Replay Dataset, below '
    '<destination>/replay_logs; rlds: a TFDS dataset like rlu_atari; minari: an HDF5 '
    'dataset of Minari with uncompressed frames (7 kB each)',
  )
  command.add_argument(
    '--subset',
    metavar='SUBSET',
    help="subset of trajectories, e.g. 'random_trajectories(0.1)'; default: all",
  )


def _recognise(path: str) -> str:
  """Returns the format of a file or directory, by the names of its files.

  Args:
    path: Version directory of a TFDS dataset; a file of RL Unplugged, or a folder of
      such files; anything else, and a remote path, is taken for shards or a store.

  Raises:
    ValueError: If it is a folder above those of RL Unplugged's games.
  """
  if files.is_remote(path):
    return _DOPAMINE
  full = os.path.abspath(path)  # `.` and `..` have names, too.
  name = os.path.basename(full)
  names = os.listdir(path) if os.path.isdir(path) else []
  if rlds_import.INFO in names:
    return _RLDS
  if any(map(file_names.parse, [name, *names])):
    return _UNPLUGGED
  folder = file_names.FOLDER
  if folder in names or name == folder:
    above = full if name == folder else os.path.join(full, folder)
    raise ValueError(
      f'{path} has the games of RL Unplugged; choose one, e.g. '
      f'{os.path.join(above, "Pong")}.'
    )
  return _DOPAMINE


def _import(arguments: argparse.Namespace) -> int:
  """Imports data in another layout or format as a store.

  The format is recognised by the names of the files. Shards of the Dopamine format may
  have other prefixes, and folders of their own. TFDS datasets must have the features of
  rlu_atari. The same command resumes an interrupted import. Exit code 0 if everything was
  imported, 1 if a shard was left out, 2 for a wrong argument.
  """
  source = arguments.input_dir
  input_format = _recognise(source)
  what = f'{source}, read as {input_format} data'
  # A folder without shards may be a misspelt one of another format.
  shards = None
  if input_format == _DOPAMINE:
    shards = shard_discovery.DiscoveredShards(source)
  argument_types.check_options(arguments, _WRONG_OPTIONS[input_format], what)
  argument_types.check_outside(arguments.destination, source)
  if shards:
    return _import_dopamine(arguments, shards)
  if input_format == _RLDS:
    return _import_episodes(
      arguments, rlds_import.RldsReader(source, arguments.checkpoints)
    )
  unplugged = reader.UnpluggedReader(
    source, arguments.game, arguments.run, arguments.checkpoints
  )
  return _import_episodes(arguments, unplugged)


def _import_episodes(
  arguments: argparse.Namespace, source: episode_import.EpisodeReader
) -> int:
  """Imports a dataset of episodes, which may lack some files."""
  directory = arguments.destination
  summary = store_import.import_parts(
    source, directory, arguments.game, arguments.last_step or 'auto'
  )
  if left_out := summary.get('left_out'):
    lines = [f'left out: {reason}' for reason in left_out.values()]
    lines.append(
      f'{directory} cannot be used yet: replace these files and run the same import '
      'again, or choose others with --checkpoints'
    )
    console.show(arguments, summary, lines)
    return 1
  # An earlier import may have had other files.
  imported = store_directory.list_shards(directory)
  summary['missing'] = sorted(set(source.missing) - set(imported))
  console.show(arguments, summary, describe(summary))
  return 0


def _import_dopamine(
  arguments: argparse.Namespace, shards: shard_discovery.DiscoveredShards
) -> int:
  directory, first = arguments.destination, min(shards.contents)
  if not arguments.json:
    numbers = number_ranges.brief([*shards.contents])
    lines = [f'shards {numbers}, e.g. {shards.path(first, "observation")}']
    lines += [f'ignored: {name}' for name in shards.ignored]
    lines += [f'missing: {line}' for line in shards.left_out]
    print('\n'.join(lines), flush=True)
  notes = dopamine_import.import_store(shards, directory)
  document = {
    'source': shards.input_dir,
    'destination': directory,
    'shards': sorted(shards.contents),
    'ignored': shards.ignored,
    'left_out': shards.left_out,
    'notes': notes,
  }
  lines = [f'note: {line}' for line in notes]
  lines.append(f'{directory}: {len(shards.contents)} shards')
  console.show(arguments, document, lines)
  return int(bool(shards.left_out))


def _export(arguments: argparse.Namespace) -> int:
  """Exports a run as shards, or as a dataset of another library.

  The destination appears only when it is complete.
  """
  destination, subset = arguments.destination, arguments.subset
  if subset is not None:
    subsets.parse(subset)  # before the run is read
  run = console.one_run(arguments)
  argument_types.check_outside(destination, run.data_dir)
  staging_directory.check_new(destination)
  opener: episode_export.OpenWriter = shards_export.open_writer
  if arguments.format == 'rlds':
    opener = rlds_export.opener()
  elif arguments.format == 'minari':
    opener = minari_export.opener(destination)
  summary = episode_export.export(run, destination, opener, subset)
  console.show(arguments, summary, describe(summary))
  return 0


def describe(summary: dict[str, Any]) -> list[str]:
  """Returns the lines that report an import or export."""
  lines = [
    f'{summary["destination"]}: {summary["game"]}, {summary["episodes"]:,} '
    f'episodes, {summary["steps"]:,} steps, hash {summary["hash"]}'
  ]
  if 'last_step' in summary:
    assumed = ''
    if summary.get('last_step_assumed'):
      assumed = ', assumed: no terminal step has a reward to infer it from'
    lines.append(f'terminal steps: {summary["last_step"]}{assumed}')
  if summary.get('order') == 'as stored':
    lines.append(
      'note: the dataset was shuffled; episodes are in the order of its files.'
    )
  if missing := summary.get('missing'):
    numbers = number_ranges.brief(missing)
    lines.append(f'note: there are no files of checkpoints {numbers}.')
  if summary.get('skipped'):
    lines.append(f'note: {summary["skipped"]:,} episodes have no transition.')
  if summary['truncated']:
    lines.append(
      f'note: {summary["truncated"]:,} episodes are truncated: they have no '
      'terminal, and no observation after their last row.'
    )
  lines += [f'note: {doubt}.' for doubt in summary.get('doubts', [])]
  if 'dataset_id' in summary:
    lines.append(
      f'minari.load_dataset({summary["dataset_id"]!r}), environment '
      f'{summary["environment"] or "not known"}'
    )
  return lines
