"""The command `inspect`."""

import argparse
from typing import Any

from batch_rl.dataset import run_directories
from batch_rl.dataset.checks import plots, run_statistics, videos
from batch_rl.dataset.commands import console


def add(commands: Any) -> None:
  """Adds the command to a parser's subcommands."""
  command = console.add_command(
    commands,
    'inspect',
    _inspect,
    'show statistics of a run. Covers episodes, returns, lengths, actions and sizes; '
    '--plot and --video also show frames.',
  )
  command.add_argument('directory', help=console.DIRECTORY)
  command.add_argument(
    '--plot',
    metavar='FILE',
    help='plot statistics and frames to a .png, .pdf, ... file',
  )
  command.add_argument(
    '--video', metavar='FILE', help='write an episode to a .gif or .mp4 file'
  )
  command.add_argument(
    '--episode',
    metavar='N',
    type=int,
    help='number of the episode for --video, from 0; default: the one with the '
    'highest return in the last shard that has one',
  )


def _inspect(arguments: argparse.Namespace) -> int:
  if arguments.episode is not None and not arguments.video:
    console.fail('--episode chooses an episode for --video; add --video FILE.')
  if arguments.plot:
    plots.check_output(arguments.plot)
  if arguments.video:
    videos.check_output(arguments.video)
  run = run_directories.as_run(arguments.directory)
  if run is None:
    if arguments.plot or arguments.video:
      console.fail(f'{arguments.directory} is not a run; choose one to plot.')
    console.print_runs(arguments)
    return 0
  statistics = run_statistics.compute(run)
  written: dict[str, Any] = {}
  if arguments.plot:
    plots.plot(statistics, arguments.plot)
    written['plot'] = arguments.plot
  if arguments.video:
    number = videos.choose_episode(statistics, arguments.episode)
    videos.write_episode(statistics, number, arguments.video)
    written |= {'video': arguments.video, 'episode': number}
  if arguments.json:
    console.print_json(statistics.to_json() | written)
  else:
    _print_statistics(statistics, written)
  return 0


def _print_statistics(
  statistics: run_statistics.RunStatistics, written: dict[str, Any]
) -> None:
  document = statistics.to_json()
  total = document['total']
  shape = ' x '.join(map(str, statistics.frame_shape)) or 'single'
  agent = f' by {document["agent"]}' if document['agent'] else ''
  print(
    f'{statistics.run.directory}: {statistics.game}{agent}, observations {shape} '
    f'{statistics.frame_dtype}\n'
  )
  with_unclipped = any(s['unclipped_return'] for s in document['shards'])
  head = ['shard', 'rows', 'steps', 'padding', 'episodes', 'length']
  head += ['return', 'min', 'max']
  head += ['unclipped'] if with_unclipped else []
  head += ['size', 'B/step']
  lines = [
    _table_line(entry, with_unclipped)
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
      f'{total["episodes_cut"]} episodes lack their first rows and are not '
      'counted.'
    )
  steps = max(sum(document['actions']), 1)
  for action, count in enumerate(document['actions']):
    share = count / steps
    bar = '#' * round(40 * share)
    print(f'action {action:2}: {100 * share:5.1f} % {count:12,} {bar}')
  for problem in statistics.problems:
    print(f'note: {problem}')
  if 'video' in written:
    number = written['episode']
    print(
      f'episode {number}: {statistics.lengths[number]:,} agent steps, return '
      f'{statistics.episodes.returns[number]:g}, ends in shard '
      f'{statistics.episodes.suffix[number]}'
    )
  for kind in ('plot', 'video'):
    if kind in written:
      print(f'{kind}: {written[kind]}')


def _table_line(entry: dict[str, Any], with_unclipped: bool) -> list[str]:
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
