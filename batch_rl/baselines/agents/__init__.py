"""Online agents that log what they experience.

`AGENTS` names them for `--agent_name`: `{name: (module, class)}`, so that the
names can be checked before TensorFlow is imported.
"""

AGENTS = {
  'dqn': ('dqn_agent', 'LoggedDQNAgent'),
  'c51': ('rainbow_agent', 'LoggedRainbowAgent'),
  'quantile': ('quantile_agent', 'LoggedQuantileAgent'),
  'multi_network_dqn': (
    'multi_network_dqn_agent',
    'LoggedMultiNetworkDQNAgent',
  ),
  'random': ('random_agent', 'RandomAgent'),
}
