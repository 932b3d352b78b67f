"""Progress bars that appear on a terminal only, and are removed at their end."""

import functools
from typing import Any

import tqdm

bar = functools.partial(tqdm.tqdm, disable=None, leave=False)


def meter(total: int, unit: str, title: str = '', **options: Any) -> tqdm.tqdm:
  """Returns a bar that counts bytes, rows or steps in thousands and millions.

  Args:
    total: Number of units.
    unit: Name of the unit, e.g. 'B'.
    title: Title of the bar.
    **options: Further arguments of `tqdm`.
  """
  return bar(total=total, unit=unit, desc=title, unit_scale=True, **options)
