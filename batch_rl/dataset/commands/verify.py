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
  command = console.add_command(
    commands,
    'verify',
    _verify,
    'check every file of a run. Reads each once, and checks checksums, format, '
    'hashes of the manifest, gaps, values and suspicious data. Exit code 0 if all is '
    'well, 1 if not, 2 for a wrong argument.',
  )
  command.add_argument(
    'directory', type=argument_types.path, help=console.DIRECTORY
  )
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
  if arguments.all and arguments.fingerprints:
    console.fail('--fingerprints are those of one run; remove --all.')
  fingerprint = None
  if arguments.fingerprints:
    path = fingerprints.find(arguments.fingerprints)
    fingerprint = path, fingerprints.read(path)
  run = run_directories.as_run(arguments.directory)
  if run is None and not arguments.all:
    console.print_runs(arguments)
    console.fail(
      f'{arguments.directory} is not a run; choose one, or add --all.'
    )
  if run and fingerprint:
    fingerprints.check_game(*fingerprint, run)
  runs = [run] if run else run_directories.find_runs(arguments.directory)
  reports = []
  for run in runs:
    report = _check(run, arguments.all)
    if fingerprint:
      report = _check_fingerprint(run, report, *fingerprint)
    reports.append((run, report))
    if not arguments.json:
      _print_report(run, report)
  if arguments.json:
    documents = [
      {'run': run.directory, **report.to_json()} for run, report in reports
    ]
    console.print_json(
      {'ok': all(document['ok'] for document in documents), 'runs': documents}
      if arguments.all
      else documents[0]
    )
  elif arguments.all:
    wrong = [run.directory for run, report in reports if report.problems]
    verdict = f'NOT well: {", ".join(wrong)}' if wrong else 'all is well'
    print(f'{len(runs)} runs: {verdict}')
  return int(any(report.problems for _, report in reports))


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
  path: str,
  expected: dict[str, Any],
) -> run_checks.Report:
  """Adds the findings of a comparison with a fingerprint to a report."""
  problems: list[str] = []
  remarks: list[str] = []
  try:
    copy = copies.LoggedCopy(run)
    fingerprints.prepare(copy, expected)
    compare.read_copy(copy)
  except ValueError as error:
    reason = str(error).rstrip('.')
    problems.append(f'it cannot be compared with {path}: {reason}')
  else:
    actual = fingerprints.make(copy)
    problems, remarks = fingerprints.differences(
      expected, actual, copy.uncertain
    )
    if not problems and fingerprints.NOTHING_COMPARED not in remarks:
      remarks.append(f'its transitions are those of {path}')
  findings = [
    shard_checks.Finding(level, run.data_dir, f'{run.directory}: {line}.')
    for level, lines in (('error', problems), ('note', remarks))
    for line in lines
  ]
  findings = sorted(
    [*report.findings, *findings],
    key=lambda finding: shard_checks.LEVELS.index(finding.level),
  )
  return dataclasses.replace(report, findings=findings)


def _print_report(
  run: run_directories.RunDirectory, report: run_checks.Report
) -> None:
  for entry in report.shards:
    print(
      f'shard {entry["shard"]}: {console.number(entry["rows"])} rows, '
      f'{console.number(entry["episodes"])} episodes end, mean return '
      f'{console.number(entry["mean_return"], 2)}'
    )
  for finding in report.findings:
    print(f'{finding.level}: {finding.message}')
  counts = {
    level: sum(finding.level == level for finding in report.findings)
    for level in shard_checks.LEVELS
  }
  listed = ', '.join(
    f'{count} {level}' + ('s' if count > 1 and level != 'suspicious' else '')
    for level, count in counts.items()
    if count
  )
  verdict = 'NOT well' if report.problems else 'all is well'
  print(
    f'{run.directory}: {verdict} ({len(report.shards)} shards, '
    f'{console.size(report.bytes)}{listed and ", " + listed})'
  )
