import json
import os

import pytest

from batch_rl.dataset import __main__ as tools


@pytest.fixture(autouse=True, scope='module')
def _without_fsync():
  """Skips waits for the disk, but still refuses a closed descriptor."""
  with pytest.MonkeyPatch.context() as patch:
    patch.setattr(os, 'fsync', os.fstat)
    yield


class Run:
  """A function that runs a command; returns its exit code, stdout and stderr."""

  def __init__(self, function):
    self._function = function

  def __call__(self, *arguments, **options):
    return self._function(*arguments, **options)

  def output(self, *arguments, code=0, **options):
    """Returns the stdout of a command that writes nothing to stderr."""
    found, out, err = self(*arguments, **options)
    assert found == code and not err, out + err
    return out

  def document(self, *arguments, **options):
    """Returns what such a command prints as JSON."""
    return json.loads(self.output(*arguments, '--json', **options))

  def error(self, *arguments, code=2, **options):
    """Returns the line of a command that prints an error and nothing else."""
    found, out, err = self(*arguments, **options)
    assert found == code and not out and is_one_line(err), out + err
    return err


@pytest.fixture
def run(capsys):
  """Runs a command of the data tools in this process."""

  def run_command(*arguments):
    capsys.readouterr()  # Drops earlier output, e.g. TFDS's progress bar.
    with pytest.raises(SystemExit) as exit_:
      tools.main([str(argument) for argument in arguments])
    printed = capsys.readouterr()
    return exit_.value.code, printed.out, printed.err

  return Run(run_command)


@pytest.fixture
def eager():
  """Runs TensorFlow eagerly: Dopamine disables that in other tests."""
  from tensorflow.python.eager import context

  with context.eager_mode():
    yield


def is_one_line(err):
  """Returns whether stderr is a single line with an error."""
  return err.startswith('error: ') and err.count('\n') == 1
