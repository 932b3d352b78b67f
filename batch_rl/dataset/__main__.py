"""Tools for logged data.

python -m batch_rl.dataset verify $DATA_DIR/Pong/1
python -m batch_rl.dataset inspect $DATA_DIR/Pong/1 --plot pong.png
python -m batch_rl.dataset convert $DATA_DIR/Pong/1 stores/Pong-1
python -m batch_rl.dataset subset $DATA_DIR/Pong/1 'random_trajectories(0.1)'
python -m batch_rl.dataset import rlu_atari/Pong_run_1/1.3.0 stores/Pong-1
python -m batch_rl.dataset export $DATA_DIR/Pong/1 datasets/pong-v0 --format minari
"""

import argparse
import json
import os
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NoReturn

import tqdm.auto as tqdm

from batch_rl.dataset import (
  directories,
  inspection,
  interchange,
  packed_shard,
  pictures,
  sampler,
  shard,
  shard_checks,
  store,
  subsets,
  verification,
)

_DIRECTORY = (
  'a run, <root>/<Game>/<run>, or a store; of a game or a root, the runs are '
  'listed'
)


class _Parser(argparse.ArgumentParser):
  """Says what is wrong in one line."""

  def error(self, message: str) -> NoReturn:
    _fail(f'{message} (see `{self.prog} --help`)')


def _fail(message: object) -> NoReturn:
  print(f'error: {" ".join(str(message).split())}', file=sys.stderr)
  sys.exit(2)


def _add_command(
  commands: Any, name: str, run: Callable[[argparse.Namespace], int], what: str
) -> argparse.ArgumentParser:
  """Adds a command; `run` returns the exit code."""
  command = commands.add_parser(
    name, help=what.split('.')[0], description=what[0].upper() + what[1:]
  )
  command.set_defaults(run=run)
  command.add_argument(
    '--json', action='store_true', help='print one JSON document, nothing else'
  )
  return command


def _add_verify(commands: Any) -> None:
  command = _add_command(
    commands,
    'verify',
    _verify,
    'check every file of a run. Each is read once: checksums, format, the '
    'hashes of the manifest, gaps, values, and what looks suspicious. Exit code '
    '0 if all is well, 1 if not, 2 for a wrong argument.',
  )
  command.add_argument('directory', help=_DIRECTORY)
  command.add_argument(
    '--all', action='store_true', help='verify every run below the directory'
  )


def _verify(arguments: argparse.Namespace) -> int:
  run = directories.as_run(arguments.directory)
  if run is None and not arguments.all:
    _print_runs(arguments)
    _fail(f'{arguments.directory} is not a run; choose one, or add --all.')
  runs = [run] if run else directories.find_runs(arguments.directory)
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
    _print_json(
      {'ok': all(document['ok'] for document in documents), 'runs': documents}
      if arguments.all
      else documents[0]
    )
  elif arguments.all:
    wrong = [run.directory for run, report in reports if report.wrong]
    verdict = f'NOT well: {", ".join(wrong)}' if wrong else 'all is well'
    print(f'{len(runs)} runs: {verdict}')
  return int(any(report.wrong for _, report in reports))


def _verify_run(run: directories.Run, one_of_many: bool) -> verification.Report:
  try:
    if run.is_store:
      return verification.verify_store(run)
    return verification.verify(run.logs, f'{run.game}/{run.name}')
  except ValueError as error:
    if not one_of_many:
      raise
    found = shard_checks.Finding('error', run.logs, str(error))
    return verification.Report(run.logs, [], [found], 0)


def _print_report(run: directories.Run, report: verification.Report) -> None:
  for entry in report.shards:
    print(
      f'shard {entry["shard"]}: {_number(entry["rows"])} rows, '
      f'{_number(entry["episodes"])} episodes end, mean return '
      f'{_number(entry["mean_return"], 2)}'
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
    f'{_size(report.bytes)}{listed and ", " + listed})'
  )


def _add_inspect(commands: Any) -> None:
  command = _add_command(
    commands,
    'inspect',
    _inspect,
    'show what is in a run. Episodes, returns, lengths, actions and sizes; with '
    '--plot and --video also frames.',
  )
  command.add_argument('directory', help=_DIRECTORY)
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
    _fail('--episode chooses what --video shows; add --video FILE.')
  if arguments.plot:
    pictures.check_output(arguments.plot, pictures.plot_endings())
  if arguments.video:
    pictures.check_output(arguments.video, pictures.VIDEO_ENDINGS)
  run = directories.as_run(arguments.directory)
  if run is None:
    if arguments.plot or arguments.video:
      _fail(f'{arguments.directory} is not a run; choose one to draw.')
    _print_runs(arguments)
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
    _print_json(found.to_json() | written)
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
  _print_table([head, *lines])
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
    _number(entry[key])
    for key in ('rows', 'agent_steps', 'padding_rows', 'episodes')
  ]
  line += [_number(lengths.get('mean'), 1), _number(returns.get('mean'), 2)]
  line += [_number(returns.get(key)) for key in ('min', 'max')]
  line += [_number(unclipped.get('mean'), 1)] if with_unclipped else []
  return [
    *line,
    _size(entry['bytes']),
    _number(entry['bytes'] / steps if steps else None, 1),
  ]


