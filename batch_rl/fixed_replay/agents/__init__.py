"""Offline agents.

`AGENTS` maps each `--agent_name` to its module and class. It is separate from the
classes so that names are checked before TensorFlow is imported.
"""

from batch_rl.agents import registry

AGENTS = {
  'dqn': ('dqn_agent', 'FixedReplayDQNAgent'),
  'c51': ('rainbow_agent', 'FixedReplayRainbowAgent'),
  'quantile': ('quantile_agent', 'FixedReplayQuantileAgent'),
  'multi_head_dqn': ('multi_head_dqn_agent', 'FixedReplayMultiHeadDQNAgent'),
  'multi_network_dqn': (
    'multi_network_dqn_agent',
    'FixedReplayMultiNetworkDQNAgent',
  ),
}
REGISTRY = registry.Registry(
  'offline', __name__, AGENTS, ('fixed_replay_agent.FixedReplayAgentMixin',)
)
