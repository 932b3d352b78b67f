"""Fixtures of the tests of logged data."""

import os

import pytest

from batch_rl.dataset import __main__ as tools


@pytest.fixture(autouse=True, scope='module')
def _without_fsync():
  """Skips waits for the disk, but still refuses a closed descriptor."""
  with pytest.MonkeyPatch.context() as patch:
    patch.setattr(os, 'fsync', os.fstat)
    yield


@pytest.fixture
def run(capsys):
  """Runs a command and returns its exit code, stdout and stderr."""

  def run_command(*arguments):
    capsys.readouterr()  # Drops earlier output, e.g. TFDS's progress bar.
    with pytest.raises(SystemExit) as exit_:
      tools.main([str(argument) for argument in arguments])
    printed = capsys.readouterr()
    return exit_.value.code, printed.out, printed.err

  return run_command


@pytest.fixture
def eager():
  """Runs TensorFlow eagerly: Dopamine disables that in other tests."""
  from tensorflow.python.eager import context

  with context.eager_mode():
    yield


def is_one_line(err):
  """Returns whether stderr is a single line with an error."""
  return err.startswith('error: ') and err.count('\n') == 1
