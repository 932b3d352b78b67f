"""The command `fetch`."""

import argparse
import dataclasses
import os
import sys
from collections.abc import Sequence
from typing import Any

import psutil
import tqdm

from batch_rl.dataset.commands import argument_types, console, import_export
from batch_rl.dataset.fetch import (
  fetched_run,
  fetcher,
  fsspec_remote,
  remotes,
  shard_run,
  unplugged_run,
)
from batch_rl.dataset.fetch import plan as plan_lib
from batch_rl.utils import files, number_ranges


def add(commands: Any) -> None:
  """Adds the command to a parser's subcommands."""
  command = console.add_command(commands, _fetch, 'fetch')
  add = command.add_argument
  argument_types.add_path(
    command,
    'source',
    'root of a dataset, the folder above the games: http(s)://, gs:// (pip '
    'install "batch_rl[fetch]"), a local folder, or another URL that fsspec can '
    'read, e.g. s3:// (pip install s3fs); for RL Unplugged gs://rl_unplugged or '
    'https://storage.googleapis.com/rl_unplugged',
  )
  add(
    '--layout',
    choices=['dopamine', 'unplugged'],
    default='dopamine',
    help='layout of the source: dopamine, shards as in the DQN Replay Dataset; '
    'unplugged, episodes of the same runs as in RL Unplugged. default: dopamine',
  )
  add(
    '--game',
    nargs='+',
    required=True,
    metavar='GAME',
    type=argument_types.game,
    help='games, e.g. Pong Breakout',
  )
  add('--run', required=True, metavar='N', help='runs, e.g. 1-5 or 2,4')
  add('--shards', metavar='N', help='shards, e.g. 0-4,50; default: all')
  unplugged = command.add_argument_group('options for --layout=unplugged')
  unplugged.add_argument(
    '--checkpoints', metavar='N', help='checkpoints, e.g. 0-4,49; default: all'
  )
  argument_types.add_last_step(unplugged)
  argument_types.add_path(
    command,
    '--data_dir',
    'local root of the dataset; default: $DATA_DIR',
    default=os.environ.get('DATA_DIR') or None,
  )
  add('--dry_run', action='store_true', help='print the plan without fetching')
  for name, least, most, meaning, default in (
    ('--jobs', 1, 1000, 'shards or checkpoints fetched in parallel', 4),
    ('--retries', 0, 10**6, 'consecutive retries per file without progress', 8),
    ('--timeout', 1, 10**6, 'seconds an HTTP request waits for data', 60),
  ):
    text = f'{meaning}; default: {default}'
    argument_types.add_number(command, name, least, most, text, default=default)


