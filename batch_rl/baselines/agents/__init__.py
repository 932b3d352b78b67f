"""Online agents that log their experience.

`AGENTS` maps each `--agent_name` to its module and class. It is separate from the
classes so that names are checked before TensorFlow is imported.
"""

from batch_rl.agents import registry

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
REGISTRY = registry.Registry(
  'online',
  __name__,
  AGENTS,
  ('logged_agent.LoggedAgentMixin', 'random_agent.RandomAgent'),
)
