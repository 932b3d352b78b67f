"""Tools for logged data.

python -m batch_rl.dataset fetch https://host/dqn --game=Pong --run=1-5
python -m batch_rl.dataset import downloads/pong stores/Pong-1
python -m batch_rl.dataset verify $DATA_DIR/Pong/1
python -m batch_rl.dataset inspect $DATA_DIR/Pong/1 --plot pong.png
python -m batch_rl.dataset convert $DATA_DIR/Pong/1 stores/Pong-1
python -m batch_rl.dataset subset $DATA_DIR/Pong/1 'random_trajectories(0.1)'
"""

import argparse
import dataclasses
import json
import os
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NoReturn

import tqdm.auto as tqdm

from batch_rl.dataset import (
  directories,
  fetch,
  inspection,
  layouts,
  packed_shard,
  pictures,
  sampler,
  shard,
  shard_checks,
  sources,
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


def _add_fetch(commands: Any) -> None:
  command = _add_command(
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
    ('timeout', 60, 1, 'seconds without a byte'),
  ):
    command.add_argument(
      f'--{name}',
      default=default,
      type=_at_least(least),
      metavar='N',
      help=f'{what}; default: {default}',
    )


def _at_least(least: int) -> Callable[[str], int]:
  def integer(text: str) -> int:
    if not text.isdigit() or int(text) < least:
      raise argparse.ArgumentTypeError(f'{text} is no number from {least} on')
    return int(text)

  return integer


def _fetch(arguments: argparse.Namespace) -> int:
  runs = directories.parse_numbers(arguments.runs, '--run')
  shards = arguments.shards and directories.parse_numbers(
    arguments.shards, '--shards'
  )
  if not arguments.data_dir:
    _fail('say where to with --data_dir, or set DATA_DIR.')
  source = sources.connect(arguments.source, arguments.timeout)
  try:
    planned = fetch.plan(
      source,
      arguments.game,
      runs,
      shards,
      arguments.data_dir,
      arguments.jobs,
    )
  except (sources.Refused, sources.Interrupted) as error:
    message = str(error)
    if isinstance(error, sources.Interrupted):
      message = f'{source.name} cannot be reached: {message}.'
    print(f'error: {message}', file=sys.stderr)
    return 1
  document = {
    'source': source.name,
    'data_dir': arguments.data_dir,
    'runs': [_describe_fetch(run, arguments.dry_run) for run in planned],
    'bytes_to_fetch': fetch.bytes_to_fetch(planned),
  }
  if arguments.dry_run:
    wrong = [line for run in planned for line in run.missing]
    document |= {'ok': not wrong, 'missing': wrong}
    if arguments.json:
      _print_json(document)
    else:
      _print_plan(planned, arguments.data_dir)
    return int(bool(wrong))
  fetch.check_room(planned, arguments.data_dir)
  fetcher = fetch.Fetcher(
    source,
    arguments.jobs,
    arguments.retries,
    (lambda line: None) if arguments.json else _say,
  )
  result = fetcher.fetch(planned)
  if arguments.json:
    _print_json(
      {**document, 'ok': not result.wrong, **dataclasses.asdict(result)}
    )
  else:
    _print_result(result, planned)
  return int(bool(result.wrong))


def _say(line: str) -> None:
  tqdm.tqdm.write(line)  # above the bar
  sys.stdout.flush()


def _describe_fetch(run: fetch.Run, with_files: bool) -> dict[str, Any]:
  document: dict[str, Any] = {
    'game': run.game,
    'run': run.number,
    'directory': os.path.dirname(run.logs),
    'shards': run.suffixes,
  }
  if with_files:
    document['files'] = [dataclasses.asdict(file) for file in run.files]
  return document


def _print_plan(runs: Sequence[fetch.Run], data_dir: str) -> None:
  lines = [['run', 'shard', 'files', 'size', 'to fetch']]
  for run in runs:
    for suffix in run.suffixes:
      own = [f for f in run.files if shard.suffix_of(f.name) == suffix]
      sizes = [file.size for file in own if file.size is not None]
      part = dataclasses.replace(run, files=own)
      lines.append(
        [
          run.title,
          str(suffix),
          str(len(own)),
          _size(sum(sizes) if len(sizes) == len(own) else None),
          _size(fetch.bytes_to_fetch([part])),
        ]
      )
  _print_table(lines)
  for run in runs:
    for line in run.missing:
      print(f'missing: {line}')
  print(f'{_size(fetch.bytes_to_fetch(runs))} would be fetched to {data_dir}')


def _print_result(result: fetch.Result, runs: Sequence[fetch.Run]) -> None:
  for line in result.notes:
    print(f'note: {line}')
  for line in result.wrong:
    print(f'missing: {line}')
  rate = _size(int(result.bytes / max(result.seconds, 1e-9)))
  verdict = 'NOT complete' if result.wrong else 'complete'
  where = ', '.join(os.path.dirname(run.logs) for run in runs if run.files)
  print(
    f'{where}: {verdict} ({result.fetched} files fetched, {result.there} were '
    f'there, {_size(result.bytes)} in {result.seconds:,.0f} s, {rate}/s)'
  )


def _add_import(commands: Any) -> None:
  command = _add_command(
    commands,
    'import',
    _import,
    "make a store of other people's data. Shards of Dopamine's format are found in "
    'any layout, by what the files hold. Exit code 0 if all was taken, 1 if a shard '
    'was left out, 2 for a wrong argument.',
  )
  command.add_argument(
    'source', help='the folder that holds the data, somewhere'
  )
  command.add_argument(
    'destination', help='the store to make; with --shards, the run'
  )
  command.add_argument(
    '--format',
    choices=sorted(_IMPORTS),
    default='dopamine',
    help="what the data is: dopamine, shards of Dopamine's format (default)",
  )
  command.add_argument(
    '--shards',
    action='store_true',
    help='put shards into DESTINATION/replay_logs instead, by the names of the '
    'format; your files stay, and are linked where that can be',
  )
  command.add_argument(
    '--dry_run', action='store_true', help='show what would be taken for what'
  )


def _import(arguments: argparse.Namespace) -> int:
  return _IMPORTS[arguments.format](arguments)


def _import_dopamine(arguments: argparse.Namespace) -> int:
  layout = layouts.find(arguments.source)
  document = {
    'source': layout.source,
    'destination': arguments.destination,
    'shards': sorted(layout.shards),
    'ignored': layout.ignored,
    'left_out': layout.left_out,
    'assumed': layout.assumed,
    'taken': layout.table()[1:],
    'notes': [],
  }
  if not arguments.json:
    _print_table(layout.table(), left=(1, 2, 3))
    for name, why in layout.ignored.items():
      print(f'ignored: {name}: {why}')
    for line in layout.assumed:
      print(f'assumed: {line}')
    for line in layout.left_out:
      print(f'missing: {line}')
  if not arguments.dry_run:
    document['notes'] = _do_import(arguments, layout)
  if arguments.json:
    _print_json(document)
  elif not arguments.dry_run:
    for line in document['notes']:
      print(f'note: {line}')
    print(f'{arguments.destination}: {len(layout.shards)} shards')
  return int(bool(layout.left_out))


def _do_import(
  arguments: argparse.Namespace, layout: layouts.Layout
) -> list[str]:
  if arguments.shards:
    logs = os.path.join(arguments.destination, directories.LOGS)
    total = len(layout.shards) * len(shard.FILES)
    with tqdm.tqdm(total=total, unit='file', disable=None, leave=False) as bar:
      return layouts.import_shards(layout, logs, bar.update)
  with tqdm.tqdm(unit='row', unit_scale=True, disable=None, leave=False) as bar:
    return layouts.import_store(layout, arguments.destination, bar.update)


# By --format.
_IMPORTS = {'dopamine': _import_dopamine}


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


def _print_table(
  lines: Iterable[Sequence[str]], left: Sequence[int] = ()
) -> None:
  """Prints columns; those in `left` begin at the left."""
  lines = list(lines)
  widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
  for line in lines:
    cells = [
      cell.ljust(width) if i in left else cell.rjust(width)
      for i, (cell, width) in enumerate(zip(line, widths, strict=True))
    ]
    print('  '.join(cells).rstrip())


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
    _add_fetch,
    _add_import,
    _add_verify,
    _add_inspect,
    _add_convert,
    _add_subset,
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
