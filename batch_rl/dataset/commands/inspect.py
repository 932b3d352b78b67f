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
  command = console.add_command(commands, _inspect, 'inspect')
  argument_types.add_run_directory(command)
  argument_types.add_path(
    command,
    '--plot',
    'plot statistics and frames to a .png, .pdf, ... file',
    metavar='FILE',
  )
  argument_types.add_path(
    command,
    '--video',
    'write an episode to a .gif or .mp4 file',
    metavar='FILE',
  )
  command.add_argument(
    '--episode',
    metavar='N',
    type=int,
    help='number of the episode for --video, from 0; default: the one with the '
    'highest return in the last shard that has one',
  )


def _inspect(arguments: argparse.Namespace) -> int:
  """Shows statistics of a run.

  Covers episodes, returns, lengths, actions and sizes; --plot and --video also show
  frames, if observations are images: (height, width) or (height, width, planes).
  """
  plot, video = arguments.plot, arguments.video
  if arguments.episode is not None and not video:
    raise ValueError(
      '--episode chooses an episode for --video; add --video FILE.'
    )
  if plot:
    plots.check_output(plot)
  if video:
    videos.check_output(video)
  run = run_directories.as_run(arguments.directory)
  if run is None and not (plot or video):
    console.list_runs(arguments)
    return 0
  statistics = run_statistics.compute(run or console.one_run(arguments))
  written: dict[str, Any] = {}
  no_images = frame_images.explain_no_images(statistics)
  if no_images and (plot or video):
    written['no_frames'] = no_images
  if plot:
    plots.plot(statistics, plot)
    written['plot'] = plot
  if video:
    number = videos.choose_episode(statistics, arguments.episode)
    written |= {'video': None, 'episode': number}
    if not no_images:
      videos.write_episode(statistics, number, video)
      written['video'] = video
  document = statistics.to_json()
  lines = [
    *_describe(statistics, document),
    *_describe_written(statistics, written),
  ]
  console.show(arguments, document | written, lines)
  return 0


def _describe(
  statistics: run_statistics.RunStatistics, document: dict[str, Any]
) -> list[str]:
  """Returns the statistics as text."""
  total = document['total']
  shape = ' x '.join(map(str, statistics.frame_shape)) or 'single'
  agent = f' by {document["agent"]}' if document['agent'] else ''
  all_returns = statistics.episodes.returns
  digits = 0 if np.array_equal(all_returns, np.round(all_returns)) else 2
  lines = [
    f'{statistics.run.directory}: {statistics.game}{agent}, observations {shape} '
    f'{statistics.frame_dtype}',
    '',
    *_tabulate([*document['shards'], {'shard': 'total', **total}], digits),
    '',
  ]
  for name, unit, precision in (
    ('length', ' agent steps', 0),
    ('return', '', digits),
  ):
    if values := total[name]:
      lines.append(
        f'{name}: mean {values["mean"]:,.2f}, median {values["median"]:,.1f}, '
        f'standard deviation {values["std"]:,.2f}, '
        f'{values["min"]:,.{precision}f} to {values["max"]:,.{precision}f}{unit}'
      )
  if cut := total['episodes_cut']:
    lines.append(f'{cut} episodes lack their first rows and are not counted.')
  steps = max(sum(document['actions']), 1)
  for action, count in enumerate(document['actions']):
    share = count / steps
    bar = '#' * round(40 * share)
    lines.append(f'action {action:2}: {100 * share:5.1f} % {count:12,} {bar}')
  return lines + [f'note: {problem}' for problem in statistics.problems]


def _tabulate(entries: list[dict[str, Any]], digits: int) -> list[str]:
  """Returns a table of shards and their total."""
  # Returns of rewards before clipping, if any were clipped.
  with_unclipped = any(
    entry['return']
    and entry['unclipped_return']
    # The manifest's returns are of rewards before they were rounded to float32.
    and not math.isclose(
      value, entry['return'][key], rel_tol=1e-4, abs_tol=1e-4
    )
    for entry in entries[:-1]
    for key, value in (entry['unclipped_return'] or {}).items()
  )
  head = ['shard', 'rows', 'steps', 'padding', 'episodes', 'length']
  head += ['return', 'min', 'max']
  head += ['unclipped'] if with_unclipped else []
  lines = [[*head, 'size', 'B/step']]
  for entry in entries:
    counts = ('rows', 'agent_steps', 'padding_rows', 'episodes')
    line = [str(entry['shard'])]
    line += [console.number(entry[key]) for key in counts]
    for column, key, precision in (
      ('length', 'mean', 1),
      ('return', 'mean', 2),
      ('return', 'min', digits),
      ('return', 'max', digits),
      *([('unclipped_return', 'mean', 1)] if with_unclipped else []),
    ):
      line.append(console.number((entry[column] or {}).get(key), precision))
    size, steps = entry['bytes'], entry['agent_steps']
    rate = size / steps if steps else None
    lines.append([*line, console.size(size), console.number(rate, 1)])
  return console.table(lines)


def _describe_written(
  statistics: run_statistics.RunStatistics, written: dict[str, Any]
) -> list[str]:
  """Returns lines about the plot and the video."""
  lines = []
  if (number := written.get('episode')) is not None:
    lines.append(
      f'episode {number}: {statistics.lengths[number]:,} agent steps, return '
      f'{statistics.episodes.returns[number]:g}, ends in shard '
      f'{statistics.episodes.suffix[number]}'
    )
  for kind in ('plot', 'video'):
    if written.get(kind):
      lines.append(f'{kind}: {written[kind]}')
  if 'no_frames' in written:
    left_out = ['the plot has no frames'] if 'plot' in written else []
    left_out += ['there is no video'] if 'video' in written else []
    lines.append(f'note: {" and ".join(left_out)}: {written["no_frames"]}')
  return lines
