"""The command `inspect`."""

import argparse
import math
from typing import Any

import numpy as np

from batch_rl.dataset import run_directories
from batch_rl.dataset.checks import (
  frame_images,
  plots,
  run_statistics,
  videos,
)
from batch_rl.dataset.commands import argument_types, console


def add(commands: Any) -> None:
  """Adds the command to a parser's subcommands."""
  command = console.add_command(
    commands,
    'inspect',
    _inspect,
    'show statistics of a run. Covers episodes, returns, lengths, actions and sizes; '
    '--plot and --video also show frames, if observations are images: '
    '(height, width) or (height, width, planes).',
  )
  command.add_argument(
    'directory', type=argument_types.path, help=console.DIRECTORY
  )
  command.add_argument(
    '--plot',
    metavar='FILE',
    type=argument_types.path,
    help='plot statistics and frames to a .png, .pdf, ... file',
  )
  command.add_argument(
    '--video',
    metavar='FILE',
    type=argument_types.path,
    help='write an episode to a .gif or .mp4 file',
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
  if arguments.plot is not None:
    plots.check_output(arguments.plot)
  if arguments.video is not None:
    videos.check_output(arguments.video)
  run = run_directories.as_run(arguments.directory)
  if run is None:
    if arguments.plot or arguments.video:
      console.fail(f'{arguments.directory} is not a run; choose one to plot.')
    console.print_runs(arguments)
    return 0
  statistics = run_statistics.compute(run)
  written: dict[str, Any] = {}
  no_images = frame_images.explain_no_images(statistics)
  if no_images and (arguments.plot or arguments.video):
    written['no_frames'] = no_images
  if arguments.plot:
    plots.plot(statistics, arguments.plot)
    written['plot'] = arguments.plot
  if arguments.video:
    number = videos.choose_episode(statistics, arguments.episode)
    written |= {'video': None, 'episode': number}
    if not no_images:
      videos.write_episode(statistics, number, arguments.video)
      written['video'] = arguments.video
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
  with_unclipped = any(map(_has_clipped, document['shards']))
  integers = np.array_equal(
    statistics.episodes.returns, np.round(statistics.episodes.returns)
  )
  digits = {'length': 0, 'return': 0 if integers else 2}
  head = ['shard', 'rows', 'steps', 'padding', 'episodes', 'length']
  head += ['return', 'min', 'max']
  head += ['unclipped'] if with_unclipped else []
  head += ['size', 'B/step']
  lines = [
    _table_line(entry, with_unclipped, digits['return'])
    for entry in [*document['shards'], {'shard': 'total', **total}]
  ]
  console.print_table([head, *lines])
  print()
  for name, unit in (('length', ' agent steps'), ('return', '')):
    if values := total[name]:
      print(
        f'{name}: mean {values["mean"]:,.2f}, median {values["median"]:,.1f}, '
        f'standard deviation {values["std"]:,.2f}, '
        f'{values["min"]:,.{digits[name]}f} to {values["max"]:,.{digits[name]}f}'
        f'{unit}'
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
  if 'episode' in written:
    number = written['episode']
    print(
      f'episode {number}: {statistics.lengths[number]:,} agent steps, return '
      f'{statistics.episodes.returns[number]:g}, ends in shard '
      f'{statistics.episodes.suffix[number]}'
    )
  for kind in ('plot', 'video'):
    if written.get(kind):
      print(f'{kind}: {written[kind]}')
  if 'no_frames' in written:
    left_out = ['the plot has no frames'] if 'plot' in written else []
    left_out += ['there is no video'] if 'video' in written else []
    print(f'note: {" and ".join(left_out)}: {written["no_frames"]}')


def _has_clipped(entry: dict[str, Any]) -> bool:
  """Returns whether a shard's rewards were clipped, by its manifest."""
  returns, unclipped = entry['return'], entry['unclipped_return']
  if not returns or not unclipped:
    return False
  # The manifest's returns are of rewards before they were rounded to float32.
  return any(
    not math.isclose(unclipped[key], returns[key], rel_tol=1e-4, abs_tol=1e-4)
    for key in unclipped
  )


def _table_line(
  entry: dict[str, Any], with_unclipped: bool, digits: int
) -> list[str]:
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
  line += [console.number(returns.get(key), digits) for key in ('min', 'max')]
  line += [console.number(unclipped.get('mean'), 1)] if with_unclipped else []
  return [
    *line,
    console.size(entry['bytes']),
    console.number(entry['bytes'] / steps if steps else None, 1),
  ]
