"""Digests of files, compared with those that a source gives."""

import base64
import hashlib
from collections.abc import Mapping
from typing import Any

import google_crc32c


class Digests:
  """Digests of a file's bytes, computed while it is read.

  Args:
    expected: Expected digests by kind: 'sha256' in hex, or None; 'md5' and 'crc32c'
      in base64, as object stores give them. sha256 is always computed.
  """

  def __init__(self, expected: Mapping[str, str | None]):
    self._expected = dict(expected)
    self._digests: dict[str, Any] = {'sha256': hashlib.sha256()}
    if 'md5' in expected:
      self._digests['md5'] = hashlib.md5(usedforsecurity=False)
    if 'crc32c' in expected:
      self._digests['crc32c'] = google_crc32c.Checksum()

  def update(self, data: bytes) -> None:
    """Adds the next bytes of the file."""
    for digest in self._digests.values():
      digest.update(data)

  def sha256(self) -> str:
    """Returns the SHA-256 in hex."""
    return self._digests['sha256'].hexdigest()

  def check(self, path: str) -> None:
    """Raises a ValueError about `path` if a digest differs from the expected."""
    for kind, digest in self._digests.items():
      value = base64.b64encode(digest.digest()).decode()
      if kind == 'sha256':
        value = self.sha256()
      expected = self._expected.get(kind) or value
      if value != expected:
        raise ValueError(
          f'{path} is damaged: its {kind} is {value[:12]}..., not '
          f'{expected[:12]}...'
        )


def check_file(path: str, expected: Mapping[str, str]) -> None:
  """Raises a ValueError if a local file has other digests; see `Digests`."""
  found = Digests(expected)
  with open(path, 'rb') as file:
    while chunk := file.read(1 << 20):
      found.update(chunk)
  found.check(path)
