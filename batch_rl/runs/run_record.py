"""`run.json`: what a run is, written beside its results.

It tells a restart the run's identity and seed, and with which settings it was
started; and whoever reads the results, what they are results of.
"""

import difflib
import hashlib
import importlib.metadata
import os
import secrets
import shlex
import sys
import time
from typing import Any

from absl import logging

from batch_rl.runs import checkpoints
from batch_rl.utils import files, locks

FILE_NAME = 'run.json'
LOCK = '.lock'
_PACKAGES = (
  'dopamine-rl',
  'tensorflow',
  'tf_keras',
  'numpy',
  'ale-py',
  'opencv-python',
  'gin-config',
)
# What of the configuration a run may change: a run can be prolonged, and when it is
# saved makes no difference to it.
_CHANGEABLE = ('num_iterations', 'Checkpoints.')
_locks: list[Any] = []  # held until the process ends


def start(
  base_dir: str,
  seed: int | None = None,
  accept_changes: bool = False,
  **settings: str | None,
) -> dict[str, Any]:
  """Makes the record of a run, or continues that of the run in a directory.

  Nothing is written; see `write`.

  Args:
    base_dir: the run's directory.
    seed: of the run; None draws one, or keeps the one that is recorded.
    accept_changes: whether a run may go on with another seed or settings.
    **settings: what a run with checkpoints may not change, as text, but for lines
      about `num_iterations` and `Checkpoints`.

  Returns:
    The record: run_id, seed, whether it was drawn, settings and the hash of each,
    command, versions, start time.

  Raises:
    ValueError: if the run there has checkpoints and another seed or settings.
  """
  record = files.read_json(os.path.join(base_dir, FILE_NAME)) or {}
  if not checkpoints.find(base_dir):
    # Nothing to be true to yet, but its log knows the run by its id.
    kept = ('run_id', 'seed', 'seed_drawn')
    record = {key: record[key] for key in kept if key in record}
    if seed is not None:
      record.update(seed=seed, seed_drawn=False)
  record.setdefault('run_id', secrets.token_hex(8))
  record.setdefault('seed_drawn', seed is None and 'seed' not in record)
  if seed is not None:
    record['seed_drawn'] = False  # somebody wants this very one
  record.setdefault('seed', secrets.randbits(31) if seed is None else seed)
  changes = [
    change
    for name, now in {'seed': seed, **settings}.items()
    if now is not None
    for change in _changes(name, str(record.setdefault(name, now)), str(now))
  ]
  if changes:
    refuse_or_note(
      record,
      f'{base_dir} holds a run with other settings',
      changes,
      accept_changes,
    )
    if seed is not None:
      record['seed'] = seed
  record.setdefault('started', time.strftime('%Y-%m-%dT%H:%M:%S%z'))
  command = _command()
  if record.setdefault('command', command) != command:
    record.setdefault('resumed_with', []).append(command)
  now = versions()
  before = record.setdefault('versions', now)
  if before != now:
    changes = [
      f'{name} {before.get(name)} is now {version}'
      for name, version in now.items()
      if before.get(name) != version
    ]
    logging.warning(
      '%s began with other versions: %s.', base_dir, '; '.join(changes)
    )
    record.setdefault('changes', []).append(changes)
    record['versions'] = now
  # It may have been prolonged.
  given = {k: v for k, v in settings.items() if v is not None}
  record['hashes'] = {
    name: hashlib.sha256(text.encode()).hexdigest()[:16]
    for name, text in given.items()
  }
  return {**record, **given}


def refuse_or_note(
  record: dict[str, Any], what: str, changes: list[str], accept: bool
) -> None:
  """Refuses to go on with a run that has changed, or notes the changes in it.

  Args:
    record: of the run.
    what: what is the matter, for the message.
    changes: lines, with - for what was and + for what is.
    accept: whether to go on.

  Raises:
    ValueError: if not.
  """
  text = '; '.join(changes[:6])
  if not accept:
    raise ValueError(
      f'{what}; choose another --base_dir, or its settings, or go on with '
      f'--accept_changes: {text}'
    )
  logging.warning('%s; going on: %s', what, text)
  record.setdefault('changes', []).append(changes)


def _changes(name: str, before: str, now: str) -> list[str]:
  """The lines that differ, with - for what was and + for what is."""
  if '\n' not in before + now:
    return (
      [] if before == now else [f'- {name} = {before}', f'+ {name} = {now}']
    )
  return [
    line
    for line in difflib.ndiff(before.split('\n'), now.split('\n'))
    if line[0] in '+-'
    and '=' in line
    and not line[2:].startswith('#')
    and not any(name in line for name in _CHANGEABLE)
  ]


def write(base_dir: str, record: dict[str, Any]) -> None:
  """Writes the record into the run's directory."""
  files.write_json(os.path.join(base_dir, FILE_NAME), record)


def lock(base_dir: str) -> None:
  """Keeps other processes out of a local directory until this one ends.

  Raises:
    ValueError: if another process has it; the message says which.
  """
  if '://' in base_dir:
    return
  os.makedirs(base_dir, exist_ok=True)
  path = os.path.join(base_dir, LOCK)
  held = locks.try_lock(path)
  if held is None:
    raise ValueError(
      f'{base_dir} is in use by {locks.lock_holder(path)}; wait for it, stop it, '
      'or choose another --base_dir.'
    )
  _locks.append(held)


def versions() -> dict[str, str]:
  """Versions of Python, of this package and of those that decide results."""
  import batch_rl

  found = {'python': sys.version.split()[0], 'batch_rl': batch_rl.__version__}
  for package in _PACKAGES:
    try:
      found[package] = importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
      found[package] = 'not installed'
  return found


def _command() -> str:
  """The command line, as it would be typed again."""
  module = getattr(sys.modules['__main__'], '__spec__', None)
  program = f'-m {module.name}' if module else sys.argv[0]
  return shlex.join(['python', *program.split(), *sys.argv[1:]])
