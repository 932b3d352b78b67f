"""The program `python -m batch_rl.dataset`."""

import subprocess
import sys

import pytest

from batch_rl.dataset.sampling import subsets
from batch_rl.tests.dataset.conftest import is_one_line
from batch_rl.tests.interchange_runs import SAMPLE


def test_the_program_verifies_the_sample():
  """One process for the whole program; all other tests call `main`."""
  command = [sys.executable, '-m', 'batch_rl.dataset', 'verify', str(SAMPLE)]
  done = subprocess.run(command, capture_output=True, text=True, check=False)
  assert done.returncode == 0 and not done.stderr
  out = done.stdout
  assert out.startswith('shard 0: 29,999 rows, 31 episodes end\n')
  assert out.endswith('all is well (11 shards, 16.9 MB)\n')


def test_help_names_the_commands_and_all_subsets(run):
  assert 'Checks every file of a run.' in run('--help')[1]
  code, out, _ = run('subset', '--help')
  assert code == 0
  for function in subsets.SUBSETS.values():
    usage = subsets.usage(function)
    assert f'\n  {usage}\n      {function.__doc__}\n' in out


@pytest.mark.parametrize(
  'command', ['verify {}', 'convert {} x', 'export {} x-v0 --format=minari']
)
def test_a_command_for_one_run_lists_those_of_a_game(root, run, command):
  listed = run('inspect', root)[1]
  code, out, err = run(*command.format(root / 'Pong').split())
  assert code == 2 and out == listed and is_one_line(err)
  assert 'choose one' in err and not (root / 'x').exists()
