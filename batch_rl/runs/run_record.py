"""The record of a run, `<base_dir>/run.json`: identity, seed, settings, versions.

A resumed run compares its settings with the record. The record also documents how
the results were made.
"""

import contextlib
import importlib.metadata
import os
import re
import secrets
import shlex
import sys
import time
import weakref
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

from absl import logging

from batch_rl.dataset.shards import manifests
from batch_rl.runs import checkpoints
from batch_rl.runs.bindings import settings as settings_lib
from batch_rl.utils import files, json_schema, locks, programs

FILE_NAME = 'run.json'
LOCK = '.lock'
_PACKAGES = (
  'dopamine-rl tensorflow tf_keras numpy ale-py opencv-python gin-config'
).split()
_FUNCTION = {'name': json_schema.Required(str), 'args': list, 'kwargs': dict}
# The entries that this package reads; see `json_schema`.
_SCHEMA = {
  'run_id': str,
  'seed': int,
  'agent': str,
  'display_name': str,
  'gin_config': str,
  'replay_dir': str,
  'init_checkpoint_dir': str,
  'started': str,
  'command': str,
  'versions': dict,
  'code': dict,
  'changes': list,
  'environment': {
    **manifests.ENVIRONMENT_SCHEMA,
    'game': json_schema.Required(str),
  },
  'data': {'subset': str, 'subset_hash': str},
  'evaluation_environments': range(1, 2**16),
  'tensor_float_32': bool,
  'update_period': range(1, 2**63),
  'frozen_policies': dict,
  'create_agent': _FUNCTION,
  'create_environment': _FUNCTION,
  'modules': [str],
  'unused_bindings': [str],
}
# By path, with the token of an owner; held until it, or else the process, ends.
_locks: dict[str, tuple[locks.Lock, object]] = {}


def read(
  base_dir: str, required: Collection[str] = ()
) -> dict[str, Any] | None:
  """Returns the record of the run in a directory; None if there is none.

  Args:
    base_dir: Directory of the run.
    required: Keys that the record must have.

  Raises:
    ValueError: If the record cannot be read, lacks a key, or an entry is of another
      type.
  """
  needed = {key: json_schema.Required(_SCHEMA[key]) for key in required}
  return files.read_json(os.path.join(base_dir, FILE_NAME), _SCHEMA | needed)


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
    seed: Seed of the run; None keeps the recorded one, if any.
    accept_changes: Whether a run may continue with another seed or settings.
    **settings: Settings as text. A run with checkpoints may change only lines about
      settings that affect running (`settings.Affects`).

  Returns:
    The record: run_id, seed if the run has one, the settings, command, versions,
    start time.

  Raises:
    ValueError: If the run has checkpoints and another seed or settings, or no
      record.
  """
  if found := checkpoints.find(base_dir):
    record = _read_to_resume(base_dir, found, accept_changes)
    if settings.get('init_checkpoint_dir'):
      # A program may have given it to the agent. Without, the first weights are random.
      arguments = (record.get('create_agent') or {}).get('kwargs') or {}
      first = arguments.get('init_checkpoint_dir') or ''
      record.setdefault('init_checkpoint_dir', first)
  else:
    # The run has no results yet, but its log may contain its id.
    earlier = read(base_dir) or {}
    kept = ('run_id', 'seed') if seed is None else ('run_id',)
    record = {k: earlier[k] for k in kept if earlier.get(k) is not None}
  record.setdefault('run_id', secrets.token_hex(8))
  compared = {'seed': seed, **settings}
  if (record.get('data') or {}).get('subset_hash'):
    compared['replay_dir'] = None  # The data are compared, and may have moved.
  compare(base_dir, record, compared, accept_changes)
  if seed is not None:
    record['seed'] = seed
  record.setdefault('started', time.strftime('%Y-%m-%dT%H:%M:%S%z'))
  record.setdefault('command', _command())
  note_new(record, 'versions', versions())
  # The number of iterations may have changed.
  return record | {k: v for k, v in settings.items() if v is not None}


def _read_to_resume(
  base_dir: str, found: Sequence[checkpoints.Checkpoint], accept_changes: bool
) -> dict[str, Any]:
  """Returns the record of a run with checkpoints."""
  path = os.path.join(base_dir, FILE_NAME)
  record = read(base_dir) or {}
  record = {k: v for k, v in record.items() if v is not None}
  if 'run_id' not in record:
    problem = f'{base_dir} has checkpoints but no record of the run'
    lines = [f'{path} has no run_id: copy "run" of a checkpoint.json']
  elif found[-1].run_id() not in (None, record['run_id']):
    problem = f'{path} is not of the run that wrote the checkpoints'
    lines = changes(record, {**record, 'run_id': found[-1].run_id()})
  else:
    return record
  refuse_or_note(record, problem, lines, accept_changes)
  return record


def note_new(record: dict[str, Any], entry: str, now: dict[str, str]) -> None:
  """Sets an entry of a record; if a resumed run last had another one, warns of it."""
  before = record.setdefault(entry, now)
  # Another program that resumes the run may load other modules.
  old = {key: value for key, value in before.items() if key in now}
  if changed := changes(old, {key: now[key] for key in old}):
    problem = f'The run was last continued with other {entry}'
    refuse_or_note(record, problem, changed, accept=True)
  record[entry] = now


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
    MistakeError: If `accept` is False.
  """
  text = '; '.join([*changes[:6], *['...'] * (len(changes) > 6)])
  if not accept:
    raise programs.MistakeError(
      f'{problem}; choose another --base_dir, restore what changed, or continue with '
      f'--accept_changes: {text}'
    )
  logging.warning('%s; continuing: %s', problem, text)
  record.setdefault('changes', []).append(changes)


