"""Settings of whichever agent a run has: the gin parameters of `AnyAgent`.

A gin file for an environment sets the network and the observations of every agent, the
user's own included:

  AnyAgent.network = @MinAtarNetwork
  AnyAgent.stack_size = 1

They become bindings of the run's agent. As among all bindings, the last one of a
parameter counts, whether it names the agent or `AnyAgent`.
"""

import collections
import inspect
from collections.abc import Iterable
from typing import Any

import gin
from absl import logging
from gin import config, config_parser

from batch_rl.agents import registry
from batch_rl.runs.bindings import bound
from batch_rl.utils import choices


@gin.configurable(module='batch_rl')
def AnyAgent(**settings: Any) -> None:  # noqa: N802 (a name in gin files)
  """Stands for the run's agent in gin files; it is never called."""


_ANY = config._REGISTRY.get_match('AnyAgent').selector


def bind(
  statements: Iterable[config_parser.BindingStatement],
  agents: registry.Registry,
  agent_class: type,
) -> None:
  """Binds the parameters of `AnyAgent` to the run's agent.

  A parameter that only other agents have is left out. A line names parameters that a
  later file binds for the agent, as happens if the files' order is wrong.

  Args:
    statements: Bindings in the order of reading, after gin has read them.
    agents: Agents by name.
    agent_class: Agent of the run.

  Raises:
    ValueError: If no agent has a parameter.
  """
  classes = [  # with a name in gin, the agent first
    known.selector
    for base in agent_class.__mro__
    if (known := config._INVERSE_REGISTRY.get(base))
  ]
  by_parameter = collections.defaultdict(list)
  for binding in bound.find(statements):
    if binding.selector in (_ANY, *classes):
      by_parameter[binding.scope, binding.parameter].append(binding)
  replaced = collections.defaultdict(list)
  for (_, parameter), bindings in by_parameter.items():
    *_, last = bindings
    files = {binding.file for binding in bindings if binding.selector == _ANY}
    if last.selector != _ANY and last.file and files - {last.file, None}:
      replaced[last.file].append(f'AnyAgent.{parameter}')
    if last.selector == _ANY and _has(agent_class, parameter, agents):
      # Replaces an earlier binding of the agent or a base class.
      earlier = [binding.selector for binding in bindings]
      selector = next((c for c in classes if c in earlier), classes[0])
      last.move(selector)
    for binding in bindings:
      if binding.selector == _ANY:
        binding.remove()
  for file, names in replaced.items():
    logging.warning(
      '%s is read later and replaces %s. If it should not, give it first.',
      file,
      ', '.join(names),
    )


def _has(agent_class, parameter, agents):
  """Returns whether the agent has a parameter; refuses one that none has."""
  if parameter in inspect.signature(agent_class).parameters:
    return True
  known = {
    name
    for agent in (agent_class, *agents.load_all().values())
    for name in inspect.signature(agent).parameters
  }
  if parameter not in known:
    raise ValueError(
      f'AnyAgent.{parameter}: no {agents.kind} agent has this parameter'
      f'{choices.hint(parameter, known)}.'
    )
  return False
