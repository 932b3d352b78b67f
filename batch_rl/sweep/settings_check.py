"""Checks the gin settings of cells before any of them starts.

The check imports TensorFlow and the user's agents, so it has a process of its own.
"""

import importlib
import json
import subprocess
import sys
import types
from collections.abc import Iterable, Mapping
from typing import Any

import gin

from batch_rl.runs import command_line
from batch_rl.sweep import plan


def run(cells: Iterable[plan.Cell]) -> int:
  """Checks the settings of cells that train, those of each method once.

  Returns:
    0, or the exit code of the first wrong cell, whose error is printed.
  """
  methods: dict[tuple, dict[str, Any]] = {}
  for cell in cells:
    own = [line for line in cell.gin_bindings if '.game_name = ' not in line]
    if cell.job != 'evaluate':
      methods.setdefault((cell.gin_files, *own), vars(cell))
  if not methods:
    return 0
  line = [sys.executable, '-m', __name__]
  content = json.dumps([*methods.values()])
  return subprocess.run(line, input=content, text=True).returncode


def _check(cell: Mapping[str, Any]) -> None:
  """Reads the settings of a cell as its program does."""
  is_online = cell['job'] == 'online'
  package = 'baselines' if is_online else 'fixed_replay'
  importlib.import_module(f'batch_rl.{package}.run_experiment')
  agents = plan.ONLINE if is_online else plan.OFFLINE
  flags = dict(a.split('=', 1) for a in cell['arguments'] if a[:2] == '--')
  given = types.SimpleNamespace(
    config=None,
    agent_name=flags.get('--agent_name'),
    gin_files=cell['gin_files'],
    gin_bindings=cell['gin_bindings'],
    module_dirs=[*filter(None, [flags.get('--module_dirs')])],
  )
  gin.clear_config()
  sources = command_line.read_gin(agents, given)
  command_line.configure(sources, f'create_{agents.kind}_agent', agents, given)


if __name__ == '__main__':
  for read in json.load(sys.stdin):
    sys.argv[0] = f'sweep: {read["name"]}'
    with command_line.user_errors():
      _check(read)