def _fetch(arguments: argparse.Namespace) -> int:
  """Fetches runs, or some of their shards.

  Each file is verified as it arrives. RL Unplugged's files become stores as they
  arrive. The same command resumes an interrupted fetch. Exit code 0 if everything is in
  place, 1 if something is missing, 2 for a wrong argument.
  """
  run_numbers = number_ranges.parse(arguments.run, '--run')
  is_unplugged = arguments.layout == 'unplugged'
  wrong = ('shards',) if is_unplugged else ('checkpoints', 'last_step')
  argument_types.check_options(arguments, wrong, f'--layout={arguments.layout}')
  option = 'checkpoints' if is_unplugged else 'shards'
  text, numbers = getattr(arguments, option), None
  if text is not None:
    numbers = number_ranges.parse(text, f'--{option}')
  data_dir = arguments.data_dir
  if not data_dir:
    raise ValueError('no destination: give --data_dir or set DATA_DIR.')
  files.check_local(data_dir)
  argument_types.check_outside(data_dir, arguments.source)
  if len(set(arguments.game)) < len(arguments.game):
    raise ValueError(f'--game={" ".join(arguments.game)} repeats a game.')
  remote = connect(arguments.source, arguments.timeout)
  runs = [
    _make_run(arguments, remote.name, game, number)
    for game in arguments.game
    for number in run_numbers
  ]
  try:
    plan_lib.make_plan(remote, runs, numbers, arguments.jobs)
  except remotes.RemoteError as error:
    message = str(error)
    if isinstance(error, remotes.TransientError):
      message = f'{remote.name} cannot be reached: {message}.'
    print(f'error: {message}', file=sys.stderr)
    return 1
  needed = fetched_run.bytes_to_fetch(runs)
  document: dict[str, Any] = {
    'source': remote.name,
    'data_dir': data_dir,
    'runs': [
      {
        'game': run.game,
        'run': run.number,
        'directory': run.directory,
        'shards': run.suffixes,
        'files': [file._asdict() for file in run.files],
      }
      for run in runs
    ],
    'bytes_to_fetch': needed,
  }
  purpose = f'{console.size(needed)} to fetch'
  if is_unplugged:
    need = unplugged_run.disk_need(runs, arguments.jobs)
    document['disk'] = need
    purpose += (
      f'; disk space: about {console.size(need["store_bytes"])} for the store '
      f'({unplugged_run.STORE_RATIO} B for each raw byte), and '
      f'{console.size(need["raw_bytes"])} for raw files, at most '
      f'{need["raw_files"]} at a time'
    )
    needed = need['raw_bytes'] + need['store_bytes']
  if arguments.dry_run:
    missing = [line for run in runs for line in run.missing]
    lines = [
      f'{run.title}: {run.unit}s {number_ranges.brief(run.suffixes)}, '
      f'{len(run.files)} files, '
      f'{console.size(fetched_run.bytes_to_fetch([run]))} to fetch'
      for run in runs
    ]
    lines += [f'missing: {line}' for line in missing]
    lines.append(f'{purpose} (to {data_dir})')
    document |= {'ok': not missing, 'missing': missing}
    console.show(arguments, document, lines)
    return int(bool(missing))
  _check_disk_space(needed, purpose, data_dir)
  if is_unplugged and needed and not arguments.json:
    print(purpose, flush=True)
  log = (lambda line: None) if arguments.json else _log
  fetching = fetcher.Fetcher(remote, arguments.jobs, arguments.retries, log)
  result = fetching.fetch(runs)
  document |= {'ok': not result.wrong, **dataclasses.asdict(result)}
  console.show(arguments, document, _summarize(result, runs))
  return int(bool(result.wrong))


def _make_run(
  arguments: argparse.Namespace, source: str, game: str, number: int
) -> fetched_run.FetchedRun:
  """Returns a run in the layout of the source, with its local directory."""
  directory = os.path.join(arguments.data_dir, game, str(number))
  if arguments.layout == 'unplugged':
    return unplugged_run.UnpluggedRun(
      source, game, number, directory, arguments.last_step
    )
  return shard_run.ShardRun(source, game, number, directory)


def _check_disk_space(needed: int, purpose: str, destination: str) -> None:
  """Raises a ValueError if bytes would not fit on the disk.

  Args:
    needed: Number of bytes.
    purpose: Purpose of the bytes, for the message.
    destination: Local root of the dataset, which may not exist yet.
  """
  folder = os.path.abspath(destination)
  while not os.path.exists(folder):
    folder = os.path.dirname(folder)
  free = psutil.disk_usage(folder).free
  if needed > free:
    raise ValueError(
      f'{console.size(needed)} are needed ({purpose}), but only '
      f'{console.size(free)} are free in {folder}: choose less, or another --data_dir.'
    )


def connect(url: str, timeout: float) -> remotes.Remote:
  """Returns the remote at a URL or a local path.

  Args:
    url: Root of a dataset.
    timeout: Seconds without data before an HTTP request fails.

  Raises:
    ValueError: If the kind of URL is unknown, or needs a missing package.
  """
  if url.startswith(('http://', 'https://')):
    from batch_rl.dataset.fetch import http_remote  # slow to import

    return http_remote.HttpRemote(url, timeout)
  return fsspec_remote.FsspecRemote(url)


def _log(line: str) -> None:
  tqdm.tqdm.write(line)  # above the progress bar
  sys.stdout.flush()


def _summarize(
  result: fetcher.Result, runs: Sequence[fetched_run.FetchedRun]
) -> list[str]:
  lines = [line for s in result.stores for line in import_export.describe(s)]
  lines += [f'note: {line}' for line in result.notes]
  lines += [f'missing: {line}' for line in result.wrong]
  rate = console.size(int(result.bytes / max(result.seconds, 1e-9)))
  verdict = 'NOT complete' if result.wrong else 'complete'
  directories = ', '.join(run.directory for run in runs if run.files)
  return [
    *lines,
    f'{directories}: {verdict} ({result.fetched} files fetched, {result.there} '
    f'already in place, {console.size(result.bytes)} in {result.seconds:,.0f} s, '
    f'{rate}/s)',
  ]
