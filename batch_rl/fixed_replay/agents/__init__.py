"""Offline agents, each in a file `<name>_agent.py`."""

from batch_rl.agents import registry

REGISTRY = registry.Registry(
  'offline',
  __name__,
  bases=('fixed_replay_agent.FixedReplayAgentMixin',),
  former={'rainbow': 'c51'},
)
