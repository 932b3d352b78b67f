"""The command `convert`."""

import argparse
import os
from typing import Any

from batch_rl.dataset.commands import argument_types, console
from batch_rl.dataset.store import packed_shard, store


def add(commands: Any) -> None:
  """Adds the command to a parser's subcommands."""
  command = console.add_command(commands, _convert, 'convert')
  argument_types.add_run_directory(command)
  argument_types.add_path(command, 'store', 'store to create')


def _convert(arguments: argparse.Namespace) -> int:
  """Compresses a run into a store.

  --replay_dir and these tools accept stores as well as runs. The same command resumes
  an interrupted conversion.
  """
  run = console.one_run(arguments)
  argument_types.check_outside(arguments.store, run.data_dir)
  converted = store.convert(run.data_dir, arguments.store)
  paths = [packed_shard.paths(arguments.store, n) for n in converted.suffixes]
  size = sum(os.path.getsize(path) for pair in paths for path in pair)
  document = {
    'store': arguments.store,
    'shards': len(converted.suffixes),
    'rows': converted.rows,
    'bytes': size,
    'bytes_per_row': size / max(converted.rows, 1),
  }
  line = (
    f'{arguments.store}: {document["shards"]} shards, {converted.rows:,} rows, '
    f'{console.size(size)}, {document["bytes_per_row"]:.1f} bytes a row'
  )
  console.show(arguments, document, [line])
  return 0