def _add_convert(commands: Any) -> None:
  command = _add_command(
    commands,
    'convert',
    _convert,
    'compress a run into a store that takes its place. --replay_dir and these '
    'tools accept it. Start it again to go on where it was stopped.',
  )
  command.add_argument('directory', help=_DIRECTORY)
  command.add_argument('store', help='the directory to make')


def _convert(arguments: argparse.Namespace) -> int:
  run = _one_run(arguments)
  if run.is_store:
    _fail(f'{arguments.directory} is a store already.')
  data_dir = run.logs
  suffixes = shard.list_suffixes(data_dir)
  placements, _ = shard.place(data_dir, suffixes)
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
    _print_json(document)
  else:
    print(
      f'{arguments.store}: {len(made.suffixes)} shards, {made.rows:,} rows, '
      f'{_size(size)}, {document["bytes_per_row"]:.1f} bytes a row'
    )
  return 0


def _add_subset(commands: Any) -> None:
  command = _add_command(
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
  command.add_argument('directory', help=_DIRECTORY)
  command.add_argument(
    'subset', nargs='?', help="e.g. 'random_trajectories(0.1)'; default: all"
  )


def _subset(arguments: argparse.Namespace) -> int:
  if arguments.subset:
    subsets.parse(arguments.subset)
  data = store.Store(_one_run(arguments).logs, pack=False)
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
    _print_json(document)
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


def _add_import(commands: Any) -> None:
  command = _add_command(
    commands,
    'import',
    lambda arguments: _print_made(arguments, interchange.import_(arguments)),
    "make a store, or shards, of another library's dataset. Start it again to go "
    'on where it was stopped.',
  )
  interchange.add_import_arguments(command)


def _add_export(commands: Any) -> None:
  command = _add_command(
    commands,
    'export',
    lambda arguments: _print_made(
      arguments, interchange.export(arguments, _one_run(arguments))
    ),
    "write a run as another library's dataset. It is there once it is whole.",
  )
  command.add_argument('directory', help=_DIRECTORY)
  interchange.add_export_arguments(command)


def _print_made(arguments: argparse.Namespace, made: dict[str, Any]) -> int:
  if arguments.json:
    _print_json(made)
  else:
    print('\n'.join(interchange.describe(made)))
  return 0


def _one_run(arguments: argparse.Namespace) -> directories.Run:
  """The run or store that a command is about; of what is above one, lists them."""
  run = directories.as_run(arguments.directory)
  if run is None:
    _print_runs(arguments)
    _fail(f'{arguments.directory} is not a run; choose one.')
  return run


def _print_runs(arguments: argparse.Namespace) -> None:
  runs = directories.describe_runs(directories.find_runs(arguments.directory))
  if arguments.json:
    _print_json({'directory': arguments.directory, 'runs': runs})
    return
  head = ['game', 'run', 'shards', 'rows', 'size', 'agent']
  lines = [
    [
      run['game'],
      run['run'],
      _number(run['shards']),
      _number(run['rows']),
      _size(run['bytes']),
      run['agent'] or '?',
    ]
    for run in runs
  ]
  _print_table([head, *lines])


def _print_table(lines: Iterable[Sequence[str]]) -> None:
  lines = list(lines)
  widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
  for line in lines:
    print(
      '  '.join(cell.rjust(w) for cell, w in zip(line, widths, strict=True))
    )


def _number(value: float | None, digits: int = 0) -> str:
  return '?' if value is None else f'{value:,.{digits}f}'


def _size(count: int | None) -> str:
  if count is None:
    return '?'
  size = float(count)
  for unit in ('B', 'kB', 'MB', 'GB'):
    if size < 1000:
      return f'{size:.3g} {unit}'
    size /= 1000
  return f'{size:,.1f} TB'


def _print_json(document: Any) -> None:
  print(json.dumps(document, indent=1))


def main(arguments: Sequence[str] | None = None) -> NoReturn:
  """Parses the command line, runs a command and exits.

  Args:
    arguments: of the command line; None for the program's.
  """
  parser = _Parser(
    prog='python -m batch_rl.dataset', description='Tools for logged data.'
  )
  commands = parser.add_subparsers(
    dest='command', metavar='COMMAND', required=True
  )
  for add in (
    _add_verify,
    _add_inspect,
    _add_convert,
    _add_subset,
    _add_import,
    _add_export,
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
    _fail(error)
  except KeyboardInterrupt:
    sys.exit(130)


if __name__ == '__main__':
  main()
