"""The commands `compare` and `fingerprint`."""

import argparse
import dataclasses
from typing import Any

import tqdm.auto as tqdm

from batch_rl.dataset.commands import argument_types, console
from batch_rl.dataset.comparison import comparison, copies, fingerprints

_COPY = (
  'run directory, <root>/<Game>/<run>; store; version directory of a TFDS dataset; or '
  'folder of RL Unplugged files, or one such file'
)
_UNITS = {'row': 'shards', 'B': 'files', 'episode': 'splits'}


def add_compare(commands: Any) -> None:
  """Adds the command `compare`."""
  command = console.add_command(
    commands,
    'compare',
    _compare,
    'compare two copies of a run, in the same or in different formats. Counts '
    'the episodes that only one has, and finds the first row that differs. Padding, '
    'the order of episodes, their division into files and rewards before clipping '
    'make no difference. Exit code 0 if they have the same transitions, 1 if not, 2 '
    'for a wrong argument.',
  )
  for name in 'ab':
    command.add_argument(
      name, metavar=name.upper(), type=argument_types.path, help=_COPY
    )
  command.add_argument(
    '--quick',
    action='store_true',
    help='compare actions, rewards and ends only, without decoding frames',
  )
  _add_options(command)


def add_fingerprint(commands: Any) -> None:
  """Adds the command `fingerprint`."""
  command = console.add_command(
    commands,
    'fingerprint',
    _fingerprint,
    'print hashes of a run and of each of its shards or files, as JSON. `verify '
    '--fingerprints` compares another copy with them.',
  )
  command.add_argument(
    'directory', metavar='run', type=argument_types.path, help=_COPY
  )
  _add_options(command)


def _add_options(command: argparse.ArgumentParser) -> None:
  argument_types.add_last_step(command)
  argument_types.add_run_number(command)


def read_copy(copy: copies.Copy, with_frames: bool = True) -> None:
  """Reads a copy and shows the progress."""
  with tqdm.tqdm(
    total=copy.total,
    desc=copy.path,
    unit=copy.unit,
    unit_scale=True,
    disable=None,  # Shown on a terminal only.
    leave=False,
  ) as bar:
    copy.read(with_frames, bar.update)


def _open(arguments: argparse.Namespace, *paths: str) -> list[copies.Copy]:
  """Opens copies; the options apply to those that are datasets of episodes."""
  last_step, run = arguments.last_step, arguments.run_number
  found = [copies.open_copy(path, last_step or 'auto', run) for path in paths]
  kinds = {copy.kind for copy in found}
  if kinds <= {'shards', 'store'} and (last_step, run) != (None, None):
    name = 'last_step' if last_step else 'run'
    raise ValueError(
      f'--{name} does not apply to shards and stores; remove it.'
    )
  return found


def _compare(arguments: argparse.Namespace) -> int:
  a, b = _open(arguments, arguments.a, arguments.b)
  comparison.prepare(a, b)
  for copy in (a, b):
    read_copy(copy, not arguments.quick)
  result = comparison.compare(a, b, not arguments.quick)
  if arguments.json:
    console.print_json(
      {'a': _summarize(a), 'b': _summarize(b), **dataclasses.asdict(result)}
    )
  else:
    _print_copies(a, b)
    for line in _describe(result):
      print(line)
  return int(not result.same)


def _fingerprint(arguments: argparse.Namespace) -> int:
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


def _print_copies(*found: copies.Copy) -> None:
  lines = [['', 'kind', 'parts', 'episodes', 'transitions', 'mean return', '']]
  for name, copy in zip('AB', found, strict=True):
    entry = _summarize(copy)
    lines.append(
      [
        name,
        copy.kind,
        f'{entry["parts"]} {_UNITS[copy.unit]}',
        console.number(entry['episodes']),
        console.number(entry['transitions']),
        console.number(entry['mean_return'], 2),
        copy.path,
      ]
    )
  console.print_table(lines, left=(0, 1, 6))


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
  return [
    f'first difference: {_describe_first(result.first or {})}',
    f'NOT the same {what}: of the episodes, {result.equal:,} are in both{order}, {only}',
  ]


def _describe_first(first: dict[str, Any]) -> str:
  places = '; '.join(
    f'{name.upper()}: {_describe_place(first[name])}'
    for name in 'ab'
    if name in first
  )
  values = [
    f'{column} {values["a"]} and {values["b"]}'
    for column, values in first.get('values', {}).items()
  ]
  return f'{places}: {", ".join(values) or "only one copy has this episode"}'


def _describe_place(place: dict[str, Any]) -> str:
  episode, step, *files = place.items()
  inside = ', '.join(f'{key} {value}' for key, value in files)
  return f'episode {episode[1]}, step {step[1]} ({inside.replace("_", " ")})'
