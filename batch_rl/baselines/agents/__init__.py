"""Online agents that log their experience.

`AGENTS` has the choices of `--agent_name` as `{name: (module, class)}`, so that a
name can be checked before TensorFlow is imported.
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
