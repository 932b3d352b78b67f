"""YAML files, read strictly: names are unique, and aliases cannot multiply them."""

from typing import Any

import yaml

_MAX_VALUES = (
  100_000  # In a file, each alias counted with all that it stands for.
)


def read(path: str) -> Any:
  """Returns the content of a YAML file.

  Raises:
    ValueError: If the file cannot be read, is not YAML, repeats a name in a mapping, or
      is nested too deeply.
  """
  try:
    with open(path, encoding='utf-8') as file:
      # The loader is safe: it extends yaml.SafeLoader.
      return yaml.load(file, _StrictLoader)
  except OSError as error:
    raise ValueError(f'{path} cannot be read: {error.strerror}.') from error
  except RecursionError as error:
    raise ValueError(f'{path} is nested too deeply.') from error
  except (yaml.YAMLError, ValueError) as error:
    raise ValueError(f'{path} is not valid YAML: {error}') from error


class _StrictLoader(yaml.SafeLoader):
  """A safe loader that refuses repeated names and huge content."""

  def __init__(self, stream: Any):
    super().__init__(stream)
    self._sizes: dict[yaml.Node, int] = {}

  def compose_node(self, parent: Any, index: Any) -> Any:
    """Composes a value, and counts the values in it."""
    is_alias = self.check_event(yaml.AliasEvent)
    mark = self.peek_event().start_mark
    node = super().compose_node(parent, index)
    if is_alias and node not in self._sizes:
      raise yaml.MarkedYAMLError('an alias is a part of itself', mark)
    inside: Any = ()
    if isinstance(node, yaml.MappingNode):
      inside = [part for pair in node.value for part in pair]
    elif isinstance(node, yaml.SequenceNode):
      inside = node.value
    self._sizes[node] = 1 + sum(self._sizes[part] for part in inside)
    if self._sizes[node] > _MAX_VALUES:
      raise yaml.MarkedYAMLError(f'more than {_MAX_VALUES:,} values', mark)
    return node

  def compose_mapping_node(self, anchor: Any) -> Any:
    """Composes a mapping, and compares its names."""
    node = super().compose_mapping_node(anchor)
    names = set()
    for key, _ in node.value:
      if isinstance(key, yaml.ScalarNode):
        if (key.tag, key.value) in names:
          raise yaml.MarkedYAMLError(
            f'{key.value} is given twice', key.start_mark
          )
        names.add((key.tag, key.value))
    return node
