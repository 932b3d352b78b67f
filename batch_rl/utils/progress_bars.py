"""Progress bars that appear on a terminal only, and are removed at their end."""

import functools
from collections.abc import Callable

import tqdm

# Receives the name of a stage, the amount done since the last call, and the total.
Callback = Callable[[str, int, int], None]

bar = functools.partial(tqdm.tqdm, disable=None, leave=False)
