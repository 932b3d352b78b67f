"""`manifest.json`: what a logger writes beside the shards of a run."""

import os
from typing import Any

from batch_rl.utils import files

FILE_NAME = 'manifest.json'
# Key of the rows that end an episode for the environment, but not for the agent.
TRUNCATED_ROWS = 'truncated_rows'


def read(logs: str) -> dict[str, Any]:
  """What the logger wrote beside the shards; empty if there is nothing.

  Raises:
    ValueError: if it is not JSON, or not an object.
  """
  path = os.path.join(logs, FILE_NAME)
  manifest = files.read_json(path)
  if manifest is None:
    return {}
  if not isinstance(manifest, dict):
    raise ValueError(f'{path} is not a manifest: it holds no JSON object.')
  return manifest


def look_up(content: Any, *keys: str, kind: Any) -> Any:
  """An entry deep in JSON, or None if it is absent or of another kind."""
  for key in keys:
    content = content.get(key) if isinstance(content, dict) else None
  return content if isinstance(content, kind) else None
