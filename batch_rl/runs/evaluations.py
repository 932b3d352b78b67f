"""Files of evaluations, `<base_dir>/evaluations/<iteration>.json`.

They can be read without TensorFlow.
"""

import dataclasses
import math
import numbers
import os
import re
import tempfile
from typing import Any

import numpy as np

from batch_rl.utils import files, json_schema

DIRECTORY = 'evaluations'
LOGS = 'logs'  # Dopamine's, of online runs
# The entries that this package reads. A mean may be NaN; readers check it.
_SCHEMA = {
  'mean_return': numbers.Real,
  'episodes': json_schema.Required(list),
  'diagnostics': {str: numbers.Real},
}


@dataclasses.dataclass(frozen=True)
class Episode:
  """A complete episode.

  Attributes:
    environment: Number of the environment.
    length: Length in agent steps.
    undiscounted_return: Sum of the rewards.
    clipped_return: Sum of the rewards, each clipped to [-1, 1].
  """

  environment: int
  length: int
  undiscounted_return: float
  clipped_return: float


def summary(episodes: list[Episode]) -> str:
  """Returns a one-line summary of episodes."""
  returns = np.array([episode.undiscounted_return for episode in episodes])
  error = returns.std(ddof=1) / len(returns) ** 0.5 if len(returns) > 1 else 0
  return (
    f'mean return {returns.mean():.2f} (standard error {error:.2f}), '
    f'{returns.min():g} to {returns.max():g}, of {len(returns)} episodes in '
    f'{sum(episode.length for episode in episodes):,} agent steps'
  )


def write(
  base_dir: str,
  iteration: int,
  episodes: list[Episode],
  environments: int,
  name: str | None = None,
  **about: Any,
) -> str:
  """Writes the episodes of an evaluation and their mean return.

  An earlier file of the name is kept as `<name>.json.before`.

  Args:
    base_dir: Directory of the run.
    iteration: Evaluated iteration.
    episodes: Episodes of the evaluation.
    environments: Number of environments.
    name: Name of the file without `.json`; None for the iteration.
    **about: Further entries of the file.

  Returns:
    The path of the file.
  """
  returns = [episode.undiscounted_return for episode in episodes]
  content = {
    'iteration': iteration,
    **about,
    'environments': environments,
    'mean_return': float(np.mean(returns)) if returns else None,
    'agent_steps': sum(episode.length for episode in episodes),
    'episodes': [dataclasses.asdict(episode) for episode in episodes],
  }
  path = _path(base_dir, iteration if name is None else name)
  if os.path.basename(path) in files.names_in(os.path.dirname(path)):
    if files.is_remote(path):
      files.rename(path, f'{path}.before')
    else:  # The file stays in place until it is replaced.
      files.write_bytes(f'{path}.before', files.read_bytes(path))
  files.write_json(path, content)
  return path


def check_writable(base_dir: str) -> None:
  """Checks that evaluations can be written, before they are played.

  Raises:
    OSError: If they cannot.
  """
  folder = os.path.join(base_dir, DIRECTORY)
  if not files.is_remote(folder):
    os.makedirs(folder, exist_ok=True)
    tempfile.TemporaryFile(dir=folder).close()


def read(base_dir: str) -> dict[int, dict[str, Any]]:
  """Reads the evaluations that a run wrote itself, unlike those of `evaluate`.

  Args:
    base_dir: Directory of the run.

  Returns:
    The contents of the files by iteration, ascending; {} if there are none.

  Raises:
    ValueError: If a file is damaged.
  """
  names = files.names_in(os.path.join(base_dir, DIRECTORY))
  matches = (re.fullmatch(r'(\d+)\.json', name) for name in names)
  return {
    number: files.read_json(_path(base_dir, number), _SCHEMA) or {}
    for number in sorted(int(match[1]) for match in matches if match)
  }


def mean_return(base_dir: str, iteration: int) -> float | None:
  """Returns the mean return of an iteration, or None.

  It is of the run's own evaluation, or else of the program `evaluate`.

  Args:
    base_dir: Directory of the run.
    iteration: Evaluated iteration.

  Raises:
    ValueError: If a file is damaged.
  """
  for name in (iteration, f'evaluate-{iteration}'):
    content = files.read_json(_path(base_dir, name), _SCHEMA) or {}
    mean = content.get('mean_return')
    if mean is not None and math.isfinite(mean):
      return float(mean)
  return None


def put_aside(base_dir: str, first: int) -> None:
  """Renames evaluations of iterations that are still to come.

  They belong to an earlier run in this directory, or will be repeated. Otherwise
  they would be taken for results of the new run.

  Args:
    base_dir: Directory of the run.
    first: Next iteration of the run.
  """
  for folder in (DIRECTORY, LOGS):
    for name in files.names_in(os.path.join(base_dir, folder)):
      match = re.fullmatch(r'(?:evaluate-|log_)?(\d+)(?:\.json)?', name)
      if match and int(match[1]) >= first:
        path = os.path.join(base_dir, folder, name)
        files.rename(path, f'{path}.before')


def _path(base_dir: str, name: int | str) -> str:
  return os.path.join(base_dir, DIRECTORY, f'{name}.json')
