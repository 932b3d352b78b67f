"""Every agent on MinAtar, by its gin file and that of MinAtar."""

import gin
import numpy as np
import pytest
import tensorflow as tf

from batch_rl.baselines import run_experiment as online
from batch_rl.fixed_replay import run_experiment as offline
from batch_rl.minatar import environment, games
from batch_rl.runs import command_line
from batch_rl.runs.bindings import any_agent
from batch_rl.tests import configs_test, gin_lines, shipped_agents

ADAM = {**shipped_agents.ADAM, 'stack_size': 1, 'target_update_period': 1000}
ONLINE = {**ADAM, 'learning_rate': 2.5e-4, 'epsilon_decay_period': 250_000}
OFFLINE = {**ADAM, 'learning_rate': 1e-3, 'epsilon': 1e-8}
KINDS = {
  'online': ('baselines', games.ONLINE_CONFIG, online, ONLINE),
  'offline': ('fixed_replay', games.OFFLINE_CONFIG, offline, OFFLINE),
}
# Weights for Space Invaders, without heads.
WEIGHTS = 16 * (9 * 6 + 1) + 128 * (64 * 16 + 1)


@pytest.mark.parametrize(
  ('kind', 'name', 'outputs', 'networks'),
  [
    ('offline', 'dqn_adam', 1, 1),
    ('offline', 'quantile', 51, 1),
    ('offline', 'rem', 200, 1),
    ('offline', 'multi_network_rem', 1, 4),
    ('offline', 'bcq', 1, 1),
    ('offline', 'iqn', 1, 1),
    ('offline', 'hl_gauss', 51, 1),
    ('online', 'dqn_adam', 1, 1),
    ('online', 'rem', 1, 4),
  ],
)
def test_every_agent_has_the_network_and_settings(
  kind, name, outputs, networks, tmp_path
):
  folder, config, program, expected = KINDS[kind]
  files = [configs_test.config_file(folder, name), config]
  game = 'MinAtarEnvironment.game_name = "SpaceInvaders"'
  statements = gin_lines.load(files, [game])
  registry = program.REGISTRY
  create = getattr(program, f'create_{kind}_agent')
  name = gin.query_parameter(f'create_{kind}_agent.agent_name')
  any_agent.bind(statements, registry, registry.find(name))
  env = environment.MinAtarEnvironment()
  with tf.Graph().as_default():
    agent = create(None, env, str(tmp_path) if kind == 'online' else None)
  assert not [
    binding
    for binding in command_line.unused_bindings()
    if not any(part in binding for part in ('Runner', 'Buffer', 'Collector'))
  ]
  assert agent.observation_shape == (10, 10, 6)
  weights = agent.online_convnet.weights
  count = sum(np.prod(weight.shape.as_list()) for weight in weights)
  head = (64 + 1) * 64 * 16 if name == 'iqn' else 0  # the embedding of levels
  assert count == networks * (WEIGHTS + (128 + 1) * 6 * outputs) + head
  found = {**vars(agent), **configs_test.optimizer_parameters(agent.optimizer)}
  assert {key: found[key] for key in expected} == expected
  agent.eval_mode = True
  assert agent.begin_episode(env.reset(0)) in range(6)
  assert agent.step(0.0, env.step(0)[0]) in range(6)
