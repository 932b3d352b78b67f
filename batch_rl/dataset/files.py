"""Files that are never seen half-written."""

import json
import os


def write_json(path: str, content) -> None:
  """Writes JSON atomically: a reader sees the old file or the new one."""
  temporary = path + '.tmp'
  with open(temporary, 'w', encoding='utf-8') as file:
    json.dump(content, file, indent=1)
    file.write('\n')
    file.flush()
    os.fsync(file.fileno())
  os.replace(temporary, path)
  sync_directory(os.path.dirname(path) or '.')


def sync_directory(path: str) -> None:
  """Makes the renames inside a local directory durable."""
  descriptor = os.open(path, os.O_RDONLY)
  try:
    os.fsync(descriptor)
  finally:
    os.close(descriptor)
