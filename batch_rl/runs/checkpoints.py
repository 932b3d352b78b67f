"""Checkpoints of a run, written atomically and verified when read.

A checkpoint is a folder in `<base_dir>/checkpoints`. It holds the agent's
TensorFlow files, everything else in `state.pickle`, and `checkpoint.json` with the
hashes of the files and the record of the run. The folder appears only when it is
complete: it is written under another name, made durable and renamed. `ckpt-3` is
the state after iteration 3, `ckpt-4-120000` the state after 120,000 agent steps of
iteration 4.
"""

import dataclasses
import os
import pathlib
import re
import shutil
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

import gin
from absl import logging

from batch_rl.utils import files, programs, safe_pickle

_DESCRIPTION = 'checkpoint.json'
_STATE = 'state.pickle'
_DAMAGED = 'damaged-checkpoint.json'  # of a checkpoint that is set aside
# Codes of TensorFlow's errors that say nothing about a file's content: cancelled,
# deadline, permission, quota, aborted, unavailable, unauthenticated.
_UNAVAILABLE = (1, 4, 7, 8, 10, 14, 16)


class Position(NamedTuple):
  """Position of a checkpoint in a run.

  Attributes:
    iteration: Unfinished iteration, or the next one.
    steps: Agent steps taken in that iteration.
  """

  iteration: int
  steps: int = 0

  @property
  def number(self) -> int:
    """Number in the agent's file names: the last or the unfinished iteration."""
    return self.iteration if self.steps else self.iteration - 1

  @property
  def name(self) -> str:
    """Name of the checkpoint's folder."""
    return f'ckpt-{self.number}' + (f'-{self.steps}' if self.steps else '')

  def __str__(self) -> str:
    if self.steps:
      return f'agent step {self.steps} of iteration {self.iteration}'
    if not self.iteration:
      return 'the start'
    return f'the end of iteration {self.number}'


class Checkpoint(NamedTuple):
  """A checkpoint on disk.

  Attributes:
    position: Position in the run.
    directory: Its folder.
  """

  position: Position
  directory: str

  @property
  def weights(self) -> str:
    """Prefix of TensorFlow's files."""
    return os.path.join(self.directory, f'tf_ckpt-{self.position.number}')

  def read(self) -> dict[str, Any]:
    """Verifies the checkpoint and returns the state given to `Checkpoints.save`.

    Raises:
      ValueError: If a file is missing or damaged, or its pickle would run code.
      OSError: If a file cannot be read at the moment.
    """
    try:
      description = self._description()
      position = Position(description['iteration'], description['agent_steps'])
      if position != self.position:
        raise ValueError(f'{_DESCRIPTION} is of {position}')
      for name, expected in description['files'].items():
        path = os.path.join(self.directory, name)
        if files.sha256(path) != expected:
          raise ValueError(f'{path} is damaged')
      content = files.read_bytes(os.path.join(self.directory, _STATE))
      return safe_pickle.loads(content)
    except (FileNotFoundError, KeyError, TypeError, ValueError) as error:
      cause = error.__cause__
      is_local = isinstance(cause, OSError)
      if is_local or getattr(cause, 'error_code', None) in _UNAVAILABLE:
        raise OSError(str(error)) from error
      raise ValueError(
        f'Checkpoint {self.position.name} in {self.directory} cannot be used: '
        f'{str(error).rstrip(".")}.'
      ) from error

  def problem(self) -> str | None:
    """Returns what is wrong with the checkpoint, without a full stop, or None.

    Raises:
      OSError: If a file cannot be read at the moment.
    """
    try:
      self.read()
    except ValueError as error:
      return str(error).rstrip('.')
    return None

  def digest(self) -> str:
    """Returns a hash of the checkpoint: of the hashes of its files, and its run."""
    return files.sha256(os.path.join(self.directory, _DESCRIPTION))

  def run_id(self) -> str | None:
    """Returns the id of the run, or None if the checkpoint has no intact one."""
    try:
      return self._description()['run']['run_id']
    except (KeyError, TypeError, ValueError):
      return None

  def _description(self) -> dict[str, Any]:
    path = os.path.join(self.directory, _DESCRIPTION)
    return files.check_hash(path, files.read_json(path))


