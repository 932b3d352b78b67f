"""Names in gin files of 2020, for the first version of this package.

The files run unchanged: old names are read as the current ones, and the user is told
once what has no effect, and how batches and evaluations differ by default.
"""

import inspect
from collections.abc import Iterable

import gin

from batch_rl.agents import registry
from batch_rl.runs.bindings import bound as bound_lib
from batch_rl.runs.bindings import gin_internals, settings
from batch_rl.utils.user_code import user_modules

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
_ENVIRONMENT = f'{_PROGRAM}.Runner', 'create_environment_fn'
_RUNNERS = {'offline': 'FixedReplayRunner', 'online': 'LoggedRunner'}
_REASONS = {
  'offline': 'all data is there from the start, and only evaluations act',
  'online': 'batches need no staging area',
}
# Offline defaults that have changed.
_OFFLINE_DEFAULTS = {
  'num_buffers': 'Batches come from all shards, in 2020 from five random ones an '
  'iteration: bind WrappedFixedReplayBuffer.num_buffers = 5 for that.',
  'evaluation_environments': 'Long evaluations play in several emulators, in 2020 in '
  'one: bind FixedReplayRunner.evaluation_environments = 1 for that.',
}


def agent_name(
  bindings: Iterable[bound_lib.Binding],
  agents: registry.Registry,
) -> str | None:
  """Returns the agent of files that do not name one as files do now.

  It is the value of `create_agent.agent_name`, or else the only agent whose parameters
  are bound.

  Args:
    bindings: Bindings in the order of reading, after gin has read them.
    agents: Agents by name.
  """
  bound = [binding for binding in bindings if binding.parameter]
  for binding in bound:
    if (binding.selector, binding.parameter) == _AGENT_NAME:
      return gin.query_parameter('.'.join(_AGENT_NAME))
  classes = [binding.configurable for binding in bound]
  names = [n for n, agent in agents.load_all().items() if agent in classes]
  return names[0] if len(names) == 1 else None


def adapt(
  bindings: Iterable[bound_lib.Binding],
  agents: registry.Registry,
  agent_class: type,
) -> list[str]:
  """Binds the parameters of today in place of those of 2020.

  Args:
    bindings: Bindings in the order of reading, after gin has read them.
    agents: Agents by name.
    agent_class: Agent of the run.

  Returns:
    Lines that say which names stand for others, what has no effect, and, for files
    without the package's configs, how batches and evaluations differ by default.
  """
  bindings = list(bindings)
  bound = [binding for binding in bindings if binding.parameter]
  _remove(bound, *_AGENT_NAME)
  _rename_environment(bound, _RUNNERS[agents.kind])
  lines = []
  if renamed := _rename_memories(bound, agents, agent_class):
    lines.append(
      f'{_MEMORIES[agents.kind]}, which samples uniformly, gets the values of '
      f'{", ".join(renamed)}.'
    )
  if _remove(bound, *_SCHEDULE):
    lines.append(
      'create_runner.schedule is not used: an iteration trains, then evaluates.'
    )
  of_agent = {
    binding.parameter: None
    for binding in bound
    if isinstance(binding.configurable, type)
    and issubclass(agent_class, binding.configurable)
  }
  ignored = [
    name
    for name in of_agent
    if name == 'use_staging'
    or agents.kind == 'offline'
    and settings.is_online(name)
  ]
  if ignored and agent_class.__module__.startswith(f'{agents.package}.'):
    lines.append(
      f'{agent_class.__name__} has no use for {", ".join(ignored)}: '
      f'{_REASONS[agents.kind]}.'
    )
  if (
    lines
    and agents.kind == 'offline'
    and not any(map(_is_of_package, bindings))
  ):
    parameters = {binding.parameter for binding in bound}
    lines += [
      line
      for parameter, line in _OFFLINE_DEFAULTS.items()
      if parameter not in parameters
    ]
  return lines


def _rename_memories(bound, agents, agent_class):
  """Binds the parameters of former memories for today's; returns their names.

  The later of two bindings counts, of whichever name. Other parameters stay, for the
  warning that they have no effect.
  """
  base = agents.base_classes()[0]
  build = getattr(agent_class, '_build_replay_buffer', None)
  if build is not base._build_replay_buffer:
    return []  # it has no memory, or one of its own
  memory = gin_internals.find(_MEMORIES[agents.kind])
  parameters = inspect.signature(memory.wrapped).parameters
  former = [
    binding
    for binding in bound
    if binding.selector in _FORMER_MEMORIES and binding.parameter in parameters
  ]
  last = {
    (binding.scope, binding.parameter): binding
    for binding in bound
    if binding in former or binding.configurable is memory.wrapped
  }
  for binding in last.values():
    if binding in former:
      binding.move(memory.selector)
  for binding in former:
    binding.remove()
  return dict.fromkeys(
    f'{b.configurable.__name__}.{b.parameter}' for b in former
  )


def _rename_environment(bound, runner):
  """Binds the environment of Dopamine's `Runner` for a runner that has none bound.

  The runner passes an environment to `Runner`, which would hide the binding.
  """
  selector = gin_internals.find(runner).selector
  names = [(binding.selector, binding.parameter) for binding in bound]
  if _ENVIRONMENT in names and (selector, _ENVIRONMENT[1]) not in names:
    value = gin.query_parameter('.'.join(_ENVIRONMENT))
    with gin.unlock_config():
      gin.bind_parameter(f'{selector}.{_ENVIRONMENT[1]}', value)
    _remove(bound, *_ENVIRONMENT)


def _remove(bound, selector, parameter):
  """Removes the bindings of a parameter from gin; returns whether there are any."""
  removed = [
    b for b in bound if (b.selector, b.parameter) == (selector, parameter)
  ]
  for binding in removed:
    binding.remove()
  return bool(removed)


def _is_of_package(binding) -> bool:
  path = binding.file
  return path is not None and not user_modules.is_outside_package(path)
