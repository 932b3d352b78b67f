"""Names in gin files of 2020, for the first version of this package.

The files run unchanged: old names are read as the current ones, and the user is told
which.
"""

import inspect
from collections.abc import Iterable

from batch_rl.agents import registry
from batch_rl.runs.bindings import bound, gin_internals, settings

_PROGRAM = 'dopamine.discrete_domains.run_experiment'
_AGENT_NAME = f'{_PROGRAM}.create_agent', 'agent_name'
_SCHEDULE = f'{_PROGRAM}.create_runner', 'schedule'
# Memories that agents sampled from, and those by kind of agent now.
_FORMER_MEMORIES = (
  'dopamine.tf.replay_memory.circular_replay_buffer.WrappedReplayBuffer',
  'dopamine.tf.replay_memory.prioritized_replay_buffer'
  '.WrappedPrioritizedReplayBuffer',
  'batch_rl.baselines.replay_memory.logged_prioritized_replay_buffer'
  '.WrappedLoggedPrioritizedReplayBuffer',
)
_MEMORIES = {
  'offline': 'WrappedFixedReplayBuffer',
  'online': 'WrappedLoggedReplayBuffer',
}


def agent_name(
  bindings: Iterable[bound.Binding], agents: registry.Registry
) -> str | None:
  """Returns the agent of files without `create_offline_agent.agent_name` or the like.

  It is the value of `create_agent.agent_name`, or else the only agent whose parameters
  are bound.

  Args:
    bindings: Bindings in the order of reading, after gin has read them.
    agents: Agents by name.
  """
  if name := bound.query('.'.join(_AGENT_NAME)):
    return name
  classes = [binding.configurable for binding in bindings if binding.parameter]
  names = [n for n, agent in agents.load_all().items() if agent in classes]
  return names[0] if len(names) == 1 else None


def adapt(
  bindings: Iterable[bound.Binding],
  agents: registry.Registry,
  agent_class: type,
) -> list[str]:
  """Binds the parameters of today in place of those of 2020.

  Args:
    bindings: Bindings in the order of reading, after gin has read them.
    agents: Agents by name.
    agent_class: Agent of the run.

  Returns:
    Lines that say which names stand for others, and what has no effect.
  """
  given = [binding for binding in bindings if binding.parameter]
  _remove(given, _AGENT_NAME)
  # The runner passes an environment to Dopamine's, which would hide the binding.
  environments = [b for b in given if b.parameter == 'create_environment_fn']
  runner = gin_internals.find(settings.RUNNERS[agents.kind]).selector
  bound.redirect(environments, [f'{_PROGRAM}.Runner'], [runner])
  lines = []
  if renamed := _rename_memories(given, agents, agent_class):
    lines.append(
      f'{_MEMORIES[agents.kind]}, which samples uniformly, gets the values of '
      f'{", ".join(renamed)}.'
    )
  if _remove(given, _SCHEDULE):
    lines.append(
      'create_runner.schedule is not used: an iteration trains, then evaluates.'
    )
  return lines


def _rename_memories(given, agents, agent_class):
  """Binds the parameters of former memories for today's; returns their names.

  Other parameters stay, for the warning that they have no effect.
  """
  base = agents.base_classes()[0]
  build = getattr(agent_class, '_build_replay_buffer', None)
  if build is not base._build_replay_buffer:
    return []  # it has no memory, or one of its own
  memory = gin_internals.find(_MEMORIES[agents.kind])
  parameters = inspect.signature(memory.wrapped).parameters
  known = [binding for binding in given if binding.parameter in parameters]
  bound.redirect(known, _FORMER_MEMORIES, [memory.selector])
  return dict.fromkeys(
    f'{binding.configurable.__name__}.{binding.parameter}'
    for binding in known
    if binding.selector in _FORMER_MEMORIES
  )


def _remove(given, name):
  """Removes the bindings of a parameter from gin; returns whether there are any."""
  removed = [b for b in given if (b.selector, b.parameter) == name]
  for binding in removed:
    binding.remove()
  return bool(removed)
