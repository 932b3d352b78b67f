"""`run.json`: what a run is, written beside its results.

It is made when a run first starts in a `base_dir` and tells a restart the run's
identity and seed.
"""

import importlib.metadata
import os
import secrets
import shlex
import sys
import time

from batch_rl.dataset import files

FILE_NAME = 'run.json'
_PACKAGES = (
  'dopamine-rl',
  'tensorflow',
  'tf_keras',
  'numpy',
  'ale-py',
  'opencv-python',
  'gin-config',
)


def start(base_dir: str, seed: int | None, agent_name: str) -> dict:
  """Starts a run in a directory, or finds the one that started there.

  Args:
    base_dir: the run's directory.
    seed: of the run; None draws one, or keeps the one that is recorded.
    agent_name: what the run trains.

  Returns:
    The record: run_id, seed, agent, command, versions, start time.

  Raises:
    ValueError: if the run there has another seed or agent.
  """
  path = os.path.join(base_dir, FILE_NAME)
  record = files.read_json(path) or {
    'run_id': secrets.token_hex(8),
    'agent': agent_name,
    'seed': secrets.randbits(31) if seed is None else seed,
    'started': time.strftime('%Y-%m-%dT%H:%M:%S%z'),
    'versions': versions(),
  }
  for name, given in (('seed', seed), ('agent', agent_name)):
    if given is not None and given != record[name]:
      raise ValueError(
        f'{base_dir} holds a run with {name} {record[name]!r}, not {given!r}; '
        'choose another --base_dir.'
      )
  record['command'] = _command()
  files.write_json(path, record)
  return record


def update(base_dir: str, **entries) -> dict:
  """Adds entries to the record (starting one if there is none); returns it."""
  path = os.path.join(base_dir, FILE_NAME)
  record = {**(files.read_json(path) or {}), **entries}
  files.write_json(path, record)
  return record


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