def compare(
  base_dir: str,
  record: dict[str, Any],
  settings: Mapping[str, Any],
  accept_changes: bool,
) -> None:
  """Compares the settings of a run with its record, and adds those that it lacks.

  Args:
    base_dir: Directory of the run.
    record: Record of the run.
    settings: Settings; None for those that are not given.
    accept_changes: Whether to continue with other settings.

  Raises:
    ValueError: If settings have changed that may not change.
  """
  changed = [
    line
    for name, now in settings.items()
    if now is not None
    for line in _changes(name, str(record.setdefault(name, now)), str(now))
  ]
  if changed:
    problem = f'{base_dir} holds a run with different settings'
    refuse_or_note(record, problem, changed, accept_changes)


def _changes(name: str, before: str, now: str) -> list[str]:
  """Returns the changed lines of a setting, which may be the text of all bindings."""
  if '\n' not in before + now:
    return changes({name: before}, {name: now})
  old, new = bindings(before), bindings(now)
  for key in {**old, **new}:
    default = settings_lib.runner_default(key)
    same = old.get(key, default) == new.get(key, default)
    if same or settings_lib.affects(key) is settings_lib.Affects.RUNNING:
      old.pop(key, None)
      new.pop(key, None)
  return changes(old, new)


def bindings(text: str) -> dict[str, str]:
  """Returns the values of recorded bindings, `{'[scope/]Class.parameter': value}`.

  Macros are replaced by their values, and left out.

  Args:
    text: Text of `gin_files.config_text`; older records continue a line after a
      backslash.
  """
  values = {}
  for line in text.replace('\\\n', ' ').split('\n'):
    name, sign, value = line.partition(' = ')
    if sign and not name.startswith('#'):
      values[name.strip()] = value.strip()
  macros = {name: values.pop(name) for name in list(values) if '.' not in name}

  def replace(match):
    return macros.get(match[1], match[0])

  for _ in macros:  # macros may refer to each other
    values = {n: re.sub(r'%([\w/]+)', replace, v) for n, v in values.items()}
  return values


def runner_setting(bindings: Mapping[str, str], name: str) -> str:
  """Returns a setting of the runner without quotes; '' if it is unbound.

  Args:
    bindings: Values by name, as `bindings` returns them.
    name: Name of the parameter.
  """
  pattern = rf'(.*[./])?{settings_lib.RUNNER}\.{name}'
  found = (v for key, v in bindings.items() if re.fullmatch(pattern, key))
  return next(found, '').strip('\'"')


def changes(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
  """Returns the changed lines, with - for the old and + for the new ones."""
  return [
    f'{sign} {key} = {values[key]}'
    for key in sorted({**before, **now})
    if before.get(key) != now.get(key)
    for sign, values in (('-', before), ('+', now))
    if key in values
  ]


def write(base_dir: str, record: dict[str, Any]) -> None:
  """Writes the record into the run's directory."""
  files.write_json(os.path.join(base_dir, FILE_NAME), record)


def lock(
  directory: str,
  flag: str = '--base_dir',
  name: str = LOCK,
  token: object = None,
) -> None:
  """Locks a local directory until the process or the context `released_locks` ends.

  Args:
    directory: Directory, created if missing.
    flag: Flag that names the directory, for the message.
    name: Name of the lock file.
    token: Token of an owner that releases it earlier.

  Raises:
    ValueError: If another process has locked it, or it is a file.
  """
  if files.is_remote(directory):
    return  # an object store has no locks
  if os.path.isfile(directory):
    raise ValueError(f'{directory} is a file: choose another {flag}.')
  os.makedirs(directory, exist_ok=True)
  path = os.path.join(directory, name)
  held = locks.try_lock(path)
  if held is None:
    raise ValueError(
      f'{directory} is in use by {locks.lock_holder(path)}; wait for it, stop it, '
      f'or choose another {flag}.'
    )
  _locks[path] = held, token


@contextlib.contextmanager
def locked_for(owner: Any, directory: str) -> Iterator[Callable[[], Any]]:
  """Context that locks a run's directory, unless this process has the lock.

  The lock is released if the context ends with an error, or with its owner. Another
  owner in this process takes it over.

  Yields:
    Function that releases it earlier.

  Raises:
    ValueError: See `lock`.
  """
  path = os.path.join(directory, LOCK)
  token = object()
  held, other = _locks.get(path, (None, None))
  if held is None:
    lock(directory, 'base_dir', token=token)
  elif other is not None:
    _locks[path] = held, token

  def release() -> None:
    if path in _locks and _locks[path][1] is token:
      _locks.pop(path)[0].close()

  weakref.finalize(owner, release)
  try:
    yield release
  except BaseException:
    release()
    raise


@contextlib.contextmanager
def released_locks() -> Iterator[None]:
  """Context whose locks are released at its end, before that of the process."""
  before = {*_locks}
  try:
    yield
  finally:
    for path in {*_locks} - before:
      _locks.pop(path)[0].close()


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
  program = ['-m', module.name] if module else sys.argv[:1]
  return shlex.join(['python', *program, *sys.argv[1:]])
