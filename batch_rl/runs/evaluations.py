"""What evaluations gave, as files of a run; read without TensorFlow."""

import dataclasses
import os
import re
from typing import Any

import numpy as np

from batch_rl.utils import files

DIRECTORY = 'evaluations'


@dataclasses.dataclass(frozen=True)
class Episode:
  """A complete episode.

  Attributes:
    environment: the emulator that it was played in.
    length: agent steps.
    undiscounted_return: the sum of its rewards.
    clipped_return: the sum of its rewards, each clipped to [-1, 1].
  """

  environment: int
  length: int
  undiscounted_return: float
  clipped_return: float


def summary(episodes: list[Episode]) -> str:
  """One line about episodes."""
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
  """Writes `evaluations/<name>.json`: every episode, and the mean return.

  Args:
    base_dir: of the run.
    iteration: that was evaluated.
    episodes: that were played.
    environments: in how many they were.
    name: of the file; None for the iteration.
    **about: more to be written.

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
  directory = os.path.join(base_dir, DIRECTORY)
  os.makedirs(directory, exist_ok=True)
  path = os.path.join(directory, f'{iteration if name is None else name}.json')
  files.write_json(path, content)
  return path


def read(base_dir: str) -> dict[int, dict[str, Any]]:
  """The evaluations that a run has made itself: `{iteration: content}`.

  Args:
    base_dir: of the run.

  Returns:
    What `write` has written, by iteration, ascending; {} if there is nothing.

  Raises:
    ValueError: if a file is damaged.
  """
  return {
    number: files.read_json(_path(base_dir, number)) or {}
    for number in _numbers(base_dir)
  }


def put_aside(base_dir: str, first: int) -> None:
  """Renames evaluations that are there before their iteration has begun.

  They are of a run that was here before, or will be made again: left, they would
  look like results of the run that begins.

  Args:
    base_dir: of the run.
    first: iteration, the next one of the run.
  """
  for number in _numbers(base_dir):
    if number >= first:
      path = _path(base_dir, number)
      os.replace(path, f'{path}.before')


def _path(base_dir: str, number: int) -> str:
  return os.path.join(base_dir, DIRECTORY, f'{number}.json')


def _numbers(base_dir: str) -> list[int]:
  directory = os.path.join(base_dir, DIRECTORY)
  names = os.listdir(directory) if os.path.isdir(directory) else []
  return sorted(
    int(match[1])
    for name in names
    if (match := re.fullmatch(r'(\d+)\.json', name))
  )
