"""The command `verify`."""

import argparse
import collections
from typing import Any

from batch_rl.dataset import run_directories
from batch_rl.dataset.checks import run_checks, shard_checks
from batch_rl.dataset.commands import argument_types, compare, console
from batch_rl.dataset.comparison import copies, fingerprints
from batch_rl.dataset.shards import shard_reader


def add(commands: Any) -> None:
  """Adds the command to a parser's subcommands."""
  command = console.add_command(commands, _verify, 'verify')
  argument_types.add_run_directory(command)
  command.add_argument(
    '--all', action='store_true', help='verify all runs below the directory'
  )
  argument_types.add_path(
    command,
    '--fingerprints',
    'also compare the transitions with a file that `fingerprint` printed for another '
    'copy, or with one of the package, e.g. Pong-1-sample',
    metavar='FILE',
  )


def _verify(arguments: argparse.Namespace) -> int:
  """Checks every file of a run.

  Reads each once, and checks checksums, format, hashes of the manifest, gaps, values
  and suspicious data. Exit code 0 if ok, 1 if not, 2 for a wrong argument or a store
  that cannot be opened.
  """
  name = arguments.fingerprints
  if arguments.all and name:
    raise ValueError('--fingerprints are those of one run; remove --all.')
  fingerprint = fingerprints.read(name) if name else None
  if arguments.all:
    runs = run_directories.find_runs(arguments.directory)
  else:
    runs = [console.one_run(arguments, 'choose one, or add --all')]
  if fingerprint:
    fingerprints.check_game(name, fingerprint, runs[0])
  documents, wrong = [], []
  for run in runs:
    try:
      if run.is_store:
        report = run_checks.verify_store(run)
      else:
        report = run_checks.verify(run.data_dir, f'{run.game}/{run.name}')
    except (ValueError, shard_reader.ReadError) as error:
      if not arguments.all:
        raise
      finding = shard_checks.Finding('error', run.data_dir, str(error))
      report = run_checks.Report(run.data_dir, [], [finding], 0)
    if fingerprint:
      report = report.with_findings(_check_fingerprint(run, name, fingerprint))
    if report.problems:
      wrong.append(run.directory)
    documents.append({'run': run.directory, **report.to_json()})
    if not arguments.json:
      print('\n'.join(_describe(run, report)), flush=True)
  if arguments.all:
    verdict = f'PROBLEMS FOUND: {", ".join(wrong)}' if wrong else 'ok'
    document = {'ok': not wrong, 'runs': documents}
    console.show(arguments, document, [f'{len(runs)} runs: {verdict}'])
  else:
    console.show(arguments, documents[0], [])
  return int(bool(wrong))


def _check_fingerprint(
  run: run_directories.RunDirectory, name: str, expected: dict[str, Any]
) -> list[shard_checks.Finding]:
  """Returns the findings of a comparison with a fingerprint."""
  try:
    copy = copies.Copy(run)
    # A file of an earlier version does not tell.
    copy.is_atari = expected.get('clipped_rewards', copy.is_atari)
    compare.read_copy(copy)
    actual = fingerprints.make(copy)
    found = fingerprints.compare(name, expected, actual, copy.uncertain)
  except (ValueError, shard_reader.ReadError) as error:
    reason = str(error).rstrip('.')
    found = [('error', f'it cannot be compared with {name}: {reason}')]
  return [
    shard_checks.Finding(level, run.data_dir, f'{run.directory}: {line}.')
    for level, line in found
  ]


def _describe(
  run: run_directories.RunDirectory, report: run_checks.Report
) -> list[str]:
  lines = [
    f'shard {entry["shard"]}: {console.number(entry["rows"])} rows, '
    f'{console.number(entry["episodes"])} episodes end'
    for entry in report.shards
  ]
  lines += [f'{found.level}: {found.message}' for found in report.findings]
  levels = collections.Counter(found.level for found in report.findings)
  counts = ''.join(f', {level}: {n}' for level, n in levels.items())
  verdict = 'PROBLEMS FOUND' if report.problems else 'ok'
  total = f'{len(report.shards)} shards, {console.size(report.bytes)}{counts}'
  return [*lines, f'{run.directory}: {verdict} ({total})']
