"""The RLDS episodes of TFDS's `rlu_atari`: names, features and images.

Step t of RLDS holds `(o_t, a_t, r_t)`. The last step has a valid observation only:
its action, reward and discount are meaningless (github.com/google-research/rlds,
"Dataset Format"). Our format logs no observation after a terminal. So a terminated
episode of n rows is exported as n + 1 steps, the last frame being zeros. A truncated
episode is exported as n steps: in both formats only the observation of its last row
is used.

`rlu_atari` itself (TFDS, `rl_unplugged/atari_utils.py`) has one step for each logged
row. It declares only the observation of a terminal step valid, yet stores its reward.
So the import infers from the data whether terminal steps are transitions, see
`episode_import.infer_last_step`.

TensorFlow and TFDS are imported on first use.
"""

import contextlib
import os
import re
from typing import Any

from batch_rl.utils import files

NAME, VERSION = 'dqn_replay', '1.0.0'
CONFIG = re.compile(r'(?P<game>[A-Za-z]+)_run_(?P<run>\d+)')
# NumPy kinds of the scalars of a step.
STEP_SCALARS = {
  'action': 'iu',
  'reward': 'f',
  'is_first': 'b',
  'is_last': 'b',
  'is_terminal': 'b',
}


def import_tfds() -> Any:
  """Imports `tensorflow_datasets`, with GPUs hidden from TensorFlow.

  Raises:
    ValueError: If TensorFlow or TFDS is not installed.
  """
  try:
    import tensorflow as tf
    import tensorflow_datasets as tfds
  except ImportError as error:
    raise ValueError(
      f'RLDS needs {error.name}: pip install "tensorflow-datasets>=4.9.10,<5", '
      "or this package with its extra, '.[rlds]'."
    ) from None
  with contextlib.suppress(RuntimeError):  # TensorFlow is already initialised
    # TensorFlow would reserve the memory of a GPU that nothing here uses.
    tf.config.set_visible_devices([], 'GPU')
  return tfds


def is_dataset(directory: str) -> bool:
  """Returns whether a directory, local or remote, looks like a TFDS dataset."""
  with contextlib.suppress(ValueError):  # unreadable
    info = os.path.join(directory, 'dataset_info.json')
    return files.read_json(info, dict) is not None
  return False
