"""Tools for logged data.

python -m batch_rl.dataset fetch https://host/dqn --game=Pong --run=1-5
python -m batch_rl.dataset import downloads/pong stores/Pong-1
python -m batch_rl.dataset verify $DATA_DIR/Pong/1
python -m batch_rl.dataset inspect $DATA_DIR/Pong/1 --plot pong.png
python -m batch_rl.dataset convert $DATA_DIR/Pong/1 stores/Pong-1
python -m batch_rl.dataset subset $DATA_DIR/Pong/1 'random_trajectories(0.1)'
python -m batch_rl.dataset import rlu_atari/Pong_run_1/1.3.0 stores/Pong-1
python -m batch_rl.dataset export $DATA_DIR/Pong/1 datasets/pong-v0 --format minari
"""

import argparse
import os
import sys
from collections.abc import Sequence
from typing import Any, NoReturn

import tqdm.auto as tqdm

from batch_rl.dataset import run_directories
from batch_rl.dataset.checks import (
  inspection,
  pictures,
  shard_checks,
  verification,
)
from batch_rl.dataset.commands import console, fetch, import_export
from batch_rl.dataset.sampling import sampler, subsets
from batch_rl.dataset.shards import shard_files, stitching
from batch_rl.dataset.store import packed_shard, store


def _add_verify(commands: Any) -> None:
  command = console.add_command(
    commands,
    'verify',
    _verify,
    'check every file of a run. Each is read once: checksums, format, the '
    'hashes of the manifest, gaps, values, and what looks suspicious. Exit code '
    '0 if all is well, 1 if not, 2 for a wrong argument.',
  )
  command.add_argument('directory', help=console.DIRECTORY)
  command.add_argument(
    '--all', action='store_true', help='verify every run below the directory'
  )


def _verify(arguments: argparse.Namespace) -> int:
  run = run_directories.as_run(arguments.directory)
  if run is None and not arguments.all:
    console.print_runs(arguments)
    console.fail(
      f'{arguments.directory} is not a run; choose one, or add --all.'
    )
  runs = [run] if run else run_directories.find_runs(arguments.directory)
  reports = []
  for run in runs:
    report = _verify_run(run, arguments.all)
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
    wrong = [run.directory for run, report in reports if report.wrong]
    verdict = f'NOT well: {", ".join(wrong)}' if wrong else 'all is well'
    print(f'{len(runs)} runs: {verdict}')
  return int(any(report.wrong for _, report in reports))


def _verify_run(
  run: run_directories.RunDirectory, one_of_many: bool
) -> verification.Report:
  try:
    if run.is_store:
      return verification.verify_store(run)
    return verification.verify(run.logs, f'{run.game}/{run.name}')
  except ValueError as error:
    if not one_of_many:
      raise
    found = shard_checks.Finding('error', run.logs, str(error))
    return verification.Report(run.logs, [], [found], 0)


def _print_report(
  run: run_directories.RunDirectory, report: verification.Report
) -> None:
  for entry in report.shards:
    print(
      f'shard {entry["shard"]}: {console.number(entry["rows"])} rows, '
      f'{console.number(entry["episodes"])} episodes end, mean return '
      f'{console.number(entry["mean_return"], 2)}'
    )
  for found in report.findings:
    print(f'{found.level}: {found.message}')
  counts = {
    level: sum(found.level == level for found in report.findings)
    for level in shard_checks.LEVELS
  }
  listed = ', '.join(
    f'{count} {level}' + ('s' if count > 1 and level != 'suspicious' else '')
    for level, count in counts.items()
    if count
  )
  verdict = 'NOT well' if report.wrong else 'all is well'
  print(
    f'{run.directory}: {verdict} ({len(report.shards)} shards, '
    f'{console.size(report.bytes)}{listed and ", " + listed})'
  )


def _add_inspect(commands: Any) -> None:
  command = console.add_command(
    commands,
    'inspect',
    _inspect,
    'show what is in a run. Episodes, returns, lengths, actions and sizes; with '
    '--plot and --video also frames.',
  )
  command.add_argument('directory', help=console.DIRECTORY)
  command.add_argument(
    '--plot', metavar='FILE', help='draw it, with frames, to a .png, .pdf, ...'
  )
  command.add_argument(
    '--video', metavar='FILE', help='write an episode to a .gif or .mp4'
  )
  command.add_argument(
    '--episode',
    metavar='N',
    type=int,
    help='for --video, counted from 0 through the run; default: the one with '
    'the highest return in the last shard that has one',
  )


