"""The run's side of a logger: scalars go to a process of its own.

There a logger draws none of the run's random numbers, and its errors and delays are not
those of the run.
"""

import contextlib
import importlib.util
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from typing import Any

from absl import logging

from batch_rl.utils import choices
from batch_rl.utils.user_code import user_modules

_PACKAGES = ('wandb', 'mlflow')
_MOST_SECONDS = 20.0  # to send the rest; SLURM kills after 30


def check(names: Sequence[str]) -> None:
  """Checks the names of loggers, without importing them.

  Raises:
    ValueError: If they are not a list, or one is unknown or not installed.
  """
  if isinstance(names, str):
    raise ValueError(f'loggers={names!r}: give a list, [{names!r}].')
  for name in names:
    if user_modules.is_dotted(name):
      if name.startswith('__main__.'):
        raise ValueError(
          f'{name} is not defined in a file: move the logger to a module.'
        )
      user_modules.find(name)
      continue
    choices.choose('logger', name, _PACKAGES)
    spec = importlib.util.find_spec(name)
    # Without an origin it is a folder of results, e.g. W&B's `wandb`.
    if spec is None or spec.origin is None:
      remedy = f"pip install 'batch_rl[{name}]'"
      raise ValueError(f'{name} is not installed: {remedy}.')


@contextlib.contextmanager
def running(
  names: Sequence[str], writer: Any, run: dict[str, Any]
) -> Iterator[None]:
  """Sends loggers what a TensorBoard writer gets, while the context is open.

  Args:
    names: Names of loggers, see `check`.
    writer: TensorBoard writer, `tf.compat.v1.summary.FileWriter`; None for none.
    run: `id`, `name` and `config` of the run; JSON-serialisable.
  """
  import tensorflow as tf  # not in the process of a logger

  if names and writer is None:
    logging.warning(
      'No scalars for %s: the agent has no summary_writer.', names
    )
  feeds = [_Feed(name, run) for name in names if writer is not None]
  if feeds:
    write = writer.add_summary

    def add_summary(summary, global_step=None):
      write(summary, global_step)
      if isinstance(summary, bytes):
        summary = tf.compat.v1.Summary.FromString(summary)
      known = [v for v in summary.value if v.HasField('simple_value')]
      for feed in feeds:
        feed.send(
          [{v.tag: v.simple_value for v in known}, int(global_step or 0)]
        )

    writer.add_summary = add_summary
  is_completed = False
  try:
    yield
    is_completed = True
  finally:
    deadline = time.monotonic() + _MOST_SECONDS
    for feed in feeds:
      feed.send(is_completed)
    for feed in feeds:
      feed.wait(deadline)


class _Feed:
  """The process of a logger, which gets lines of JSON."""

  def __init__(self, name, run):
    self._name = name
    # It finds the modules that this process finds.
    code = f'import sys; sys.path[:] = {[*map(str, sys.path)]}; '
    code += 'from batch_rl.runs.loggers import process; process.main()'
    self._process = subprocess.Popen(
      [sys.executable, '-c', code],
      stdin=subprocess.PIPE,
      stdout=2,
      start_new_session=True,  # Ctrl-C does not reach it
    )
    self._stdin: Any = self._process.stdin
    self.send([name, run])

  def send(self, message: Any) -> None:
    """Sends a message, unless the process has ended, which prints its error."""
    with contextlib.suppress(OSError):
      self._stdin.write(f'{json.dumps(message)}\n'.encode())
      self._stdin.flush()

  def wait(self, deadline: float) -> None:
    """Waits until the process has sent all and ended, or stops it."""
    try:
      self._process.wait(max(deadline - time.monotonic(), 0))
    except subprocess.TimeoutExpired:
      os.killpg(self._process.pid, signal.SIGKILL)
      text = 'The logger %s could not send the rest in %g s, and was stopped.'
      logging.warning(text, self._name, _MOST_SECONDS)
