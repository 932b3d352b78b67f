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
from typing import Any

from absl import flags

from batch_rl.runs import command_line, gin_files
from batch_rl.runs.bindings import bound, gin_internals
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
  shared = set.intersection(*({*cell.gin_bindings} for cell in statuses))
  for cell, status in statuses.items():
    method = (*itertools.filterfalse(_OF_A_CELL.match, cell.arguments),)
    if cell.job != 'evaluate' and not status.attempts:
      own = [line for line in cell.gin_bindings if line not in shared]
      methods.setdefault(method, (cell.name, cell.job, own, cell.arguments))
  if not methods:
    return 0
  # Python warns of forks if libraries have threads; nothing runs in them here.
  line = [sys.executable, '-W', 'ignore::DeprecationWarning', '-m', __name__]
  content = json.dumps([*methods.values()])
  code = subprocess.run(line, input=content, text=True).returncode
  if code < 0:
    raise ValueError(f'The check of the settings was killed by signal {-code}.')
  return code


def _check(job: str, own: Sequence[str], arguments: Sequence[str]) -> None:
  """Reads the settings of a cell as its program does.

  Of the bindings that not all cells have, `own`, none may be for another agent: methods
  that differ by it would be equal.
  """
  agents = plan.ONLINE if job == 'online' else plan.OFFLINE
  with command_line.user_errors():
    flags.FLAGS(arguments)
    sources = command_line.read_gin(agents)
    name = command_line.configure(sources, f'create_{job}_agent', agents)
    from dopamine.tf.agents.dqn import dqn_agent

    bases = dqn_agent.DQNAgent, *agents.base_classes()
    statements = gin_files.binding_statements(gin_files.read([], own))
    for _, selector, parameter, _, _ in statements:
      owner: Any = gin_internals.find(selector).wrapped if parameter else None
      classes = filter(gin_internals.selector_of, agents.find(name).__mro__)
      if selector in ('AnyAgent', 'batch_rl.AnyAgent'):
        has = any(parameter in bound.parameters(c) for c in classes)
      else:
        is_agent = isinstance(owner, type) and issubclass(owner, bases)
        has = not is_agent or owner in classes
      if not has:
        raise ValueError(
          f'{selector}.{parameter} has no effect on {name}: give it in `agents:`, as the '
          '`grid` or `gin_bindings` of the agents that have it.'
        )


if __name__ == '__main__':
  for name, cell_job, own, (_, *of_program) in json.load(sys.stdin):
    program = of_program[0]
    importlib.import_module(program)  # It defines the flags.
    package = program.rpartition('.')[0]
    importlib.import_module(f'{package}.run_experiment')
    # As most gin files do.
    importlib.import_module('gin.tf.external_configurables')
    sys.argv[0] = f'sweep: {name}'
    # Like each cell, in a process of its own: gin and Python keep all names.
    fork = multiprocessing.get_context('fork')
    process = fork.Process(target=_check, args=(cell_job, own, of_program))
    process.start()
    process.join()
    if (code := process.exitcode or 0) < 0:
      signal.raise_signal(-code)
    if code:
      sys.exit(code)
