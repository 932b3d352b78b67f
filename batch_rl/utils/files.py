"""Local and remote files: atomic writes, JSON, CSV, hashes and listings."""

import contextlib
import csv
import hashlib
import io
import json
import os
import re
import secrets
from collections.abc import Collection, Iterator
from typing import Any, BinaryIO

from batch_rl.utils import choices, json_schema, programs

# End of the name of a file that is not complete yet.
TEMPORARY = '.tmp'


@contextlib.contextmanager
def remote_errors(path: str, writes: bool = False) -> Iterator[Any]:
  """Yields TensorFlow; its errors become an OSError (writes) or a MistakeError."""
  try:
    import tensorflow as tf
  except ModuleNotFoundError as error:
    raise ValueError(
      f'{path} is remote, which needs TensorFlow: choose a local path, or run '
      '`pip install .` in the clone.'
    ) from error

  try:
    yield tf
  except tf.errors.OpError as error:
    kind = OSError if writes else programs.MistakeError
    verb = 'written' if writes else 'read'
    raise kind(f'{path} cannot be {verb}: {reason(error)}.') from error


def reason(error: Exception) -> str:
  """Returns the cause of an OSError or a TensorFlow error in one line."""
  if text := getattr(error, 'strerror', None):
    return text
  lines = str(getattr(error, 'message', error)).split('\n')
  # A session reports the cause on the line before the operation's name.
  nodes = [i for i, line in enumerate(lines) if '[[{{node' in line]
  line = lines[max(nodes[0] - 1, 0)] if nodes else lines[0]
  return line.split('; ')[-1].strip()


def is_remote(path: str) -> bool:
  """Returns whether `tf.io.gfile` must read a path, e.g. `gs://...`."""
  return '://' in path


def check_local(path: str, remedy: str = 'choose a local directory') -> None:
  """Raises a ValueError if a path is remote."""
  if is_remote(path):
    raise ValueError(f'{path} is remote; {remedy}.')


_RESTORE = 'restore or delete it'


def read_json(path: str, schema: Any = object, remedy: str = _RESTORE) -> Any:
  """Returns the content of a JSON file, or None if the file does not exist.

  Args:
    path: Local or remote path.
    schema: Expected structure of the content; see `json_schema`.
    remedy: Advice for a damaged file, the end of the message.

  Raises:
    ValueError: If the file cannot be read, is not JSON, or has another structure.
      The message names the file, the key and the value.
  """
  try:
    if is_remote(path):
      with remote_errors(path) as tf:
        if not tf.io.gfile.exists(path):
          return None
    content = read_bytes(path)
  except FileNotFoundError:
    return None
  except OSError as error:
    raise ValueError(f'{path} cannot be read: {error.strerror}.') from error
  return parse_json(path, content, schema, remedy)


def parse_json(
  path: str, content: bytes, schema: Any = object, remedy: str = _RESTORE
) -> Any:
  """Returns the content of a JSON file that has been read; see `read_json`."""
  try:
    return json_schema.parse(content, schema)
  except ValueError as error:
    raise ValueError(f'{path} is damaged: {error}; {remedy}.') from error


def read_csv(path: str | os.PathLike[str]) -> list[dict[str, str]]:
  """Returns the rows of a local CSV file, `{column: text}`."""
  with open(path, encoding='utf-8', newline='') as file:
    return list(csv.DictReader(file))


def write_json(path: str, content: object, durable: bool = True) -> None:
  """Writes JSON atomically: readers see the old or the new file, never a part.

  Args:
    path: Local or remote path.
    content: JSON-serialisable content of the file.
    durable: Whether to wait until a local file survives a power failure.
  """
  text = json.dumps(content, indent=1) + '\n'
  if is_remote(path):
    with remote_errors(path, writes=True) as tf:
      tf.io.gfile.makedirs(os.path.dirname(path))
      with tf.io.gfile.GFile(path + '.tmp', 'w') as file:
        file.write(text)
      tf.io.gfile.rename(path + '.tmp', path, overwrite=True)
    return
  write_bytes(path, text.encode(), durable)


def write_bytes(path: str, content: bytes, durable: bool = True) -> None:
  """Writes a local file atomically, durably by default (see `write_json`)."""
  with replacing(path, durable) as file:
    file.write(content)


@contextlib.contextmanager
def replacing(path: str, durable: bool = True) -> Iterator[BinaryIO]:
  """Opens a file that takes the place of a local file at the end of the block.

  An exception in the block leaves the old file. Several processes may write one file
  at a time; the last one wins.

  Args:
    path: Path of the file to replace.
    durable: Whether to wait until the file survives a power failure.
  """
  os.makedirs(os.path.dirname(path) or '.', exist_ok=True)
  temporary = f'{path}.{secrets.token_hex(8)}{TEMPORARY}'
  try:
    with open(temporary, 'xb') as file:
      yield file
      if durable:
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, path)
  except BaseException as error:
    with contextlib.suppress(OSError):
      os.remove(temporary)
    if isinstance(error, OSError) and error.errno:  # A full disk has no name.
      error.filename = error.filename or path
    raise
  if durable:
    sync(os.path.dirname(path) or '.')


def final_name(name: str) -> str:
  """Returns a file's name without what `replacing` appends until it is written."""
  return re.sub(rf'(\.[0-9a-f]{{16}})?{re.escape(TEMPORARY)}$', '', name)


