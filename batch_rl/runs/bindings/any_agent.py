"""Settings of whichever agent a run has: the gin parameters of `AnyAgent`.

A gin file for an environment sets the network and the observations of every agent, the
user's own included:

  AnyAgent.network = @MinAtarNetwork
  AnyAgent.stack_size = 1

They become bindings of the run's agent. As among all bindings, the last one of a
parameter counts, whether it names the agent or `AnyAgent`. Give the agent's file, that
of the environment, and your own ones in this order. A warning names each binding that
another order discards.
"""

from collections.abc import Iterable
from typing import Any

import gin
from absl import logging

from batch_rl.agents import registry
from batch_rl.runs.bindings import bound, gin_internals
from batch_rl.utils.user_code import user_modules


@gin.configurable(module='batch_rl')
def AnyAgent(**settings: Any) -> None:  # noqa: N802 (a name in gin files)
  """Stands for the run's agent in gin files; it is never called."""


_ANY = 'batch_rl.AnyAgent'


def bind(
  bindings: Iterable[bound.Binding],
  agents: registry.Registry,
  agent_class: type,
) -> None:
  """Binds the parameters of `AnyAgent` to the run's agent.

  A parameter that only other agents have is left out. A warning names each binding, of
  whichever class, that is lost because files are in the wrong order.

  Args:
    bindings: Bindings in the order of reading, after gin has read them.
    agents: Agents by name.
    agent_class: Agent of the run.

  Raises:
    ValueError: If no agent has a parameter.
  """
  owners = {  # by name in gin, the agent first
    selector: base
    for base in agent_class.__mro__
    if (selector := gin_internals.selector_of(base))
  }
  used = []
  for binding in bindings:
    parameter = binding.parameter
    if binding.selector != _ANY or _has(owners.values(), parameter, agents):
      used.append(binding)
    else:
      binding.remove()
      if not binding.file:
        logging.warning(
          'The gin binding %s has no effect on this run.', binding.name
        )
  bound.redirect(used, [_ANY], [*owners])

  def name(binding):
    selector = _ANY if binding.selector in owners else binding.selector
    return binding.scope, selector, binding.parameter

  last = {name(binding): binding for binding in used}
  for binding in used:
    later = last[name(binding)]
    if _is_lost(binding, later):
      logging.warning(
        '%s of %s is replaced by %s, which is read later: give that file first, or '
        'the parameter by --gin_bindings.',
        binding.name,
        binding.file,
        later.file,
      )


def _is_lost(earlier: bound.Binding, later: bound.Binding) -> bool:
  """Returns whether files in the wrong order replace a binding.

  A file of the package comes after a user's; or that of an agent after an environment's.
  """
  if not later.file or earlier.file in (None, later.file):
    return False
  is_of_user = user_modules.is_outside_package
  return not is_of_user(later.file) and (
    is_of_user(earlier.file) or earlier.selector == _ANY != later.selector
  )


def _has(owners, parameter, agents):
  """Returns whether the agent has a parameter; refuses one that none has."""
  if any(parameter in bound.parameters(owner) for owner in owners):
    return True
  classes = *owners, *agents.load_all().values()
  known: set[str] = set().union(*map(bound.parameters, classes))
  if parameter not in known:
    raise ValueError(
      f'AnyAgent.{parameter}: no {agents.kind} agent has this parameter'
      f'{bound.parameter_hint(parameter, known)}.'
    )
  return False
