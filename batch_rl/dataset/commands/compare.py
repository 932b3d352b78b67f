"""The commands `compare` and `fingerprint`."""

import argparse
import dataclasses
from typing import Any

from batch_rl.dataset.commands import argument_types, console
from batch_rl.dataset.comparison import comparison, copies, fingerprints

_COPY = (
  'run directory, <root>/<Game>/<run>; store; version directory of a TFDS dataset; or '
  'folder of RL Unplugged files, or one such file'
)
_UNITS = {'row': 'shards', 'B': 'files'}


def add_compare(commands: Any) -> None:
  """Adds the command `compare`."""
  command = console.add_command(commands, _compare, 'compare')
  argument_types.add_path(command, 'a', _COPY, metavar='A')
  argument_types.add_path(command, 'b', _COPY, metavar='B')
  command.add_argument(
    '--quick',
    action='store_true',
    help='compare actions, rewards and ends only, without decoding frames',
  )
  argument_types.add_last_step(command)
  argument_types.add_run_number(command)


def add_fingerprint(commands: Any) -> None:
  """Adds the command `fingerprint`."""
  command = console.add_command(commands, _fingerprint, 'fingerprint')
  argument_types.add_path(command, 'directory', _COPY, metavar='run')
  argument_types.add_last_step(command)
  argument_types.add_run_number(command)


def read_copy(copy: copies.Copy, with_frames: bool = True) -> None:
  """Reads a copy and shows the progress."""
  with console.Progress() as progress:
    copy.read(with_frames, progress.begin(copy.path, copy.total))


def _open(arguments: argparse.Namespace, *paths: str) -> list[copies.Copy]:
  """Opens copies; the options apply to those that are datasets of episodes."""
  found = [
    copies.open_copy(path, arguments.last_step or 'auto', arguments.run)
    for path in paths
  ]
  if {copy.kind for copy in found} <= {'shards', 'store'}:
    what = 'shards and stores'
    argument_types.check_options(arguments, ('last_step', 'run'), what)
  return found


def _compare(arguments: argparse.Namespace) -> int:
  """Compares two copies of a run, in the same or in different formats.

  Counts the episodes that only one has, and finds the first row that differs. Padding,
  the order of episodes, their division into files and rewards before clipping make no
  difference. Exit code 0 if they have the same transitions, 1 if not, 2 for a wrong
  argument.
  """
  a, b = _open(arguments, arguments.a, arguments.b)
  comparison.prepare(a, b)
  for copy in (a, b):
    read_copy(copy, not arguments.quick)
  result = comparison.compare(a, b, not arguments.quick)
  summaries = {'a': _summarize(a), 'b': _summarize(b)}
  lines = [['', 'kind', 'parts', 'episodes', 'transitions', 'mean return', '']]
  for name, copy in (('a', a), ('b', b)):
    entry = summaries[name]
    parts = f'{entry["parts"]} {_UNITS[copy.unit]}'
    counts = [console.number(entry[key]) for key in ('episodes', 'transitions')]
    mean = console.number(entry['mean_return'], 2)
    lines.append([name.upper(), copy.kind, parts, *counts, mean, copy.path])
  console.show(
    arguments,
    {**summaries, **dataclasses.asdict(result)},
    [*console.table(lines, left=(0, 1, 6)), *_describe(result)],
  )
  return int(not result.same)


def _fingerprint(arguments: argparse.Namespace) -> int:
  """Prints hashes of a run and of each of its shards or files, as JSON.

  `verify --fingerprints` compares another copy with them.
  """
  (copy,) = _open(arguments, arguments.directory)
  read_copy(copy)
  print(fingerprints.to_text(fingerprints.make(copy)))
  return 0


def _summarize(copy: copies.Copy) -> dict[str, Any]:
  rows = copy.rows
  return {
    'path': copy.path,
    'kind': copy.kind,
    'game': copy.game,
    'parts': len(rows.parts),
    'episodes': rows.episodes,
    'transitions': rows.transitions,
    'mean_return': rows.mean_return(),
  }


def _describe(result: comparison.Comparison) -> list[str]:
  """Returns the first difference and the verdict."""
  what = 'transitions' if result.with_frames else 'actions, rewards and ends'
  order = '' if result.in_order else ', in another order'
  if result.same:
    remark = '' if result.with_frames else ' (frames were not compared)'
    return [f'same {what}{order}{remark}']
  only = ' and '.join(
    f'{count:,} only in {name.upper()}'
    for name, count in result.different.items()
    if count
  )
  first = dict(result.first or {})
  values = [
    f'{column} {values["a"]} and {values["b"]}'
    for column, values in first.pop('values', {}).items()
  ]
  places = []
  for name, place in first.items():
    inside = ', '.join(
      f'{key.replace("_", " ")} {place[key]}'
      for key in place
      if key not in ('episode', 'step')
    )
    step = f'episode {place["episode"]}, step {place["step"]}'
    places.append(f'{name.upper()}: {step} ({inside})')
  difference = ', '.join(values) or 'only one copy has this episode'
  return [
    f'first difference: {"; ".join(places)}: {difference}',
    f'NOT the same {what}: of the episodes, {result.equal:,} are in both{order}, {only}',
  ]
