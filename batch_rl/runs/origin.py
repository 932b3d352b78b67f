"""The code behind a run, as its record names it.

`evaluate` builds the agent again from this, and `report` names the method. A program
records agent, settings and data from its flags; a runner that is used as a library
records what it was given in Python.
"""

from collections.abc import Callable
from typing import Any

from batch_rl.agents import registry
from batch_rl.dataset.store import store_directory
from batch_rl.runs import agent_names, gin_files
from batch_rl.utils.user_code import function_records, user_modules

# Arguments of a runner, integers, that evaluation and report need.
RUNNER_SETTINGS = (
  'num_iterations training_steps evaluation_steps max_steps_per_episode'
).split()


def describe(
  agent: Any, create_agent_fn: Callable, create_environment_fn: Callable
) -> dict[str, Any]:
  """Returns the entries of a record about the code of every run.

  Args:
    agent: Agent of the run.
    create_agent_fn: Function that has created it.
    create_environment_fn: Function that has created the environment.

  Returns:
    The agent's `display_name` and `update_period`, the functions `create_agent` and
    `create_environment` (see `function_records.describe`), and `modules`, the folders
    of the user's modules.
  """
  return {
    'display_name': agent_names.of_agent(agent),
    'update_period': getattr(agent, 'update_period', None),
    'create_agent': function_records.describe(create_agent_fn),
    'create_environment': function_records.describe(create_environment_fn),
    'modules': user_modules.loaded_folders(),
  }


def describe_settings(runner: Any, code: dict[str, Any]) -> dict[str, Any]:
  """Returns the entries of a record that a program takes from its flags.

  Args:
    runner: Runner that is used as a library, after its construction.
    code: Result of `describe`. Arguments of `create_agent` are settings, too.
  """
  agent = runner._agent
  is_online = hasattr(agent, 'replay_log')
  name = 'LoggedRunner' if is_online else 'FixedReplayRunner'
  given = {f'{name}.{s}': getattr(runner, f'_{s}') for s in RUNNER_SETTINGS}
  if is_online:  # It has no effect offline.
    given[f'{name}.clip_rewards'] = runner._clip_rewards
  # Without clipping, as a program without the binding records it, too.
  lines = [f'{k} = {v!r}' for k, v in given.items() if v is not True]
  # Arguments override gin's bindings.
  bound = gin_files.config_text().split('\n')
  lines += [line for line in bound if line.partition(' = ')[0] not in given]
  settings = {
    'agent': registry.name_of(type(agent)),
    'arguments': function_records.arguments(code['create_agent']),
    'gin_config': '\n'.join(lines),
  }
  if hasattr(agent, '_replay_data_dir'):  # offline
    # Without, the agent has a memory of its own.
    replay_dir = agent._replay_data_dir or ''
    settings['replay_dir'] = replay_dir and store_directory.absolute(replay_dir)
  return settings
