"""Every agent on MinAtar, by its gin file and that of MinAtar."""

import pathlib

import gin
import numpy as np
import pytest
import tensorflow as tf

from batch_rl.baselines import agents as online_agents
from batch_rl.baselines import run_experiment as online
from batch_rl.fixed_replay import agents as offline_agents
from batch_rl.fixed_replay import run_experiment as offline
from batch_rl.minatar import environment, games
from batch_rl.runs import command_line
from batch_rl.runs.bindings import any_agent
from batch_rl.tests import configs_test, shipped_agents

EXAMPLES = pathlib.Path(__file__).parents[3] / 'examples'
LEARNER = {
  'gamma': 0.99,
  'update_horizon': 1,
  'update_period': 4,
  'target_update_period': 1000,
  'epsilon_eval': 0.001,
  'stack_size': 1,
}
EXPLORATION = {
  'min_replay_history': 1000,
  'epsilon_train': 0.01,
  'epsilon_decay_period': 250_000,
}
ADAM = {
  'online': {**shipped_agents.ADAM, 'learning_rate': 2.5e-4},
  'offline': {**shipped_agents.ADAM, 'learning_rate': 1e-3, 'epsilon': 1e-8},
}
# {gin file: number of outputs an action, and their field}.
HEADS = {
  'dqn_adam': None,
  'c51': ('probabilities', 51),
  'quantile': ('quantile_values', 51),
  'rem': ('q_heads', 200),
  'multi_network_rem': ('q_heads', 4),
}
CASES = [
  *(('offline', name, heads) for name, heads in HEADS.items()),
  ('offline', 'cql', ('quantile_values', 51)),
  ('offline', 'bcq', ('q_values', 2)),  # and logits
  ('online', 'dqn_adam', None),
  ('online', 'rem', ('q_heads', 4)),
]
WEIGHTS = 16 * (9 * 6 + 1) + 128 * (
  64 * 16 + 1
)  # of Space Invaders, without heads


def build(kind, name, log_dir):
  """Builds the agent of two gin files, and a list of unused bindings of it."""
  module, create, registry, config = (
    (
      offline,
      'create_offline_agent',
      offline_agents.REGISTRY,
      games.OFFLINE_CONFIG,
    )
    if kind == 'offline'
    else (
      online,
      'create_online_agent',
      online_agents.REGISTRY,
      games.ONLINE_CONFIG,
    )
  )
  folder = 'fixed_replay' if kind == 'offline' else 'baselines'
  example = EXAMPLES / name / f'{name}.gin'
  file = (
    str(example) if example.exists() else configs_test.config_file(folder, name)
  )
  statements = command_line.load_gin(
    [file, config], ['MinAtarEnvironment.game_name = "SpaceInvaders"']
  )
  class_ = registry.find(gin.query_parameter(f'{create}.agent_name'))
  any_agent.bind(statements, registry, class_)
  env = environment.MinAtarEnvironment()
  directory = None if kind == 'offline' else str(log_dir)
  with tf.Graph().as_default():
    agent = getattr(module, create)(None, env, directory)
  unused = [
    binding
    for binding in command_line.unused_bindings()
    if not any(part in binding for part in ('Runner', 'Buffer', 'Collector'))
  ]
  return agent, env, unused


@pytest.mark.parametrize(('kind', 'name', 'heads'), CASES)
def test_every_agent_has_the_network_and_settings(kind, name, heads, tmp_path):
  agent, env, unused = build(kind, name, tmp_path)
  assert unused == []
  assert agent.observation_shape == (10, 10, 6)
  outputs = agent._net_outputs
  assert outputs.q_values.shape.as_list() == [1, 6]
  networks, number = 1, 1
  if heads:
    field, number = heads
    shape = [1, 6] if field == 'q_values' else [1, 6, number]
    assert getattr(outputs, field).shape.as_list() == shape
    if name.endswith('rem') and number == 4:
      networks, number = number, 1
  count = sum(
    np.prod(weight.shape.as_list()) for weight in agent.online_convnet.weights
  )
  assert count == networks * (WEIGHTS + (128 + 1) * 6 * number)
  expected = {**LEARNER, **ADAM[kind]}
  if kind == 'online':
    expected |= EXPLORATION
  found = {**vars(agent), **configs_test.optimizer_parameters(agent.optimizer)}
  assert {key: found[key] for key in expected} == expected
  agent.eval_mode = True
  assert agent.begin_episode(env.reset(0)) in range(6)
  assert agent.step(0.0, env.step(0)[0]) in range(6)
