"""Checks the gin settings of cells before any of them starts.

The check imports TensorFlow and the user's agents, so it has a process of its own.
"""

import importlib
import itertools
import json
import multiprocessing
import re
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence

from absl import flags

from batch_rl.runs import command_line
from batch_rl.sweep import cells, plan

_OF_A_CELL = re.compile(r'--(\w+_dir|seed)=|.*\.game_name = ')


def run(statuses: Mapping[plan.Cell, cells.Status]) -> int:
  """Checks the settings of cells that never started, those of each method once.

  Evaluations have the settings of their runs.

  Returns:
    0, or the exit code of the first wrong cell, whose error is printed.

  Raises:
    ValueError: If the check is killed.
  """
  methods: dict[tuple[str, ...], tuple] = {}
  for cell, status in statuses.items():
    method = (*itertools.filterfalse(_OF_A_CELL.match, cell.arguments),)
    if cell.job != 'evaluate' and not status.attempts:
      methods.setdefault(method, (cell.name, cell.job, cell.arguments))
  if not methods:
    return 0
  # Python warns of forks if libraries have threads; nothing runs in them here.
  line = [sys.executable, '-W', 'ignore::DeprecationWarning', '-m', __name__]
  content = json.dumps([*methods.values()])
  code = subprocess.run(line, input=content, text=True).returncode
  if code < 0:
    raise ValueError(f'The check of the settings was killed by signal {-code}.')
  return code


def _check(job: str, arguments: Sequence[str]) -> None:
  """Reads the settings of a cell as its program does."""
  agents = plan.ONLINE if job == 'online' else plan.OFFLINE
  with command_line.user_errors():
    flags.FLAGS(arguments)
    sources = command_line.read_gin(agents)
    command_line.configure(sources, f'create_{job}_agent', agents)


if __name__ == '__main__':
  for name, cell_job, (_, *of_program) in json.load(sys.stdin):
    program = of_program[0]
    importlib.import_module(program)  # It defines the flags.
    package = program.rpartition('.')[0]
    importlib.import_module(f'{package}.run_experiment')
    # As most gin files do.
    importlib.import_module('gin.tf.external_configurables')
    sys.argv[0] = f'sweep: {name}'
    # Like each cell, in a process of its own: gin and Python keep all names.
    fork = multiprocessing.get_context('fork')
    process = fork.Process(target=_check, args=(cell_job, of_program))
    process.start()
    process.join()
    if (code := process.exitcode or 0) < 0:
      signal.raise_signal(-code)
    if code:
      sys.exit(code)
