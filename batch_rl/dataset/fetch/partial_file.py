"""A partly fetched file and a note of its version, to resume from."""

import os
import pathlib
import threading
from collections.abc import Callable, Mapping

from batch_rl.dataset.fetch import remotes
from batch_rl.utils import files, json_schema

# End of the name of a note.
NOTE = '.json'
_NOTE_SCHEMA = {'bytes': json_schema.Required(range(2**53)), 'version': str}
# Limit for a file of unknown size. An uncompressed shard, the largest file, has 7.06 GB.
_MOST_BYTES = 1 << 33


class PartialFile:
  """A local file that grows while it is fetched.

  The note beside it, `<path>.json`, has the size and version of the remote file when
  the first bytes were fetched. If they have changed, the fetch starts again.

  Args:
    path: Local path.
    count: Callback with the change of the file's size and the number of
      bytes received.
    stopped: Event that ends the work on the file.

  Attributes:
    hashes: Hashes by kind that the remote gave for the complete file; empty
      before the download.
  """

  def __init__(
    self, path: str, count: Callable[[int, int], None], stopped: threading.Event
  ):
    self._path = path
    self._note = path + NOTE
    self._count = count
    self._stopped = stopped
    self.hashes: Mapping[str, str] = {}

  def check_stopped(self, count: int = 0) -> None:
    """Raises KeyboardInterrupt if the work was stopped; a callback of long work."""
    if self._stopped.is_set():
      raise KeyboardInterrupt

  def size(self) -> int:
    """Returns the size in bytes; 0 if there is no file."""
    return os.path.getsize(self._path) if os.path.exists(self._path) else 0

  def download(
    self, remote: remotes.Remote, remote_path: str, size: int | None
  ) -> None:
    """Fetches the rest of the file, and sets `hashes`.

    Args:
      remote: Remote that has the file.
      remote_path: Path at the remote.
      size: Planned size in bytes, which the file cannot exceed; None if unknown.

    Raises:
      PermanentError: If the remote refuses the file.
      TransientError: If the download was interrupted.
      ValueError: If the remote sent too many bytes.
      KeyboardInterrupt: If the work was stopped.
    """
    self.check_stopped()
    known = self._known()
    begun = self.size()
    start = begun if known else 0
    if known and start == known.size:
      stat = remote.stat(remote_path)
      if stat.matches(known):
        self.hashes = stat.hashes
        return
      start = 0
    stat, start, chunks = remote.open(remote_path, start, known)
    self._count(start - begun, 0)
    if start == 0:
      # A new file: earlier versions left hard links to a user's files (`import`).
      pathlib.Path(self._path).unlink(missing_ok=True)
      # The note is written first, so that it never describes an older version.
      files.write_json(
        self._note, {'bytes': stat.size, 'version': stat.version}
      )
    end = start
    most = next(n for n in (size, stat.size, _MOST_BYTES) if n is not None)
    with open(self._path, 'ab') as out:
      for chunk in chunks:
        end += len(chunk)
        if end > most:
          raise ValueError(
            f'The source sends more than {most:,} B for {self._path}, the expected or '
            'largest size: fetch again.'
          )
        out.write(chunk)
        self._count(len(chunk), len(chunk))
        self.check_stopped()
    if stat.size is not None and end < stat.size:
      raise remotes.TransientError(remotes.DROPPED)
    self.hashes = stat.hashes

  def _known(self) -> remotes.RemoteStat | None:
    """Returns the noted description; None without a file and a valid note."""
    if not os.path.exists(self._path):
      return None
    try:
      note = files.read_json(self._note, _NOTE_SCHEMA)
    except ValueError:
      return None
    return note and remotes.RemoteStat(note['bytes'], note.get('version'))

  def discard(self) -> None:
    """Removes the file and its note, and takes its bytes off the count."""
    self._count(-self.size(), 0)
    remove(self._path)

  def remove_note(self) -> None:
    """Removes the note, e.g. of a complete file."""
    pathlib.Path(self._note).unlink(missing_ok=True)


def remove(path: str) -> None:
  """Removes a file at a path, and its note."""
  pathlib.Path(path).unlink(missing_ok=True)
  pathlib.Path(path + NOTE).unlink(missing_ok=True)
