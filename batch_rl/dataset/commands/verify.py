"""The command `verify`."""

import argparse
import dataclasses
from typing import Any

from batch_rl.dataset import run_directories
from batch_rl.dataset.checks import run_checks, shard_checks
from batch_rl.dataset.commands import argument_types, compare, console
from batch_rl.dataset.comparison import copies, fingerprints


def add(commands: Any) -> None:
  """Adds the command to a parser's subcommands."""
  command = console.add_command(commands, _verify, 'verify')
  argument_types.add_run_directory(command)
  command.add_argument(
    '--all', action='store_true', help='verify all runs below the directory'
  )
  command.add_argument(
    '--fingerprints',
    metavar='FILE',
    help='also compare the transitions with a file that `fingerprint` printed for '
    'another copy, or with one of the package, e.g. Pong-1-sample',
  )


def _verify(arguments: argparse.Namespace) -> int:
  """Checks every file of a run.

  Reads each once, and checks checksums, format, hashes of the manifest, gaps, values
  and suspicious data. Exit code 0 if all is well, 1 if not, 2 for a wrong argument.
  """
  if arguments.all and arguments.fingerprints:
    raise ValueError('--fingerprints are those of one run; remove --all.')
  name, fingerprint = arguments.fingerprints, None
  if name:
    fingerprint = fingerprints.read(name)
  if arguments.all:
    runs = run_directories.find_runs(arguments.directory)
  else:
    runs = [console.one_run(arguments, 'choose one, or add --all')]
  if fingerprint:
    fingerprints.check_game(name, fingerprint, runs[0])
  documents, wrong = [], []
  for run in runs:
    report = _check(run, arguments.all)
    if fingerprint:
      report = _check_fingerprint(run, report, name, fingerprint)
    if report.problems:
      wrong.append(run.directory)
    documents.append({'run': run.directory, **report.to_json()})
    if not arguments.json:
      print('\n'.join(_describe(run, report)), flush=True)
  if arguments.all:
    verdict = f'NOT well: {", ".join(wrong)}' if wrong else 'all is well'
    document = {'ok': not wrong, 'runs': documents}
    console.show(arguments, document, [f'{len(runs)} runs: {verdict}'])
  else:
    console.show(arguments, documents[0], [])
  return int(bool(wrong))


def _check(
  run: run_directories.RunDirectory, one_of_many: bool
) -> run_checks.Report:
  """Verifies a run; with `--all`, an unreadable run is reported as a finding."""
  try:
    if run.is_store:
      return run_checks.verify_store(run)
    return run_checks.verify(run.data_dir, f'{run.game}/{run.name}')
  except ValueError as error:
    if not one_of_many:
      raise
    finding = shard_checks.Finding('error', run.data_dir, str(error))
    return run_checks.Report(run.data_dir, [], [finding], 0)


def _check_fingerprint(
  run: run_directories.RunDirectory,
  report: run_checks.Report,
  name: str,
  expected: dict[str, Any],
) -> run_checks.Report:
  """Adds the findings of a comparison with a fingerprint to a report."""
  try:
    copy = copies.LoggedCopy(run)
    # A file of an earlier version does not tell.
    copy.is_atari = expected.get('clipped_rewards', copy.is_atari)
    compare.read_copy(copy)
  except ValueError as error:
    reason = str(error).rstrip('.')
    found = [('error', f'it cannot be compared with {name}: {reason}')]
  else:
    actual = fingerprints.make(copy)
    found = fingerprints.differences(expected, actual, copy.uncertain)
    if all(level == 'note' for level, _ in found) and (
      ('note', fingerprints.NOTHING_COMPARED) not in found
    ):
      found.append(('note', f'its transitions are those of {name}'))
  findings = report.findings + [
    shard_checks.Finding(level, run.data_dir, f'{run.directory}: {line}.')
    for level, line in found
  ]
  findings.sort(key=lambda found: shard_checks.LEVELS.index(found.level))
  return dataclasses.replace(report, findings=findings)


def _describe(
  run: run_directories.RunDirectory, report: run_checks.Report
) -> list[str]:
  lines = [
    f'shard {entry["shard"]}: {console.number(entry["rows"])} rows, '
    f'{console.number(entry["episodes"])} episodes end, mean return '
    f'{console.number(entry["mean_return"], 2)}'
    for entry in report.shards
  ]
  lines += [f'{found.level}: {found.message}' for found in report.findings]
  summary = [f'{len(report.shards)} shards', console.size(report.bytes)]
  for level in shard_checks.LEVELS:
    if count := sum(found.level == level for found in report.findings):
      plural = 's' if count > 1 and level != 'suspicious' else ''
      summary.append(f'{count} {level}{plural}')
  verdict = 'NOT well' if report.problems else 'all is well'
  return [*lines, f'{run.directory}: {verdict} ({", ".join(summary)})']
