"""The command `inspect`."""

import argparse
from typing import Any

from batch_rl.dataset import run_directories
from batch_rl.dataset.checks import plots, run_statistics, videos
from batch_rl.dataset.commands import argument_types, console


def add(commands: Any) -> None:
  """Adds the command to a parser's subcommands."""
  command = console.add_command(commands, _inspect, 'inspect')
  argument_types.add_run_directory(command)
  for name, meaning in (
    ('--plot', 'plot statistics and frames to a .png, .pdf, ... file'),
    ('--video', 'write an episode to a .gif or .mp4 file'),
  ):
    argument_types.add_path(command, name, meaning, metavar='FILE')
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
  if plot and plot == video:
    raise ValueError(f'--plot and --video are one file, {plot}: give two.')
  if plot:
    plots.check_output(plot)
  if video:
    videos.check_output(video)
  run = run_directories.as_run(arguments.directory)
  if run is None and not (plot or video):
    console.list_runs(arguments)
    return 0
  statistics = run_statistics.RunStatistics(run or console.one_run(arguments))
  document = statistics.to_json()
  lines = _describe(statistics, document)
  if plot:
    plots.plot(statistics, plot)
    document['plot'] = plot
    lines.append(f'plot: {plot}')
  if video:
    number = videos.choose_episode(statistics, arguments.episode)
    videos.write_episode(statistics, number, video)
    document |= {'episode': number, 'video': video}
    lines.append(
      f'episode {number}: {statistics.lengths[number]:,} agent steps, return '
      f'{statistics.returns[number]:g}, ends in shard {statistics.ends_in[number]}: '
      f'{video}'
    )
  console.show(arguments, document, lines)
  return 0


def _describe(
  statistics: run_statistics.RunStatistics, document: dict[str, Any]
) -> list[str]:
  """Returns the statistics as text."""
  total, data = document['total'], statistics.data
  shape = ' x '.join(map(str, data.frame_shape)) or 'single'
  agent = f' by {document["agent"]}' if document['agent'] else ''
  lines = [
    f'{statistics.run.directory}: {statistics.game}{agent}, observations {shape} '
    f'{data.frame_dtype}',
    '',
    *_tabulate([*document['shards'], {'shard': 'total', **total}]),
    '',
  ]
  for name in ('length', 'return'):
    if values := total[name]:
      numbers = [f'{key} {value:,.2f}' for key, value in values.items()]
      lines.append(f'{name}: {", ".join(numbers)}')
  if cut := total['episodes_cut']:
    lines.append(f'Not counted, for lack of their first rows: {cut} episodes.')
  steps = max(statistics.actions.sum(), 1)
  counts = document['actions']
  names = statistics.action_names or [''] * len(counts)
  for action, (name, count) in enumerate(zip(names, counts, strict=True)):
    share = count / steps
    bar = '#' * round(40 * share)
    lines.append(
      f'action {action:2}: {100 * share:5.1f} % {count:12,} {name:14} {bar}'
    )
  return lines + [f'note: {problem}' for problem in statistics.problems]


def _tabulate(entries: list[dict[str, Any]]) -> list[str]:
  """Returns a table of shards and their total."""
  columns: list[tuple[str, str, str, int]] = [
    ('length', 'length', 'mean', 1),
    ('return', 'return', 'mean', 2),
    ('min', 'return', 'min', 2),
    ('max', 'return', 'max', 2),
  ]
  if entries[-1]['unclipped_return']:
    columns.append(('unclipped', 'unclipped_return', 'mean', 1))
  lines = [['shard', 'rows', 'steps', 'padding', 'episodes']]
  lines[0] += [*(title for title, *_ in columns), 'size', 'B/step']
  counts = ('rows', 'agent_steps', 'padding_rows', 'episodes')
  for entry in entries:
    line = [str(entry['shard'])]
    line += [console.number(entry[key]) for key in counts]
    for _, column, key, precision in columns:
      line.append(console.number((entry[column] or {}).get(key), precision))
    rate = console.number(entry['bytes_per_transition'], 1)
    lines.append([*line, console.size(entry['bytes']), rate])
  return console.table(lines)
