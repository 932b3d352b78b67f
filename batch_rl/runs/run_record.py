"""The record of a run, `<base_dir>/run.json`: identity, seed, settings, versions.

A resumed run compares its settings with the record. The record also documents how
the results were made.
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
# Settings that a run may change: its length, and the times of its checkpoints.
_CHANGEABLE = ('num_iterations', 'Checkpoints.')
_locks: list[Any] = []  # held until the process ends


def start(
  base_dir: str,
  seed: int | None = None,
  accept_changes: bool = False,
  **settings: str | None,
) -> dict[str, Any]:
  """Returns a new record, or the updated record of the run in a directory.

  It writes nothing; see `write`.

  Args:
    base_dir: Directory of the run.
    seed: Seed of the run; None keeps the recorded one, or draws one.
    accept_changes: Whether a run may continue with another seed or settings.
    **settings: Settings as text. A run with checkpoints may change only the lines
      about `num_iterations` and `Checkpoints`.

  Returns:
    The record: run_id, seed, seed_drawn, the settings and their hashes, command,
    versions, start time.

  Raises:
    ValueError: If the run has checkpoints and another seed or settings.
  """
  record = files.read_json(os.path.join(base_dir, FILE_NAME)) or {}
  if not checkpoints.find(base_dir):
    # The run has no results yet, but its log may contain its id.
    kept = ('run_id', 'seed', 'seed_drawn')
    record = {key: record[key] for key in kept if key in record}
    if seed is not None:
      record.update(seed=seed, seed_drawn=False)
  record.setdefault('run_id', secrets.token_hex(8))
  record.setdefault('seed_drawn', seed is None and 'seed' not in record)
  if seed is not None:
    record['seed_drawn'] = False
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
  # The number of iterations may have changed.
  given = {k: v for k, v in settings.items() if v is not None}
  record['hashes'] = {
    name: hashlib.sha256(text.encode()).hexdigest()[:16]
    for name, text in given.items()
  }
  return {**record, **given}


def refuse_or_note(
  record: dict[str, Any], problem: str, changes: list[str], accept: bool
) -> None:
  """Refuses to continue a run with changes, or records the changes.

  Args:
    record: Record of the run.
    problem: First words of the message.
    changes: Changed lines, with - for the old and + for the new ones.
    accept: Whether to continue.

  Raises:
    ValueError: If `accept` is False.
  """
  text = '; '.join(changes[:6])
  if not accept:
    raise ValueError(
      f'{problem}; choose another --base_dir, restore what changed, or continue with '
      f'--accept_changes: {text}'
    )
  logging.warning('%s; continuing: %s', problem, text)
  record.setdefault('changes', []).append(changes)


def _changes(name: str, before: str, now: str) -> list[str]:
  """Returns the changed lines, with - for the old and + for the new ones."""
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
  """Locks a local run directory until this process ends.

  Raises:
    ValueError: If another process has locked it.
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
  """Returns the versions of Python, this package and those that affect results."""
  import batch_rl

  installed = {
    'python': sys.version.split()[0],
    'batch_rl': batch_rl.__version__,
  }
  for package in _PACKAGES:
    try:
      installed[package] = importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
      installed[package] = 'not installed'
  return installed


def _command() -> str:
  """Returns the command line, quoted for a shell."""
  module = getattr(sys.modules['__main__'], '__spec__', None)
  program = f'-m {module.name}' if module else sys.argv[0]
  return shlex.join(['python', *program.split(), *sys.argv[1:]])
