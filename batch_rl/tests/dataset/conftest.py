"""The tools' command line, in the process of a test."""

import pytest

from batch_rl.dataset import __main__ as tools


@pytest.fixture
def run(capsys):
  """Runs a command in this process: exit code, stdout, stderr."""

  def run_command(*arguments):
    capsys.readouterr()  # of what came before, as TFDS's progress
    with pytest.raises(SystemExit) as exit_:
      tools.main([str(argument) for argument in arguments])
    printed = capsys.readouterr()
    return exit_.value.code, printed.out, printed.err

  return run_command


def is_one_line(err):
  """Whether an error was told in a line."""
  return err.startswith('error: ') and err.count('\n') == 1
