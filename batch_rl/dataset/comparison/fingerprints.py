"""Fingerprints: hashes of a run and its parts in a small JSON file.

A fingerprint has the sum of the transitions (`hashed_rows`) of a run, and a sum for each
part, a shard. The sum of a part leaves out a transition whose next frame is in
another part, so it does not depend on other parts. Copies in another layout have the same
sum of the run, but other parts.
"""

import contextlib
import json
import operator
import os
from collections.abc import Collection
from typing import Any

import numpy as np

from batch_rl.dataset import run_directories
from batch_rl.dataset.comparison import copies
from batch_rl.dataset.shards import manifests
from batch_rl.utils import files, json_schema

FORMAT = 'batch_rl fingerprint 1'
_FOLDER = os.path.join(
  os.path.dirname(os.path.dirname(__file__)), 'fingerprints'
)
_Required = json_schema.Required
_COUNTS = {
  'rows': _Required(range(1 << 62)),
  'transitions': _Required(range(1 << 62)),
  'sum': _Required(str),
}
_SCHEMA = {
  'format': _Required(str),
  'game': str,
  'run': _Required(str),
  'kind': _Required(str),
  # Missing in fingerprints of earlier versions.
  'clipped_rewards': bool,
  **_COUNTS,
  'parts': _Required(
    [{'number': _Required(range(1 << 31)), 'name': _Required(str), **_COUNTS}]
  ),
}


def make(copy: copies.Copy) -> dict[str, Any]:
  """Returns the fingerprint of a copy that has been read, JSON-serialisable."""
  rows = copy.rows
  hashes = rows.hashes()
  row_of = rows.row_of(np.arange(rows.transitions))
  # Last row that a transition consists of: the next frame's.
  last_of = row_of + ~rows.terminal[row_of]
  parts = []
  for number, span in rows.parts.items():
    inside = slice(row_of.searchsorted(span[0]), last_of.searchsorted(span[1]))
    begin, stop = (np.clip(at, *span) for at in (rows.begin, rows.stop))
    counts = _counts(int((stop - begin).sum()), hashes[inside])
    parts.append({'number': number, 'name': f'shard {number}', **counts})
  fingerprint = {
    'format': FORMAT,
    'game': copy.game,
    'run': copy.run,
    'kind': copy.kind,
    'clipped_rewards': copy.clips_rewards,
    **_counts(rows.rows, hashes),
    'parts': parts,
  }
  return files.with_hash(fingerprint)


def _counts(rows: int, hashes: np.ndarray) -> dict[str, Any]:
  total = int(hashes.sum(dtype=np.uint64))  # modulo 2^64
  return {'rows': rows, 'transitions': len(hashes), 'sum': f'{total:016x}'}


def to_text(fingerprint: dict[str, Any]) -> str:
  """Returns a fingerprint as JSON, one part a line."""
  parts = [json.dumps(part) for part in fingerprint['parts']]
  rest = {**fingerprint, 'parts': []}
  listed = '"parts": [\n  ' + ',\n  '.join(parts) + '\n ]'
  return json.dumps(rest, indent=1).replace('"parts": []', listed)


def read(name: str) -> dict[str, Any]:
  """Reads and checks a fingerprint.

  Args:
    name: Path of a file, or name of one in the package, e.g. 'Pong-1-sample'.

  Raises:
    ValueError: If there is no such file, it is not a fingerprint, or is damaged.
  """
  path = name
  if not os.path.exists(name):
    path = os.path.join(_FOLDER, f'{name}.json')
  try:
    content = files.read_json(path, _SCHEMA)
  except ValueError as error:
    raise ValueError(f'{path} is not a fingerprint: {error}') from error
  if content is None:
    names = [file.removesuffix('.json') for file in os.listdir(_FOLDER)]
    raise ValueError(
      f'There is no fingerprint {name}: give the path of a file that `fingerprint` '
      f'printed, or a name in the package: {files.format_names(names)}.'
    )
  if content['format'] != FORMAT:
    raise ValueError(
      f'{path} has the format {content["format"]!r}, not {FORMAT!r}; update batch_rl.'
    )
  return files.check_hash(path, content)


def check_game(
  name: str, fingerprint: dict[str, Any], run: run_directories.RunDirectory
) -> None:
  """Raises a ValueError if a fingerprint is of another game than a run."""
  game = None
  with contextlib.suppress(ValueError):  # `verify` reports a damaged manifest.
    manifest = manifests.read(run.data_dir)
    game = manifests.look_up(manifest, 'environment', 'game', kind=str)
  expected = fingerprint.get('game')
  if game and expected and game.lower() != expected.lower():
    raise ValueError(
      f'{name} is the fingerprint of a run of {expected}, but {run.directory} is '
      f'one of {game}.'
    )


def compare(
  name: str,
  expected: dict[str, Any],
  actual: dict[str, Any],
  uncertain: Collection[int] = (),
) -> list[tuple[str, str]]:
  """Compares the fingerprint of a copy with a published one.

  Parts are compared by number. A part that only one of them has is a note, because
  a copy may have a part of the run.

  Args:
    name: Name of the published fingerprint.
    expected: Published fingerprint.
    actual: Fingerprint of the copy.
    uncertain: Numbers of the copy's parts that may lack their first row.

  Returns:
    Level, 'error' or 'note', and text of each result.
  """
  content = operator.itemgetter('transitions', 'sum')
  of_expected = {part['number']: part for part in expected['parts']}
  of_actual = {part['number']: part for part in actual['parts']}
  same = content(expected) == content(actual)
  # With the same sum, only the division into parts may differ.
  numbers = set() if same else of_expected.keys() | of_actual.keys()
  errors, notes, common = [], [], 0
  for number in sorted(numbers):
    part, found = of_expected.get(number), of_actual.get(number)
    if part is None or found is None:
      where = 'only in the fingerprint' if part else 'not in the fingerprint'
      notes.append(f'{(part or found or {})["name"]} is {where}')
    elif number in uncertain:
      notes.append(
        f'{part["name"]} was not compared: its first row is known only with the '
        'shard before it'
      )
    else:
      common += 1
      if content(found) != content(part):
        errors.append(
          f'{found["name"]} differs from the fingerprint: {found["transitions"]:,} '
          f'transitions with the sum {found["sum"]}, expected '
          f'{part["transitions"]:,} with {part["sum"]}'
        )
  if len(errors) == common > 1:
    errors = [
      f'none of {common} parts is as in the fingerprint, which is of '
      f'{expected["kind"]}: another run, or other parts (then `compare` the copies)'
    ]
  if not same and not notes and not errors:
    errors = [
      'the transitions from one part to the next differ from the fingerprint: '
      f'the run has the sum {actual["sum"]}, expected {expected["sum"]}'
    ]
  if not same and not common:
    notes.append('no part of it could be compared with the fingerprint')
  elif not errors:
    rest = '; those from one part to the next were not compared'
    notes.append(f'its transitions are those of {name}{"" if same else rest}')
  by_level = {'error': errors, 'note': notes}
  return [(level, line) for level in by_level for line in by_level[level]]
