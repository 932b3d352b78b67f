"""A user's own code, written into modules outside the package by tests."""

import contextlib
import os
import runpy
import sys
import textwrap
from unittest import mock

from gin import config

from batch_rl.utils.user_code import user_modules

AGENT = """
import gin
from batch_rl.fixed_replay.agents import dqn_agent

@gin.configurable
class MyAgent(dqn_agent.FixedReplayDQNAgent):
  display_name = 'Mine'

  def __init__(self, *args, weight=1.0, **kwargs):
    super().__init__(*args, **kwargs)
    self.weight = weight

def helper():
  return 1
"""
# gin of a run of seconds on `cartpole.write_log`.
CONFIG = """
include 'batch_rl/tests/sweep/configs/cartpole.gin'
create_offline_agent.agent_name = 'mine.MyAgent'
MyAgent.weight = 2.0
FixedReplayRunner.num_iterations = 1
FixedReplayRunner.training_steps = 8
"""


def write(path, text):
  """Writes a file with lines that may be indented alike; returns its path."""
  path.parent.mkdir(parents=True, exist_ok=True)
  path.write_text(textwrap.dedent(text))
  return path


def run_script(path, *arguments):
  """Runs a script in this process as `python PATH ARGUMENTS` does."""
  sys.path.insert(0, os.path.dirname(os.path.abspath(path)))
  try:
    with mock.patch.object(sys, 'argv', [path, *arguments]):
      runpy.run_path(path, run_name='__main__')
  finally:
    del sys.path[0]
    _forget_gin_names('__main__')


@contextlib.contextmanager
def forgotten():
  """Context after which the user's modules and their gin names are forgotten."""
  before = set(sys.modules)
  try:
    yield
  finally:
    for name in set(sys.modules) - before:
      file = getattr(sys.modules[name], '__file__', None)
      if file and user_modules.is_user_file(file):
        del sys.modules[name]
        _forget_gin_names(name)


def _forget_gin_names(module):
  for selector, _ in list(config._REGISTRY.items()):
    if selector.startswith(f'{module}.'):
      config._REGISTRY.pop(selector)
