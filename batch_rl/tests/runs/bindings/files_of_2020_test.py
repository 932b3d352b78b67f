"""Gin files of 2020 run unchanged, and say what has another meaning now."""

import gin
import pytest

from batch_rl.baselines import agents as online_agents
from batch_rl.baselines import run_experiment as _online  # noqa: F401
from batch_rl.fixed_replay import agents as offline_agents
from batch_rl.fixed_replay import run_experiment as _offline  # noqa: F401
from batch_rl.fixed_replay.agents import dqn_agent
from batch_rl.runs.bindings import files_of_2020, gin_internals
from batch_rl.tests import gin_lines
from batch_rl.tests.gin_files_of_2020 import FILES

AGENTS = {'offline': offline_agents.REGISTRY, 'online': online_agents.REGISTRY}
NEW, OLD = 'WrappedFixedReplayBuffer', 'WrappedPrioritizedReplayBuffer'
MEMORIES = {'offline': NEW, 'online': 'WrappedLoggedReplayBuffer'}


def adapt(program, path, bindings=(), flag=None):
  """Loads a file as the programs do; returns the agent's class and the lines."""
  statements = gin_lines.load([str(path)] if path else [], bindings)
  agents = AGENTS[program]
  name = flag or files_of_2020.agent_name(statements, agents)
  agent_class = agents.find(name)
  return agent_class, files_of_2020.adapt(statements, agents, agent_class)


def bound_names():
  """Returns the names of all that has a value in gin."""
  return {
    selector.split('.')[-1]
    for (_, selector), values in gin_internals.bound_values().items()
    if values
  }


@pytest.mark.parametrize('name', FILES)
def test_a_file_sets_what_the_run_uses(name, tmp_path):
  file, path = FILES[name], tmp_path / 'old.gin'
  path.write_text(file.text())
  memory = MEMORIES[file.program]
  bindings = [f'{memory}.batch_size = 64']
  # 'online rem' binds the base class of several agents.
  flag = file.flag if name == 'online rem' else None
  agent_class, lines = adapt(file.program, path, bindings, flag)
  assert agent_class is AGENTS[file.program].find(file.flag)
  bases = {base.__name__ for base in agent_class.__mro__}
  assert file.agent in bases
  assert bound_names() <= {
    *('AdamOptimizer', 'RMSPropOptimizer', 'CollectorDispatcher'),
    *(file.agent, file.runner, memory, 'create_atari_environment', 'macro'),
  }
  assert gin.query_parameter(f'{memory}.batch_size') == 64
  if file.memory:
    assert gin.query_parameter(f'{memory}.replay_capacity') == 1000000
  said = '\n'.join(lines)
  schedule = 'create_runner.schedule'
  assert (schedule in said) == (schedule in file.text())
  is_renamed = file.memory not in ('', memory)
  assert (f'{file.memory}.replay_capacity' in said) == is_renamed


@pytest.mark.parametrize(
  ('program', 'runner'),
  [('offline', 'FixedReplayRunner'), ('online', 'LoggedRunner')],
)
def test_the_environment_of_the_old_runner_is_that_of_ours(program, runner):
  ours = f'{runner}.create_environment_fn'
  old = 'Runner.create_environment_fn = @atari_lib.create_atari_environment'
  other = 'run_experiment.create_agent'
  for bindings, selector in (
    ([old], 'atari_lib.create_atari_environment'),
    ([old, f'{ours} = @{other}'], other),
  ):
    gin.clear_config()
    adapt(program, None, bindings, 'dqn')
    assert 'Runner' not in bound_names()
    assert gin.query_parameter(ours).selector == selector


@pytest.mark.parametrize('names', [(NEW, NEW), (NEW, OLD), (OLD, NEW)])
def test_the_last_of_several_bindings_counts(names):
  bindings = [f'{name}.batch_size = {i + 1}' for i, name in enumerate(names)]
  _, lines = adapt('offline', None, bindings, 'dqn')
  assert gin.query_parameter(f'{NEW}.batch_size') == 2
  assert bound_names() == {NEW, 'CollectorDispatcher'}
  assert bool(lines) == (set(names) != {NEW})
  gin.clear_config()
  bindings = [f'mine/{OLD}.batch_size = %size', 'size = 7']
  adapt('offline', None, bindings, 'dqn')
  assert f'mine/{NEW}.batch_size = %size' in gin.config_str()


class OwnMemoryAgent(dqn_agent.FixedReplayDQNAgent):
  """An agent that makes a prioritised memory by itself."""

  def _build_replay_buffer(self, use_staging):
    raise NotImplementedError


@pytest.mark.parametrize(
  ('agent_class', 'binding'),
  [
    (OwnMemoryAgent, f'{OLD}.batch_size = 3'),
    (dqn_agent.FixedReplayDQNAgent, f'{OLD}.wrapped_memory = None'),
  ],
)
def test_bindings_that_mean_something_else_are_left_alone(agent_class, binding):
  statements = gin_lines.load([], [binding])
  lines = files_of_2020.adapt(statements, AGENTS['offline'], agent_class)
  assert bound_names() == {OLD, 'CollectorDispatcher'}
  assert not lines


def test_nothing_is_said_for_current_files():
  path = 'batch_rl/fixed_replay/configs/quantile.gin'
  assert adapt('offline', path, [], 'quantile')[1] == []
