"""Colours of planes, e.g. those of a small game's observations."""

import numpy as np

# In RGB.
_COLORS = (
  (230, 60, 60), (70, 130, 230), (80, 200, 90), (240, 200, 60), (180, 90, 220),
  (80, 210, 220), (240, 140, 50), (240, 130, 190), (160, 110, 70), (200, 200, 200),
)  # fmt: skip
MOST = len(_COLORS)


def color(planes: np.ndarray) -> np.ndarray:
  """Gives each plane a colour; where planes overlap, each channel has the maximum.

  Args:
    planes: uint8 (n, height, width, planes), at most `MOST` planes.

  Returns:
    uint8 (n, height, width, 3).
  """
  out = np.zeros((*planes.shape[:3], 3), np.uint8)
  for i, rgb in enumerate(_COLORS[: planes.shape[-1]]):
    for channel, level in enumerate(rgb):
      colored = (planes[..., i] * np.float32(level / 255)).astype(np.uint8)
      out[..., channel] = np.maximum(out[..., channel], colored)
  return out
