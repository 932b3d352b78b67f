"""Files: JSON that is never seen half-written, locks, hashes; local or remote."""

import contextlib
import hashlib
import json
import os
from collections.abc import Iterator
from typing import Any


@contextlib.contextmanager
def remote_errors(path: str) -> Iterator[Any]:
  """Gives TensorFlow, whose failures at a remote path become a ValueError."""
  import tensorflow as tf

  try:
    yield tf
  except tf.errors.OpError as error:
    reason = ' '.join(str(error.message).split())
    raise ValueError(f'{path} cannot be read: {reason}.') from error


def reason(error: Exception) -> str:
  """What is the matter, out of an OSError or of TensorFlow's report, in a line."""
  if text := getattr(error, 'strerror', None):
    return text
  lines = str(getattr(error, 'message', error)).split('\n')
  # Before it names the operation, a session says what happened.
  nodes = [i for i, line in enumerate(lines) if '[[{{node' in line]
  line = lines[max(nodes[0] - 1, 0)] if nodes else lines[0]
  return line.split('; ')[-1].strip()


def is_remote(path: str) -> bool:
  """Whether a path is for `tf.io.gfile`, e.g. `gs://...`."""
  return '://' in path


def check_local(path: str) -> None:
  """Raises a ValueError if something is to be made at a remote path."""
  if is_remote(path):
    raise ValueError(f'{path} is remote; choose a local directory.')


def read_json(path: str) -> dict | None:
  """The contents of a file, or None if there is no such file.

  Raises:
    ValueError: if it cannot be read or is not JSON.
  """
  try:
    if is_remote(path):
      with remote_errors(path) as tf:
        if not tf.io.gfile.exists(path):
          return None
        with tf.io.gfile.GFile(path) as file:
          return json.loads(file.read())
    with open(path, encoding='utf-8') as file:
      return json.load(file)
  except FileNotFoundError:
    return None
  except OSError as error:
    raise ValueError(f'{path} cannot be read: {error.strerror}.') from error
  except ValueError as error:
    raise ValueError(f'{path} is not JSON: {error}.') from error


def write_json(path: str, content: object, durable: bool = True) -> None:
  """Writes JSON atomically: a reader sees the old file or the new one.

  Args:
    path: local or remote.
    content: of the file.
    durable: whether to wait until a local file survives the loss of power.
  """
  text = json.dumps(content, indent=1) + '\n'
  if is_remote(path):
    import tensorflow as tf

    # Object stores show a file once it is complete.
    with tf.io.gfile.GFile(path, 'w') as file:
      file.write(text)
    return
  write_bytes(path, text.encode(), durable)


def write_bytes(path: str, content: bytes, durable: bool = True) -> None:
  """Writes a local file atomically; see `write_json`."""
  os.makedirs(os.path.dirname(path) or '.', exist_ok=True)
  temporary = path + '.tmp'
  with open(temporary, 'wb') as file:
    file.write(content)
    if durable:
      file.flush()
      os.fsync(file.fileno())
  os.replace(temporary, path)
  if durable:
    sync_directory(os.path.dirname(path) or '.')


def sync_directory(path: str) -> None:
  """Makes the renames inside a local directory durable."""
  descriptor = os.open(path, os.O_RDONLY)
  try:
    os.fsync(descriptor)
  finally:
    os.close(descriptor)


def stat(path: str) -> dict[str, int]:
  """Size and time of last change of a file, local or remote.

  Raises:
    ValueError: if it cannot be read.
  """
  try:
    if is_remote(path):
      with remote_errors(path) as tf:
        if not tf.io.gfile.exists(path):
          raise ValueError(f'{path} does not exist.')
        found = tf.io.gfile.stat(path)
        return {'bytes': found.length, 'mtime_ns': found.mtime_nsec}
    local = os.stat(path)
    return {'bytes': local.st_size, 'mtime_ns': local.st_mtime_ns}
  except OSError as error:
    raise ValueError(f'{path} cannot be read: {error.strerror}.') from error


def sha256(path: str) -> str:
  """Hash of a file's contents, local or remote, in hex."""
  digest = hashlib.sha256()
  if is_remote(path):
    with remote_errors(path) as tf, tf.io.gfile.GFile(path, 'rb') as file:
      while chunk := file.read(1 << 22):
        digest.update(chunk)
    return digest.hexdigest()
  with open(path, 'rb') as file:
    while chunk := file.read(1 << 22):
      digest.update(chunk)
  return digest.hexdigest()


def with_hash(content: dict[str, Any]) -> dict[str, Any]:
  """The content with a hash of itself, for `check_hash`."""
  content = {k: v for k, v in content.items() if k != 'hash'}
  text = json.dumps(content, sort_keys=True)
  return {**content, 'hash': hashlib.sha256(text.encode()).hexdigest()}


def check_hash(path: str, content: Any) -> dict[str, Any]:
  """Returns content that `with_hash` made.

  Raises:
    ValueError: if it is not as it was then; names the path.
  """
  if not isinstance(content, dict) or content != with_hash(content):
    raise ValueError(f'{path} is damaged')
  return content


def list_directory(path: str) -> list[str]:
  """Names in a directory, local or remote.

  Raises:
    ValueError: if it cannot be listed.
  """
  if is_remote(path):
    with remote_errors(path) as tf:
      if not tf.io.gfile.isdir(path):
        raise ValueError(f'{path} is not a directory.')
      return [name.rstrip('/') for name in tf.io.gfile.listdir(path)]
  try:
    return os.listdir(path)
  except OSError as error:
    raise ValueError(f'{path} cannot be listed: {error.strerror}.') from error