def _inspect(arguments: argparse.Namespace) -> int:
  if arguments.episode is not None and not arguments.video:
    console.fail('--episode chooses what --video shows; add --video FILE.')
  if arguments.plot:
    pictures.check_output(arguments.plot, pictures.plot_endings())
  if arguments.video:
    pictures.check_output(arguments.video, pictures.VIDEO_ENDINGS)
  run = run_directories.as_run(arguments.directory)
  if run is None:
    if arguments.plot or arguments.video:
      console.fail(f'{arguments.directory} is not a run; choose one to draw.')
    console.print_runs(arguments)
    return 0
  found = inspection.inspect(run)
  written = {}
  if arguments.plot:
    pictures.plot(found, arguments.plot)
    written['plot'] = arguments.plot
  if arguments.video:
    number = pictures.choose_episode(found, arguments.episode)
    pictures.write_video(found, number, arguments.video)
    written |= {'video': arguments.video, 'episode': number}
  if arguments.json:
    console.print_json(found.to_json() | written)
  else:
    _print_inspection(found, written)
  return 0


def _print_inspection(
  found: inspection.Inspection, written: dict[str, Any]
) -> None:
  document = found.to_json()
  total = document['total']
  shape = ' x '.join(map(str, found.frame_shape)) or 'single'
  agent = f' by {document["agent"]}' if document['agent'] else ''
  print(
    f'{found.run.directory}: {found.game}{agent}, observations {shape} '
    f'{found.frame_dtype}\n'
  )
  with_unclipped = any(s['unclipped_return'] for s in document['shards'])
  head = ['shard', 'rows', 'steps', 'padding', 'episodes', 'length']
  head += ['return', 'min', 'max']
  head += ['unclipped'] if with_unclipped else []
  head += ['size', 'B/step']
  lines = [
    _inspection_line(entry, with_unclipped)
    for entry in [*document['shards'], {'shard': 'total', **total}]
  ]
  console.print_table([head, *lines])
  print()
  for name, unit in (('length', ' agent steps'), ('return', '')):
    if values := total[name]:
      print(
        f'{name}: mean {values["mean"]:,.2f}, median {values["median"]:,.1f}, '
        f'standard deviation {values["std"]:,.2f}, {values["min"]:,.0f} to '
        f'{values["max"]:,.0f}{unit}'
      )
  if total['episodes_cut']:
    print(
      f'{total["episodes_cut"]} episodes begin in rows that are not there; they '
      'are left out.'
    )
  steps = max(sum(document['actions']), 1)
  for action, count in enumerate(document['actions']):
    share = count / steps
    bar = '#' * round(40 * share)
    print(f'action {action:2}: {100 * share:5.1f} % {count:12,} {bar}')
  for problem in found.problems:
    print(f'note: {problem}')
  if 'video' in written:
    number = written['episode']
    print(
      f'episode {number}: {found.lengths[number]:,} agent steps, return '
      f'{found.episodes.returns[number]:g}, ends in shard '
      f'{found.episodes.suffix[number]}'
    )
  for kind in ('plot', 'video'):
    if kind in written:
      print(f'{kind}: {written[kind]}')


def _inspection_line(entry: dict[str, Any], with_unclipped: bool) -> list[str]:
  returns, lengths = entry['return'] or {}, entry['length'] or {}
  unclipped = entry['unclipped_return'] or {}
  steps = entry['agent_steps']
  line = [str(entry['shard'])]
  line += [
    console.number(entry[key])
    for key in ('rows', 'agent_steps', 'padding_rows', 'episodes')
  ]
  line += [
    console.number(lengths.get('mean'), 1),
    console.number(returns.get('mean'), 2),
  ]
  line += [console.number(returns.get(key)) for key in ('min', 'max')]
  line += [console.number(unclipped.get('mean'), 1)] if with_unclipped else []
  return [
    *line,
    console.size(entry['bytes']),
    console.number(entry['bytes'] / steps if steps else None, 1),
  ]


