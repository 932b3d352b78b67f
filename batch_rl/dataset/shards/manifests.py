"""The manifest of a run: `manifest.json`, written beside its shards."""

import os
from typing import Any

from batch_rl.utils import files

FILE_NAME = 'manifest.json'
# Key of the rows at which an episode was truncated rather than terminated.
TRUNCATED_ROWS = 'truncated_rows'


def read(data_dir: str) -> dict[str, Any]:
  """Returns the manifest in a directory; empty if there is none.

  Args:
    data_dir: Directory of the shards, or a store; local or remote.

  Raises:
    ValueError: If the manifest cannot be read, or is not a JSON object.
  """
  path = os.path.join(data_dir, FILE_NAME)
  manifest = files.read_json(path)
  if manifest is None:
    return {}
  if not isinstance(manifest, dict):
    raise ValueError(f'{path} is not a manifest: it is not a JSON object.')
  return manifest


def look_up(content: Any, *keys: str, kind: Any) -> Any:
  """Returns a nested entry of a JSON object.

  Args:
    content: Parsed JSON.
    *keys: Keys from the outermost object to the entry.
    kind: Expected type of the entry.

  Returns:
    The entry, or None if it is missing or of another type.
  """
  for key in keys:
    content = content.get(key) if isinstance(content, dict) else None
  return content if isinstance(content, kind) else None
