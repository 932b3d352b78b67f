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

import cv2
import numpy as np

from batch_rl.utils import files

FRAME_SHAPE = (84, 84)
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
_PNG = b'\x89PNG\r\n\x1a\n'
_PNG_LEVEL = 6  # the default of zlib and of TFDS


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


def encode_png(frame: np.ndarray) -> bytes:
  """Returns a grayscale frame, uint8 (height, width), as PNG."""
  options = [cv2.IMWRITE_PNG_COMPRESSION, _PNG_LEVEL]
  return cv2.imencode('.png', frame, options)[1].tobytes()


def decode_image(data: bytes) -> Any:
  """Returns a PNG as uint8 (84, 84); None if it is damaged or of another shape."""
  # A few bytes may claim gigabytes of pixels, which OpenCV would allocate.
  height, width = (size.to_bytes(4, 'big') for size in FRAME_SHAPE)
  if data[:8] != _PNG or data[12:24] != b'IHDR' + width + height:
    return None
  frame: Any = cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_UNCHANGED)
  valid = frame is not None and frame.dtype == np.uint8
  return frame if valid and frame.shape == FRAME_SHAPE else None
