"""JSON files that are never seen half-written, local or remote."""

import json
import os


def read_json(path: str) -> dict | None:
  """The contents of a file, or None if there is no such file.

  Raises:
    ValueError: if it is not JSON.
  """
  try:
    if '://' in path:
      import tensorflow as tf

      if not tf.io.gfile.exists(path):
        return None
      with tf.io.gfile.GFile(path) as file:
        return json.loads(file.read())
    with open(path, encoding='utf-8') as file:
      return json.load(file)
  except FileNotFoundError:
    return None
  except ValueError as error:
    raise ValueError(f'{path} is not JSON: {error}.') from error


def write_json(path: str, content: object) -> None:
  """Writes JSON atomically: a reader sees the old file or the new one."""
  text = json.dumps(content, indent=1) + '\n'
  if '://' in path:
    import tensorflow as tf

    # Object stores show a file once it is complete.
    with tf.io.gfile.GFile(path, 'w') as file:
      file.write(text)
    return
  os.makedirs(os.path.dirname(path) or '.', exist_ok=True)
  temporary = path + '.tmp'
  with open(temporary, 'w', encoding='utf-8') as file:
    file.write(text)
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