def _add_convert(commands: Any) -> None:
  command = console.add_command(
    commands,
    'convert',
    _convert,
    'compress a run into a store that takes its place. --replay_dir and these '
    'tools accept it. Start it again to go on where it was stopped.',
  )
  command.add_argument('directory', help=console.DIRECTORY)
  command.add_argument('store', help='the directory to make')


def _convert(arguments: argparse.Namespace) -> int:
  run = console.one_run(arguments)
  if run.is_store:
    console.fail(f'{arguments.directory} is a store already.')
  data_dir = run.logs
  suffixes = shard_files.list_suffixes(data_dir)
  placements, _ = stitching.place(data_dir, suffixes)
  with tqdm.tqdm(
    total=sum(placement.capacity for placement in placements),
    unit='row',
    unit_scale=True,
    disable=None,
  ) as bar:
    made = store.convert(data_dir, arguments.store, bar.update)
  size = sum(
    os.path.getsize(path)
    for suffix in made.suffixes
    for path in packed_shard.paths(arguments.store, suffix)
  )
  document = {
    'store': arguments.store,
    'shards': len(made.suffixes),
    'rows': made.rows,
    'bytes': size,
    'bytes_per_row': size / max(made.rows, 1),
  }
  if arguments.json:
    console.print_json(document)
  else:
    print(
      f'{arguments.store}: {len(made.suffixes)} shards, {made.rows:,} rows, '
      f'{console.size(size)}, {document["bytes_per_row"]:.1f} bytes a row'
    )
  return 0


def _add_subset(commands: Any) -> None:
  command = console.add_command(
    commands,
    'subset',
    _subset,
    'show the size and the hash of a part of a run. The text is what '
    'FixedReplayBuffer.subset takes in gin.',
  )
  command.formatter_class = argparse.RawDescriptionHelpFormatter
  command.epilog = "subsets (join several by '&'):\n" + '\n'.join(
    f'  {subsets.usage(function)}\n      {function.__doc__}'
    for function in subsets.SUBSETS.values()
  )
  command.add_argument('directory', help=console.DIRECTORY)
  command.add_argument(
    'subset', nargs='?', help="e.g. 'random_trajectories(0.1)'; default: all"
  )


def _subset(arguments: argparse.Namespace) -> int:
  if arguments.subset:
    subsets.parse(arguments.subset)
  data = store.Store(console.one_run(arguments).logs, pack=False)
  chosen = sampler.trajectories(data)
  if arguments.subset:
    chosen = subsets.select(chosen, arguments.subset)
  which = chosen.selected
  returns = chosen.returns[which]
  document = {
    'run': arguments.directory,
    'subset': arguments.subset,
    'hash': sampler.hash_of(data, chosen),
    'trajectories': len(which),
    'transitions': chosen.num_steps,
    'of_transitions': sampler.trajectories(data).num_steps,
    'return': {
      'mean': float(returns.mean()),
      'min': float(returns.min()),
      'max': float(returns.max()),
    },
  }
  if arguments.json:
    console.print_json(document)
    return 0
  share = chosen.num_steps / max(document['of_transitions'], 1)
  print(
    f'{arguments.directory}, {arguments.subset or "all of it"}\n'
    f'hash          {document["hash"]}\n'
    f'trajectories  {len(which):,} (returns {returns.min():g} to '
    f'{returns.max():g}, mean {returns.mean():.2f})\n'
    f'transitions   {chosen.num_steps:,}, {100 * share:.2f} % of the run'
  )
  return 0


def main(arguments: Sequence[str] | None = None) -> NoReturn:
  """Parses the command line, runs a command and exits.

  Args:
    arguments: of the command line; None for the program's.
  """
  parser = console.Parser(
    prog='python -m batch_rl.dataset', description='Tools for logged data.'
  )
  commands = parser.add_subparsers(
    dest='command', metavar='COMMAND', required=True
  )
  for add in (
    fetch.add,
    _add_verify,
    _add_inspect,
    _add_convert,
    _add_subset,
    import_export.add_import,
    import_export.add_export,
  ):
    add(commands)
  chosen = parser.parse_args(arguments)
  try:
    code = chosen.run(chosen)
    sys.stdout.flush()
    sys.exit(code)
  except BrokenPipeError:  # e.g. `| head`
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    sys.exit(141)
  except (ValueError, OSError) as error:
    console.fail(error)
  except KeyboardInterrupt:
    sys.exit(130)


if __name__ == '__main__':
  main()
