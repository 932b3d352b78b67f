"""Settings of whichever agent a run has: the gin parameters of `AnyAgent`.

A gin file for an environment sets the network and the observations of every agent, the
user's own included:

  AnyAgent.network = @MinAtarNetwork
  AnyAgent.stack_size = 1

They become bindings of the run's agent. As among all bindings, the last one of a
parameter counts, whether it names the agent or `AnyAgent`. So the environment's file
comes last, and a line says what another order, or a binding of the user's, loses.
"""

import collections
import inspect
import os
from collections.abc import Collection, Iterable
from typing import Any

import gin
from absl import logging

from batch_rl.agents import registry
from batch_rl.runs.bindings import bound, gin_internals
from batch_rl.utils import choices
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

  A parameter that only other agents have is left out. A line names parameters that a
  later file binds for the agent, as happens if the files' order is wrong, and those of a
  user's file that a later one of the package binds for `AnyAgent`.

  Args:
    bindings: Bindings in the order of reading, after gin has read them.
    agents: Agents by name.
    agent_class: Agent of the run.

  Raises:
    ValueError: If no agent has a parameter.
  """
  classes = [  # with a name in gin, the agent first
    selector
    for base in agent_class.__mro__
    if (selector := gin_internals.selector_of(base))
  ]
  found = [binding for binding in bindings if binding.parameter]
  by_parameter = collections.defaultdict(list)
  for binding in found:
    if binding.selector in (_ANY, *classes):
      by_parameter[binding.scope, binding.parameter].append(binding)
  replaced = collections.defaultdict(list)
  for (_, parameter), same in by_parameter.items():
    *earlier, last = same
    files = {binding.file for binding in same if binding.selector == _ANY}
    if last.selector != _ANY and last.file and files - {last.file, None}:
      replaced[last.file].append(f'AnyAgent.{parameter}')
    if last.selector == _ANY and _has(agent_class, parameter, agents):
      _warn_of_loss(earlier, last)
      # Replaces an earlier binding of the agent or a base class.
      selectors = [binding.selector for binding in same]
      last.move(next((c for c in classes if c in selectors), classes[0]))
    for binding in same:
      if binding.selector == _ANY:
        binding.remove()
  if replaced:
    folders = {_folder(b) for b in found if b.selector == _ANY}
    late = set(map(os.path.dirname, replaced))
    for file, binding in _replacing(found, folders):
      if binding.selector not in (_ANY, *classes) and _folder(binding) in late:
        replaced[file].append(binding.name)
  for file, names in replaced.items():
    logging.warning(
      '%s is read later and replaces %s. If it should not, give it first.',
      file,
      ', '.join(names),
    )


def _folder(binding: bound.Binding) -> str:
  return os.path.dirname(binding.file or '')


def _warn_of_loss(
  earlier: Iterable[bound.Binding], last: bound.Binding
) -> None:
  """Warns if a file of the package replaces a binding of a user's file."""
  is_of_user = user_modules.is_outside_package
  lost = [b for b in earlier if b.file and is_of_user(b.file)]
  if lost and last.file and not is_of_user(last.file):
    *_, binding = lost
    logging.warning(
      '%s is read later and replaces %s of %s. If it should not, give that binding by '
      '--gin_bindings.',
      last.file,
      binding.name,
      binding.file,
    )


def _replacing(
  found: Iterable[bound.Binding], folders: Collection[str]
) -> list[tuple[str, bound.Binding]]:
  """Returns bindings that replace one of some folders' files, with their own file.

  Args:
    found: Bindings in the order of reading.
    folders: Folders.
  """
  in_folders = set()
  last: dict[tuple[str, str, str], bound.Binding] = {}
  for binding in found:
    key = binding.scope, binding.selector, binding.parameter
    last[key] = binding
    if _folder(binding) in folders:
      in_folders.add(key)
  return [
    (binding.file, binding)
    for key, binding in last.items()
    if key in in_folders and binding.file and _folder(binding) not in folders
  ]


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
