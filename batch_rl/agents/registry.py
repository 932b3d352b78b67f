"""Agents by name: short names in the package, `my_module.MyAgent` for a user's own."""

import dataclasses
import functools
import importlib
import pathlib
import pkgutil
import sys
from collections.abc import Mapping

from batch_rl.utils import choices
from batch_rl.utils.user_code import gin_signatures, user_modules

_ROOT = pathlib.Path(__file__).parents[2]  # folder of the package


@dataclasses.dataclass(frozen=True)
class Registry:
  """Agents of one kind.

  Attributes:
    kind: 'offline' or 'online'.
    package: Package of the shipped agents. Each is a file `<name>_agent.py`.
    bases: Base classes of the agents, as `module.Class` in the package; an agent is
      derived from one of them. The file of the first has no agent.
    former: Names of 2020, in gin files, commands and the names of files,
      `{former: name}`.
  """

  kind: str
  package: str
  bases: tuple[str, ...]
  former: Mapping[str, str]

  @functools.cached_property
  def modules(self) -> dict[str, str]:
    """The modules of the shipped agents, `{name: module}`; it imports none."""
    base = self.bases[0].split('.')[0]
    folders = sys.modules[self.package].__path__
    return {
      self.current(module.name.removesuffix('_agent')): module.name
      for module in pkgutil.iter_modules(folders)
      if module.name.endswith('_agent') and module.name != base
    }

  @property
  def config_folder(self) -> str:
    """The folder of the gin files of the shipped agents."""
    program = self.package.rpartition('.')[0]
    return f'{program.replace(".", "/")}/configs'

  @property
  def configs(self) -> dict[str, str]:
    """The gin files of the shipped agents, `{name: path}`."""
    folder = self.config_folder
    found = {path.stem for path in (_ROOT / folder).glob('*.gin')}
    names = sorted(found - {'base', 'fqe'})  # included by others; of `select`
    return {name: f'{folder}/{name}.gin' for name in names}

  def current(self, name: str) -> str:
    """Returns the name in `modules` for a former one; any other name as it is."""
    return self.former.get(name, name)

  def check(self, name: str | None) -> None:
    """Checks a name, as far as possible without importing agents.

    Raises:
      ValueError: If a short name is unknown, or the module of `module.Class`.
    """
    if user_modules.is_dotted(name):
      user_modules.find(str(name))
    elif name is None or self.current(name) not in self.modules:
      if '<locals>' in str(name):
        raise ValueError(
          f'{name} is defined in a function, so a run could not find it again: define '
          'it at the top level of a module.'
        )
      if name in self.configs:
        raise ValueError(
          f'{name} is not an agent but a gin file, {self.configs[name]}: give '
          f'--config={name}.'
        )
      raise ValueError(
        f'{choices.unknown("agent", name, self.modules)}, or name a class of '
        'your own as my_module.MyAgent.'
      )

  def find(self, name: str | None) -> type:
    """Returns the class of a shipped agent, or a user's own.

    Args:
      name: Name in `modules` or `former`, or `module.Class`.

    Raises:
      ValueError: If there is no such agent, or the object is not an agent of this
        kind.
    """
    self.check(name)
    name, bases = self.current(str(name)), self.base_classes()
    if name in self.modules:
      module = importlib.import_module(f'{self.package}.{self.modules[name]}')
      classes = [v for v in vars(module).values() if isinstance(v, type)]
      own = [c for c in classes if c.__module__ == module.__name__]
      [agent_class] = [c for c in own if issubclass(c, bases)]
      return agent_class
    found = user_modules.load(name)
    if not (isinstance(found, type) and issubclass(found, bases)):
      package, example = self.package.rpartition('.')[0], self.find('dqn')
      kind = 'class' if isinstance(found, type) else type(found).__name__
      raise ValueError(
        f'The {kind} {name} is not an {self.kind} agent: give a class derived from '
        f'one of {package}, such as {example.__name__}.'
      )
    gin_signatures.make_configurable(found)
    return found

  def base_classes(self) -> tuple[type, ...]:
    """Returns the classes of `bases`."""
    names = (f'{self.package}.{base}' for base in self.bases)
    return tuple(map(pkgutil.resolve_name, names))

  def load_all(self) -> dict[str, type]:
    """Returns the shipped classes by name; afterwards gin knows them all."""
    return {name: self.find(name) for name in self.modules}


def name_of(agent_class: type) -> str:
  """Returns the name by which a registry finds a class."""
  package = agent_class.__module__.rpartition('.')[0]
  registry = getattr(sys.modules.get(package), 'REGISTRY', None)
  if isinstance(registry, Registry):
    for name, shipped in registry.load_all().items():
      if shipped is agent_class:
        return name
  return user_modules.dotted_name(agent_class)
