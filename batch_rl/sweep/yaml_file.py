"""YAML files in which a name is given once."""

from typing import Any

import yaml


def read(path: str) -> Any:
  """Returns the content of a YAML file.

  Raises:
    ValueError: If the file cannot be read, is not YAML, or repeats a name in a mapping.
  """
  try:
    with open(path, encoding='utf-8') as file:
      # The loader is safe: it extends yaml.SafeLoader.
      return yaml.load(file, _UniqueNames)
  except OSError as error:
    raise ValueError(f'{path} cannot be read: {error.strerror}.') from error
  except (yaml.YAMLError, ValueError, RecursionError) as error:
    raise ValueError(f'{path} is not valid YAML: {error}') from error


class _UniqueNames(yaml.SafeLoader):
  """A safe loader that refuses repeated names; YAML itself keeps the last one."""

  def compose_mapping_node(self, anchor: Any) -> Any:
    """Composes a mapping, and compares its names."""
    node = super().compose_mapping_node(anchor)
    names = [str(key.value) for key, _ in node.value]
    for name in names:
      if names.count(name) > 1:
        raise yaml.MarkedYAMLError(f'{name} is given twice', node.start_mark)
    return node
