"""The command `fetch`."""

import argparse
import dataclasses
import os
import sys
from collections.abc import Sequence
from typing import Any

import tqdm.auto as tqdm

from batch_rl.dataset.commands import console
from batch_rl.dataset.fetch import fetcher as fetcher_lib
from batch_rl.dataset.fetch import remote_sources
from batch_rl.dataset.shards import shard_files
from batch_rl.utils import files, number_ranges


def add(commands: Any) -> None:
  """Adds it to the commands."""
  command = console.add_command(
    commands,
    'fetch',
    _fetch,
    'fetch runs, or some of their shards. Each file is verified as it arrives. '
    'Start it again to go on where it was stopped. Exit code 0 if all of it is '
    'there, 1 if something is missing, 2 for a wrong argument.',
  )
  command.add_argument(
    'source',
    help='the root of a dataset, above <Game>/<run>/replay_logs: http(s)://, '
    'gs:// (pip install "batch_rl[fetch]"), a folder, or another URL that fsspec '
    'can read, e.g. s3:// (pip install s3fs)',
  )
  command.add_argument(
    '--game',
    nargs='+',
    required=True,
    metavar='GAME',
    help='e.g. Pong Breakout',
  )
  command.add_argument(
    '--run', required=True, dest='runs', metavar='N', help='e.g. 1-5, or 2,4'
  )
  command.add_argument(
    '--shards', metavar='N', help='e.g. 0-4,50; default: all that a run has'
  )
  command.add_argument(
    '--data_dir',
    default=os.environ.get('DATA_DIR'),
    help='where <Game>/<run>/replay_logs goes; default: $DATA_DIR',
  )
  command.add_argument(
    '--dry_run', action='store_true', help='show what would be fetched'
  )
  for name, default, least, what in (
    ('jobs', 4, 1, 'files at once'),
    ('retries', 8, 0, 'in a row, for a file of which no byte comes'),
    ('timeout', 60, 1, 'seconds without a byte, of http(s)'),
  ):
    command.add_argument(
      f'--{name}',
      default=default,
      type=console.at_least(least),
      metavar='N',
      help=f'{what}; default: {default}',
    )


def _fetch(arguments: argparse.Namespace) -> int:
  runs = number_ranges.parse(arguments.runs, '--run')
  shards = arguments.shards and number_ranges.parse(
    arguments.shards, '--shards'
  )
  if not arguments.data_dir:
    console.fail('say where to with --data_dir, or set DATA_DIR.')
  files.check_local(arguments.data_dir)
  if len(set(arguments.game)) < len(arguments.game):
    console.fail(f'--game={" ".join(arguments.game)} has a game twice.')
  source = remote_sources.connect(arguments.source, arguments.timeout)
  try:
    planned = fetcher_lib.plan(
      source,
      arguments.game,
      runs,
      shards,
      arguments.data_dir,
      arguments.jobs,
    )
  except (remote_sources.Refused, remote_sources.Interrupted) as error:
    message = str(error)
    if isinstance(error, remote_sources.Interrupted):
      message = f'{source.name} cannot be reached: {message}.'
    print(f'error: {message}', file=sys.stderr)
    return 1
  document = {
    'source': source.name,
    'data_dir': arguments.data_dir,
    'runs': [_describe_fetch(run, arguments.dry_run) for run in planned],
    'bytes_to_fetch': fetcher_lib.bytes_to_fetch(planned),
  }
  if arguments.dry_run:
    wrong = [line for run in planned for line in run.missing]
    document |= {'ok': not wrong, 'missing': wrong}
    if arguments.json:
      console.print_json(document)
    else:
      _print_plan(planned, arguments.data_dir)
    return int(bool(wrong))
  fetcher_lib.check_room(planned, arguments.data_dir)
  fetcher = fetcher_lib.Fetcher(
    source,
    arguments.jobs,
    arguments.retries,
    (lambda line: None) if arguments.json else _say,
  )
  result = fetcher.fetch(planned)
  if arguments.json:
    console.print_json(
      {**document, 'ok': not result.wrong, **dataclasses.asdict(result)}
    )
  else:
    _print_result(result, planned)
  return int(bool(result.wrong))


def _say(line: str) -> None:
  tqdm.tqdm.write(line)  # above the bar
  sys.stdout.flush()


def _describe_fetch(run: fetcher_lib.Run, with_files: bool) -> dict[str, Any]:
  document: dict[str, Any] = {
    'game': run.game,
    'run': run.number,
    'directory': os.path.dirname(run.logs),
    'shards': run.suffixes,
  }
  if with_files:
    document['files'] = [dataclasses.asdict(file) for file in run.files]
  return document


def _print_plan(runs: Sequence[fetcher_lib.Run], data_dir: str) -> None:
  lines = [['run', 'shard', 'files', 'size', 'to fetch']]
  for run in runs:
    for suffix in run.suffixes:
      own = [f for f in run.files if shard_files.suffix_of(f.name) == suffix]
      sizes = [file.size for file in own if file.size is not None]
      part = dataclasses.replace(run, files=own)
      lines.append(
        [
          run.title,
          str(suffix),
          str(len(own)),
          console.size(sum(sizes) if len(sizes) == len(own) else None),
          console.size(fetcher_lib.bytes_to_fetch([part])),
        ]
      )
  console.print_table(lines)
  for run in runs:
    for line in run.missing:
      print(f'missing: {line}')
  print(
    f'{console.size(fetcher_lib.bytes_to_fetch(runs))} would be fetched to {data_dir}'
  )


def _print_result(
  result: fetcher_lib.Result, runs: Sequence[fetcher_lib.Run]
) -> None:
  for line in result.notes:
    print(f'note: {line}')
  for line in result.wrong:
    print(f'missing: {line}')
  rate = console.size(int(result.bytes / max(result.seconds, 1e-9)))
  verdict = 'NOT complete' if result.wrong else 'complete'
  where = ', '.join(os.path.dirname(run.logs) for run in runs if run.files)
  print(
    f'{where}: {verdict} ({result.fetched} files fetched, {result.there} were '
    f'there, {console.size(result.bytes)} in {result.seconds:,.0f} s, {rate}/s)'
  )
