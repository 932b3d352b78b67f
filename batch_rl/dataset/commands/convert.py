"""The command `convert`."""

import argparse
import os
from typing import Any

import tqdm.auto as tqdm

from batch_rl.dataset.commands import argument_types, console
from batch_rl.dataset.shards import shard_files, stitching
from batch_rl.dataset.store import packed_shard, store


def add(commands: Any) -> None:
  """Adds the command to a parser's subcommands."""
  command = console.add_command(
    commands,
    'convert',
    _convert,
    'compress a run into a store. --replay_dir and these tools accept stores as '
    'well as runs. The same command resumes an interrupted conversion.',
  )
  command.add_argument(
    'directory', type=argument_types.path, help=console.DIRECTORY
  )
  command.add_argument(
    'store', type=argument_types.path, help='store to create'
  )


def _convert(arguments: argparse.Namespace) -> int:
  run = console.one_run(arguments)
  if run.is_store:
    console.fail(f'{arguments.directory} is already a store.')
  argument_types.check_outside(arguments.store, run.data_dir)
  suffixes = shard_files.list_suffixes(run.data_dir)
  placements, _ = stitching.place(run.data_dir, suffixes)
  with tqdm.tqdm(
    total=sum(placement.capacity for placement in placements),
    unit='row',
    unit_scale=True,
    disable=None,
  ) as bar:
    converted = store.convert(run.data_dir, arguments.store, bar.update)
  size = sum(
    os.path.getsize(path)
    for suffix in converted.suffixes
    for path in packed_shard.paths(arguments.store, suffix)
  )
  document = {
    'store': arguments.store,
    'shards': len(converted.suffixes),
    'rows': converted.rows,
    'bytes': size,
    'bytes_per_row': size / max(converted.rows, 1),
  }
  if arguments.json:
    console.print_json(document)
  else:
    print(
      f'{arguments.store}: {len(converted.suffixes)} shards, '
      f'{converted.rows:,} rows, {console.size(size)}, '
      f'{document["bytes_per_row"]:.1f} bytes a row'
    )
  return 0
