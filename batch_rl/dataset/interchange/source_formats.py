"""Recognises the format of data by the names of its files."""

import os

from batch_rl.dataset.interchange import rlds_import
from batch_rl.dataset.unplugged import file_names
from batch_rl.utils import files

DOPAMINE, RLDS, UNPLUGGED = 'dopamine', 'rlds', 'unplugged'


def recognise(path: str) -> str:
  """Returns the format of a file or directory.

  Args:
    path: Version directory of a TFDS dataset; a file of RL Unplugged, or a folder of
      such files; anything else, and a remote path, is taken for shards or a store.

  Returns:
    `RLDS`, `UNPLUGGED` or `DOPAMINE`.

  Raises:
    ValueError: If it is a folder above those of RL Unplugged's games.
  """
  if files.is_remote(path):
    return DOPAMINE
  full = os.path.abspath(path)  # `.` and `..` have names, too.
  name = os.path.basename(full)
  if rlds_import.is_dataset(path):
    return RLDS
  names = os.listdir(path) if os.path.isdir(path) else []
  if any(map(file_names.parse, [name, *names])):
    return UNPLUGGED
  folder = file_names.FOLDER
  if folder in names or name == folder:
    above = full if name == folder else os.path.join(full, folder)
    raise ValueError(
      f'{path} has the games of RL Unplugged; choose one, e.g. '
      f'{os.path.join(above, "Pong")}.'
    )
  return DOPAMINE
