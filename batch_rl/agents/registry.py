"""Agents by name: those of the package, and a user's own as `my_module.MyAgent`."""

import dataclasses
import importlib
import re
import sys
from collections.abc import Mapping

from batch_rl.utils import choices, user_modules


@dataclasses.dataclass(frozen=True)
class Registry:
  """Agents of one kind.

  Attributes:
    kind: 'offline' or 'online'.
    package: Package of the shipped agents.
    agents: Modules and class names of the shipped agents, `{name: (module, class)}`.
    bases: Classes from one of which every agent is derived, as `module.Class` in the
      package.
  """

  kind: str
  package: str
  agents: Mapping[str, tuple[str, str]]
  bases: tuple[str, ...]

  def check(self, name: str | None) -> None:
    """Checks a name, as far as possible without importing agents.

    Raises:
      ValueError: If a short name is unknown, or the module of `module.Class`.
    """
    if user_modules.is_dotted(name):
      user_modules.find(str(name))
    elif name not in self.agents:
      raise ValueError(
        f'{choices.unknown("agent", name, self.agents)}, or name a class of '
        'your own as my_module.MyAgent.'
      )

  def find(self, name: str | None) -> type:
    """Returns the class of a shipped agent, or a user's own.

    Args:
      name: Name in `agents`, or `module.Class`.

    Raises:
      ValueError: If there is no such agent, or the object is not an agent of this
        kind.
    """
    self.check(name)
    name = str(name)
    if name in self.agents:
      return self._load('.'.join(self.agents[name]))
    found = user_modules.load(name)
    bases = tuple(self._load(base) for base in self.bases)
    if not (isinstance(found, type) and issubclass(found, bases)):
      expected = ' or '.join(f'{self.package}.{base}' for base in self.bases)
      kind = 'class' if isinstance(found, type) else type(found).__name__
      raise ValueError(
        f'The {kind} {name} is not an {self.kind} agent: give a class derived from '
        f'{expected}.'
      )
    return found

  def load_all(self) -> dict[str, type]:
    """Returns the shipped classes by name; afterwards gin knows them all."""
    return {name: self.find(name) for name in self.agents}

  def _load(self, name: str) -> type:
    module, class_name = name.rsplit('.', 1)
    return getattr(
      importlib.import_module(f'{self.package}.{module}'), class_name
    )


def name_of(agent_class: type) -> str:
  """Returns the name by which a registry finds a class."""
  package, _, module = agent_class.__module__.rpartition('.')
  if package.startswith('batch_rl.'):
    agents = getattr(sys.modules[package], 'AGENTS', {})
    for name, shipped in agents.items():
      if shipped == (module, agent_class.__name__):
        return name
  return user_modules.dotted_name(agent_class)


def display_name(agent_class: type) -> str:
  """Returns the name of an agent in reports.

  It is the class attribute `display_name`; by default, the name of the class without
  `FixedReplay`, `Logged` and `Agent`.
  """
  given = getattr(agent_class, 'display_name', None)
  if given is not None:
    if not isinstance(given, str) or not given.strip():
      raise ValueError(
        f'{agent_class.__name__}.display_name={given!r} is not a name: set it to a '
        'string.'
      )
    return given
  name = agent_class.__name__
  return re.sub(r'^(FixedReplay|Logged)|Agent$', '', name) or name