def find(base_dir: str) -> list[Checkpoint]:
  """Returns the complete checkpoints of a run, oldest first.

  Raises:
    ValueError: If TensorFlow could not restore from the directory, or a remote one
      cannot be read at the moment.
  """
  directory = os.path.join(base_dir, 'checkpoints')
  if pattern := re.search(r'\[.*\]|\\', directory):
    raise ValueError(
      f'TensorFlow takes {pattern[0]} in {base_dir} for a pattern, and finds no '
      'checkpoints there: rename the directory.'
    )
  checkpoints = []
  for name in files.names_in(directory):
    if match := re.fullmatch(r'ckpt-(\d+)(?:-(\d+))?', name):
      number, steps = int(match[1]), int(match[2] or 0)
      position = Position(number if steps else number + 1, steps)
      path = os.path.join(directory, name)
      if _DESCRIPTION in files.names_in(path):
        checkpoints.append(Checkpoint(position, path))
  return sorted(checkpoints, key=lambda checkpoint: checkpoint.position)


# The module under which users' gin files name it in full.
@gin.configurable(module='batch_rl.checkpoints', denylist=['base_dir'])
@dataclasses.dataclass(eq=False)
class Checkpoints:
  """Writes, finds and removes the checkpoints of a run.

  The two newest checkpoints are always kept.

  Args:
    base_dir: Directory of the run.
    keep: Number of newest iterations whose final checkpoints are kept.
    keep_every: Interval, in iterations, of the older checkpoints to keep: 10 keeps
      those of iterations 9, 19, ...; None keeps no older ones.
    every_minutes: Minutes between checkpoints within an iteration; None disables
      them.
    every_steps: Agent steps between checkpoints within an iteration; None disables
      them.
  """

  base_dir: str
  keep: int = 4
  keep_every: int | None = None
  every_minutes: float | None = 10.0
  every_steps: int | None = None

  def __post_init__(self):
    self._directory = os.path.join(self.base_dir, 'checkpoints')
    self._last_time = time.monotonic()
    self._last = Position(0)

  def newest(self) -> tuple[Checkpoint, dict[str, Any]] | None:
    """Returns the newest intact checkpoint and its state; None if there is none.

    Newer, damaged checkpoints are set aside: the run repeats their iterations, and
    they would look newer than its next checkpoints. A damaged folder is kept until the
    run writes a checkpoint at the same position.

    Raises:
      ValueError: If all checkpoints are damaged, or Dopamine's own.
      OSError: If a checkpoint cannot be read at the moment; it may be intact.
    """
    self._remove_unfinished()
    damaged: list[Checkpoint] = []
    for checkpoint in reversed(find(self.base_dir)):
      try:
        state = checkpoint.read()
      except ValueError as error:
        logging.warning('%s', error)
        damaged.append(checkpoint)
        problem = error
        continue
      if damaged:
        logging.warning('Going back to %s.', checkpoint.position)
      for other in damaged:
        files.rename(
          os.path.join(other.directory, _DESCRIPTION),
          os.path.join(other.directory, _DAMAGED),
        )
      self._last = checkpoint.position
      return checkpoint, state
    if damaged:
      raise ValueError(f'No checkpoint is left to go back to. {problem}')
    if any(n.startswith('sentinel_') for n in files.names_in(self._directory)):
      raise ValueError(
        f"{self._directory} has checkpoints of Dopamine's own: choose another "
        '--base_dir. --init_checkpoint_dir takes their weights.'
      )
    return None

  def _remove_unfinished(self):
    import tensorflow as tf

    for name in files.names_in(self._directory):
      if match := re.fullmatch(r'ckpt-\d+(-\d+)?(\.tmp)?', name):
        path = os.path.join(self._directory, name)
        is_whole = {_DESCRIPTION, _DAMAGED} & {*files.names_in(path)}
        if match[2] or not is_whole:
          tf.io.gfile.rmtree(path)

  def is_saved(self, position: Position) -> bool:
    """Returns whether the newest checkpoint is at a position."""
    return self._last == position

  def is_due(self, position: Position) -> bool:
    """Returns whether a checkpoint within an iteration is due."""
    if self.every_minutes is not None:
      if time.monotonic() - self._last_time >= 60 * self.every_minutes:
        return True
    same = position.iteration == self._last.iteration
    since = position.steps - (self._last.steps if same else 0)
    return self.every_steps is not None and since >= self.every_steps

  def save(
    self,
    position: Position,
    write: Callable[[str, int], Any],
    state: Mapping[str, Any],
    about: Mapping[str, Any],
  ) -> None:
    """Writes a checkpoint and removes the expired ones.

    Args:
      position: Position in the run.
      write: Function `(folder, number)` that writes the agent's files, named by the
        number, and returns the rest of the agent's state.
      state: State of the runner, plain data.
      about: Record of the run, for JSON.

    Raises:
      OSError: If the checkpoint cannot be written, e.g. to a full disk. Earlier
        checkpoints are intact.
      ValueError: If the state is not plain data.
    """
    import tensorflow as tf

    path = os.path.join(self._directory, position.name)
    work = tempfile.mkdtemp() if files.is_remote(path) else path + '.tmp'
    try:
      shutil.rmtree(work, ignore_errors=True)
      os.makedirs(work)
      names = _write(work, position, write, state, about)
      if files.is_remote(path):
        _upload(work, path, names)
      else:
        # The run may have gone back to an older checkpoint.
        shutil.rmtree(path, ignore_errors=True)
        os.rename(work, path)
        files.sync(self._directory)
      self._last, self._last_time = position, time.monotonic()
      self._clean()
    except (OSError, tf.errors.OpError) as error:
      raise OSError(
        f'Checkpoint {path} cannot be written: {files.reason(error)}; earlier ones '
        'are kept.'
      ) from error
    finally:
      shutil.rmtree(work, ignore_errors=True)

  def _clean(self):
    import tensorflow as tf

    try:
      own = find(self.base_dir)
      ends = [c for c in own if not c.position.steps]
      kept = [*own[-2:], *ends[-self.keep :]]
      if every := self.keep_every:
        kept += [c for c in ends if c.position.iteration % every == 0]
      for checkpoint in own:
        if checkpoint not in kept:
          tf.io.gfile.rmtree(checkpoint.directory)
    except (ValueError, OSError, tf.errors.OpError) as error:
      # A directory cannot be listed now, or a file is in use.
      logging.warning('Old checkpoints are not removed: %s', error)


