"""The command `fetch`."""

import argparse
import dataclasses
import os
import sys
from collections.abc import Sequence
from typing import Any

import tqdm.auto as tqdm

from batch_rl.dataset.commands import argument_types, console
from batch_rl.dataset.fetch import fetcher, remote_kinds, remotes
from batch_rl.dataset.fetch import plan as plan_lib
from batch_rl.utils import files, number_ranges


def add(commands: Any) -> None:
  """Adds the command to a parser's subcommands."""
  command = console.add_command(
    commands,
    'fetch',
    _fetch,
    'fetch runs, or some of their shards. Each file is verified as it arrives. '
    'The same command resumes an interrupted fetch. Exit code 0 if everything is '
    'in place, 1 if something is missing, 2 for a wrong argument.',
  )
  command.add_argument(
    'source',
    type=argument_types.path,
    help='root of a dataset, the folder above the games: http(s)://, gs:// (pip '
    'install "batch_rl[fetch]"), a local folder, or another URL that fsspec can '
    'read, e.g. s3:// (pip install s3fs)',
  )
  command.add_argument(
    '--game',
    nargs='+',
    required=True,
    metavar='GAME',
    type=argument_types.game,
    help='games, e.g. Pong Breakout',
  )
  command.add_argument(
    '--run',
    required=True,
    dest='runs',
    metavar='N',
    help='runs, e.g. 1-5 or 2,4',
  )
  command.add_argument(
    '--shards', metavar='N', help='shards, e.g. 0-4,50; default: all'
  )
  command.add_argument(
    '--data_dir',
    default=os.environ.get('DATA_DIR') or None,
    type=argument_types.path,
    help='local root of the dataset; default: $DATA_DIR',
  )
  command.add_argument(
    '--dry_run', action='store_true', help='print the plan without fetching'
  )
  for name, default, least, most, meaning in (
    ('jobs', 4, 1, 1000, 'files fetched in parallel'),
    ('retries', 8, 0, 10**6, 'consecutive retries of a file without progress'),
    (
      'timeout',
      60,
      1,
      10**6,
      'seconds without data before an HTTP request fails',
    ),
  ):
    command.add_argument(
      f'--{name}',
      default=default,
      type=argument_types.number(least, most),
      metavar='N',
      help=f'{meaning}; default: {default}',
    )


def _fetch(arguments: argparse.Namespace) -> int:
  runs = number_ranges.parse(arguments.runs, '--run')
  shards = None
  if arguments.shards is not None:
    shards = number_ranges.parse(arguments.shards, '--shards')
  if not arguments.data_dir:
    console.fail('there is no destination: give --data_dir or set DATA_DIR.')
  files.check_local(arguments.data_dir)
  argument_types.check_outside(arguments.data_dir, arguments.source)
  if len(set(arguments.game)) < len(arguments.game):
    console.fail(f'--game={" ".join(arguments.game)} repeats a game.')
  remote = remote_kinds.connect(arguments.source, arguments.timeout)
  try:
    plans = plan_lib.make_plan(
      remote,
      arguments.game,
      runs,
      shards,
      arguments.data_dir,
      arguments.jobs,
    )
  except remotes.RemoteError as error:
    message = str(error)
    if isinstance(error, remotes.TransientError):
      message = f'{remote.name} cannot be reached: {message}.'
    print(f'error: {message}', file=sys.stderr)
    return 1
  document = {
    'source': remote.name,
    'data_dir': arguments.data_dir,
    'runs': [_describe(plan, arguments.dry_run) for plan in plans],
    'bytes_to_fetch': plan_lib.bytes_to_fetch(plans),
  }
  if arguments.dry_run:
    missing = [line for plan in plans for line in plan.missing]
    document |= {'ok': not missing, 'missing': missing}
    if arguments.json:
      console.print_json(document)
    else:
      _print_plans(plans, arguments.data_dir)
    return int(bool(missing))
  plan_lib.check_disk_space(plans, arguments.data_dir)
  result = fetcher.Fetcher(
    remote,
    arguments.jobs,
    arguments.retries,
    (lambda line: None) if arguments.json else _log,
  ).fetch(plans)
  if arguments.json:
    console.print_json(
      {**document, 'ok': not result.wrong, **dataclasses.asdict(result)}
    )
  else:
    _print_result(result, plans)
  return int(bool(result.wrong))


def _log(line: str) -> None:
  tqdm.tqdm.write(line)  # above the progress bar
  sys.stdout.flush()


def _describe(plan: plan_lib.RunPlan, with_files: bool) -> dict[str, Any]:
  document: dict[str, Any] = {
    'game': plan.game,
    'run': plan.number,
    'directory': os.path.dirname(plan.data_dir),
    'shards': plan.suffixes,
  }
  if with_files:
    document['files'] = [dataclasses.asdict(file) for file in plan.files]
  return document


def _print_plans(plans: Sequence[plan_lib.RunPlan], destination: str) -> None:
  lines = [['run', 'shard', 'files', 'size', 'to fetch']]
  for plan in plans:
    for suffix in plan.suffixes:
      shard_files = [file for file in plan.files if file.suffix == suffix]
      sizes = [file.size for file in shard_files if file.size is not None]
      complete = len(sizes) == len(shard_files)
      part = dataclasses.replace(plan, files=shard_files)
      lines.append(
        [
          plan.title,
          str(suffix),
          str(len(shard_files)),
          console.size(sum(sizes) if complete else None),
          console.size(plan_lib.bytes_to_fetch([part])),
        ]
      )
  console.print_table(lines)
  for plan in plans:
    for line in plan.missing:
      print(f'missing: {line}')
  size = console.size(plan_lib.bytes_to_fetch(plans))
  print(f'{size} would be fetched to {destination}')


def _print_result(
  result: fetcher.Result, plans: Sequence[plan_lib.RunPlan]
) -> None:
  for line in result.notes:
    print(f'note: {line}')
  for line in result.wrong:
    print(f'missing: {line}')
  rate = console.size(int(result.bytes / max(result.seconds, 1e-9)))
  verdict = 'NOT complete' if result.wrong else 'complete'
  directories = ', '.join(
    os.path.dirname(plan.data_dir) for plan in plans if plan.files
  )
  print(
    f'{directories}: {verdict} ({result.fetched} files fetched, {result.there} '
    f'already in place, {console.size(result.bytes)} in {result.seconds:,.0f} s, {rate}/s)'
  )
