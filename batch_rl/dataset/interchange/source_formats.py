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
  """
  name = os.path.basename(path.rstrip('/'))
  if file_names.parse(name) is not None:
    return UNPLUGGED
  if rlds_format.is_dataset(path):
    return RLDS
  with contextlib.suppress(ValueError):  # It cannot be listed.
    if any(map(file_names.parse, files.list_directory(path))):
      return UNPLUGGED
  return DOPAMINE