def _write(work, position, write, state, about) -> list[str]:
  """Writes a checkpoint to a local folder, durably.

  Returns:
    The names of its files, the description last.
  """
  bundle = write(work, position.number)
  try:
    content = safe_pickle.dumps({**state, 'agent': bundle})
  except ValueError as error:
    raise programs.MistakeError(
      f'The run cannot be saved, since {error}: let bundle_and_checkpoint of the agent '
      'and state() of the environment return numbers, text, lists, dicts and arrays.'
    ) from error
  pathlib.Path(work, _STATE).write_bytes(content)
  # TensorFlow records the paths of the files, which change with the folder.
  pathlib.Path(work, 'checkpoint').unlink(missing_ok=True)
  hashes = {}
  for path in sorted(pathlib.Path(work).rglob('*')):
    if path.is_file():
      files.sync(str(path))
      hashes[str(path.relative_to(work))] = files.sha256(str(path))
  description = {
    'iteration': position.iteration,
    'agent_steps': position.steps,
    'files': hashes,
    'run': about,
  }
  files.write_json(
    os.path.join(work, _DESCRIPTION), files.with_hash(description)
  )
  return [*hashes, _DESCRIPTION]


def _upload(work: str, path: str, names: Iterable[str]) -> None:
  """Copies to an object store, which cannot rename: the description goes last."""
  import tensorflow as tf

  description = os.path.join(path, _DESCRIPTION)
  if tf.io.gfile.exists(description):
    tf.io.gfile.remove(description)
  for name in names:
    target = os.path.join(path, name)
    tf.io.gfile.makedirs(os.path.dirname(target))
    tf.io.gfile.copy(os.path.join(work, name), target, overwrite=True)
