"""Progress bars that appear on a terminal only, and are removed at their end."""

import functools

import tqdm

bar = functools.partial(tqdm.tqdm, disable=None, leave=False)
