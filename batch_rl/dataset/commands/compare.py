"""The commands `compare` and `fingerprint`."""

import argparse
from typing import Any

from batch_rl.dataset.commands import argument_types, console
from batch_rl.dataset.comparison import comparison, copies, fingerprints
from batch_rl.utils import progress_bars


def add(commands: Any) -> None:
  """Adds the commands `compare` and `fingerprint`."""
  command = console.add_command(commands, _compare, 'compare')
  for name in ('a', 'b'):
    argument_types.add_run_directory(command, name)
  command.add_argument(
    '--quick',
    action='store_true',
    help='compare actions, rewards and ends only, without decoding frames',
  )
  command = console.add_command(commands, _fingerprint, 'fingerprint')
  argument_types.add_run_directory(command)


def read_copy(copy: copies.Copy, with_frames: bool = True) -> None:
  """Reads a copy and shows the progress."""
  with progress_bars.meter(copy.store.rows, 'row', copy.path) as bar:
    copy.read(with_frames, bar.update)


def _compare(arguments: argparse.Namespace) -> int:
  """Compares two copies of a run, each as shards or as a store.

  Counts the episodes that only one has, and finds the first row that differs. Padding,
  the order of episodes, their division into files and rewards before clipping make no
  difference. Exit code 0 if they have the same transitions, 1 if not, 2 for a wrong
  argument.
  """
  a, b = copies.open_copy(arguments.a), copies.open_copy(arguments.b)
  comparison.prepare(a, b)
  for copy in (a, b):
    read_copy(copy, not arguments.quick)
  result = comparison.compare(a, b, not arguments.quick)
  summaries = {'a': _summarize(a), 'b': _summarize(b)}
  counts = 'parts', 'episodes', 'transitions'
  lines = [['', 'kind', *counts, '']]
  for name, entry in summaries.items():
    numbers = [console.number(entry[key]) for key in counts]
    lines.append([name.upper(), entry['kind'], *numbers, entry['path']])
  text = [*console.table(lines, left=(0, 1, 5)), *_describe(result)]
  console.show(arguments, {**summaries, **result._asdict()}, text)
  return int(not result.same)


def _fingerprint(arguments: argparse.Namespace) -> int:
  """Prints hashes of a run and of each of its shards, as JSON.

  `verify --fingerprints` compares another copy with them.
  """
  copy = copies.open_copy(arguments.directory)
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
  }


def _describe(result: comparison.Comparison) -> list[str]:
  """Returns the first difference and the verdict."""
  what = 'transitions' if result.with_frames else 'actions, rewards and ends'
  if result.same or result.first is None:
    return [f'same {what}']
  first = dict(result.first)
  values = [
    f'{column} {values["a"]} and {values["b"]}'
    for column, values in first.pop('values', {}).items()
  ]
  places = [
    f'{name.upper()}: '
    + ', '.join(f'{key.replace("_", " ")} {place[key]}' for key in place)
    for name, place in first.items()
  ]
  difference = ', '.join(values) or 'only one copy has this episode'
  only = ' and '.join(
    f'{count:,} only in {name.upper()}'
    for name, count in result.different.items()
    if count
  )
  return [
    f'first difference: {"; ".join(places)}: {difference}',
    f'NOT the same {what}: of the episodes, {result.equal:,} are in both, {only}',
  ]
