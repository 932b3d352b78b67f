"""Online agents that log their experience, each in a file `<name>_agent.py`."""

from batch_rl.agents import registry

REGISTRY = registry.Registry(
  'online',
  __name__,
  bases=('logged_agent.LoggedAgentMixin', 'random_agent.RandomAgent'),
  former={'rainbow': 'c51', 'rem': 'multi_network_dqn'},
)