def sync(path: str) -> None:
  """Makes a local file durable, or the renames inside a local directory."""
  descriptor = os.open(path, os.O_RDONLY)
  try:
    os.fsync(descriptor)
  finally:
    os.close(descriptor)


def stat(path: str) -> dict[str, int]:
  """Returns the size and modification time of a local file.

  Returns:
    `{'bytes': size, 'mtime_ns': time of the last change in nanoseconds}`.

  Raises:
    ValueError: If the file cannot be read.
  """
  try:
    found = os.stat(path)
  except OSError as error:
    raise ValueError(f'{path} cannot be read: {error.strerror}.') from error
  return {'bytes': found.st_size, 'mtime_ns': found.st_mtime_ns}


def sha256(path: str) -> str:
  """Returns the SHA-256 of a local or remote file, in hex."""
  digest = hashlib.sha256()
  with _open(path) as file:
    while chunk := file.read(1 << 22):
      digest.update(chunk)
  return digest.hexdigest()


def with_hash(content: dict[str, Any]) -> dict[str, Any]:
  """Returns the content with its own hash added, for `check_hash`."""
  content = {k: v for k, v in content.items() if k != 'hash'}
  # Keys that are numbers are read as text, which has another order.
  text = json.dumps(json.loads(json.dumps(content)), sort_keys=True)
  return {**content, 'hash': hashlib.sha256(text.encode()).hexdigest()}


def check_hash(path: str, content: Any) -> dict[str, Any]:
  """Returns content made by `with_hash`, after comparing its hash.

  Raises:
    ValueError: If the content has changed; the message names the path.
  """
  if not isinstance(content, dict) or content != with_hash(content):
    raise ValueError(f'{path} is damaged: it differs from its hash')
  return content


def list_directory(path: str) -> list[str]:
  """Returns the names in a local or remote directory.

  Raises:
    ValueError: If the directory cannot be listed.
  """
  if is_remote(path):
    with remote_errors(path) as tf:
      if not tf.io.gfile.isdir(path):
        raise ValueError(f'{path} is not a directory.')
      return [name.rstrip('/') for name in tf.io.gfile.listdir(path)]
  try:
    return os.listdir(path)
  except OSError as error:
    hint = ''
    if path and isinstance(error, FileNotFoundError):
      with contextlib.suppress(OSError):
        hint = _hint(path)
    raise ValueError(
      f'{path or "An empty path"} cannot be listed: {error.strerror}{hint}.'
    ) from error


def _hint(path: str) -> str:
  """Returns a hint: the entry most similar to the first missing name of a path."""
  parent, name = os.path.split(os.path.abspath(path))
  if not os.path.isdir(parent):
    return _hint(parent)
  return choices.hint(name, os.listdir(parent))


def format_names(names: Collection[str]) -> str:
  """Formats the names in a directory for a message: at most eight, sorted."""
  shown = ', '.join(sorted(names)[:8]) or 'nothing'
  return f'{shown}, ...' if len(names) > 8 else shown


def names_in(path: str) -> list[str]:
  """Returns the names in a local or remote directory; [] if there is none.

  Raises:
    OSError: If a local directory cannot be read, or the path is a link to nothing.
    ValueError: If a remote directory cannot be read at the moment.
  """
  if is_remote(path):
    with remote_errors(path) as tf:
      try:  # `isdir` would hide other errors
        tf.io.gfile.stat(path)
      except tf.errors.NotFoundError:
        return []
    return list_directory(path)
  try:
    return os.listdir(path)
  except (FileNotFoundError, NotADirectoryError) as error:
    if os.path.islink(path) and not os.path.exists(path):
      problem = f'mount or restore {os.readlink(path)}, to which it links'
      raise OSError(error.errno, problem, path) from error
    return []


def read_bytes(path: str) -> bytes:
  """Returns the content of a local or remote file.

  Raises:
    OSError: If a local file cannot be read.
    ValueError: If a remote file cannot be read.
  """
  with _open(path) as file:
    return file.read()


@contextlib.contextmanager
def _open(path: str) -> Iterator[Any]:
  """Opens a local or remote file for reading; see `read_bytes` for the errors."""
  if is_remote(path):
    with remote_errors(path) as tf, tf.io.gfile.GFile(path, 'rb') as file:
      yield file
  else:
    with open(path, 'rb') as file:
      yield file


def rename(path: str, target: str) -> None:
  """Renames a local or remote file; replaces the target."""
  if is_remote(path):
    with remote_errors(target, writes=True) as tf:
      tf.io.gfile.rename(path, target, overwrite=True)
  else:
    os.replace(path, target)


class HashedFile(io.RawIOBase):
  """A raw stream over an open file, whose bytes update a digest.

  Args:
    file: Binary file that has at least `read`; its owner closes it.
    digest: `hashlib` object, or None.
  """

  def __init__(self, file: Any, digest: Any):
    self._file = file
    self._digest = digest

  def readable(self) -> bool:
    """Returns True."""
    return True

  def readinto(self, buffer: Any) -> int:
    """Reads into a buffer; returns the number of bytes."""
    data = self._file.read(len(buffer))
    buffer[: len(data)] = data
    if self._digest is not None:
      self._digest.update(data)
    return len(data)
