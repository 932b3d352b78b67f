"""Recognises the format of data by the names of its files."""

import contextlib
import os

from batch_rl.dataset.interchange import rlds_format
from batch_rl.dataset.unplugged import file_names
from batch_rl.utils import files

DOPAMINE, RLDS, UNPLUGGED = 'dopamine', 'rlds', 'unplugged'


def recognise(path: str) -> str:
  """Returns the format of a file or directory, local or remote.

  Args:
    path: Version directory of a TFDS dataset; a file of RL Unplugged, or a folder of
      such files; anything else is taken for shards or a store.

  Returns:
    `RLDS`, `UNPLUGGED` or `DOPAMINE`.

  Raises:
    ValueError: If it is a folder above those of RL Unplugged's games.
  """
  # `.` and `..` have names, too.
  full = path if files.is_remote(path) else os.path.abspath(path)
  name = os.path.basename(full.rstrip('/'))
  if file_names.parse(name) is not None:
    return UNPLUGGED
  if rlds_format.is_dataset(path):
    return RLDS
  names: list[str] = []
  with contextlib.suppress(ValueError):  # It cannot be listed.
    names = files.list_directory(path)
  if any(map(file_names.parse, names)):
    return UNPLUGGED
  folder = file_names.FOLDER
  if folder in names or name == folder:
    above = full if name == folder else os.path.join(full, folder)
    raise ValueError(
      f'{path} has the games of RL Unplugged; choose one, e.g. '
      f'{os.path.join(above, "Pong")}.'
    )
  return DOPAMINE
