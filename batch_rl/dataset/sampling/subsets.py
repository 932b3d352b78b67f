"""Subsets of a run, selected by text such as 'random_trajectories(0.1, seed=3)'.

Subsets are combined from left to right: 'shards(0, 10) & best_trajectories(0.5)'.
gin, the command line and the results all use the same text.
"""

import ast
import functools
import hashlib
import inspect
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from batch_rl.dataset.store import store as store_lib


class Trajectories(NamedTuple):
  """The n trajectories of a run in time order, and the selected rows of each.

  A trajectory is the logged part of an episode: all of it, unless rows are missing.
  Rows are numbered from the start of the run.

  Attributes:
    begin: int64 (n,), first row of each trajectory, ascending.
    steps_begin: int64 (n,), first row after the padding.
    at_reset: bool (n,), whether the trajectory has its episode's beginning.
    start: int64 (n,), first selected row.
    stop: int64 (n,), row after the last selected one; `start` or less if none is.
    returns: float64 (n,), sum of the trajectory's logged rewards, selected or not.
    shard: int64 (n,), number of the shard in which the trajectory begins.
    shard_rows: `(first, stop)` rows of each shard, by shard number.
  """

  begin: np.ndarray
  steps_begin: np.ndarray
  at_reset: np.ndarray
  start: np.ndarray
  stop: np.ndarray
  returns: np.ndarray
  shard: np.ndarray
  shard_rows: Mapping[int, tuple[int, int]]

  @property
  def first(self) -> np.ndarray:
    """First selected row of each trajectory that is an agent step: int64 (n,)."""
    return np.maximum(self.start, self.steps_begin)

  @property
  def lengths(self) -> np.ndarray:
    """Number of selected agent steps of each trajectory: int64 (n,)."""
    return np.maximum(self.stop - self.first, 0)

  @property
  def selected(self) -> np.ndarray:
    """Indices of the trajectories with at least one selected step: int64 (m,)."""
    return np.flatnonzero(self.lengths)

  @property
  def num_steps(self) -> int:
    """Number of selected agent steps."""
    return int(self.lengths.sum())

  def only(self, chosen: np.ndarray) -> 'Trajectories':
    """Returns a copy that selects nothing outside the trajectories `chosen`, int64 (m,)."""
    stop = self.start.copy()
    stop[chosen] = self.stop[chosen]
    return self._replace(stop=stop)

  def between(self, first: int, last: int) -> 'Trajectories':
    """Returns a copy that selects nothing outside the rows `[first, last)`."""
    start = np.maximum(self.start, first)
    return self._replace(start=start, stop=np.minimum(self.stop, last))


def _share(fraction: float, count: int) -> int:
  """Returns a fraction of a number of trajectories, rounded, at least one."""
  return max(1, round(fraction * count)) if count else 0


def shards(
  data: Trajectories, first: int, stop: int | None = None
) -> Trajectories:
  """The shards with numbers in [first, stop); may split trajectories."""
  rows = [
    span
    for number, span in data.shard_rows.items()
    if number >= first and (stop is None or number < stop)
  ]
  if not rows:
    raise ValueError(
      f'shards({first}, {stop}): the run has shards {min(data.shard_rows)} to '
      f'{max(data.shard_rows)}.'
    )
  return data.between(rows[0][0], rows[-1][1])


def random_trajectories(
  data: Trajectories, fraction: float, seed: int = 0
) -> Trajectories:
  """A random fraction of whole trajectories, as in the paper."""
  candidates = data.selected
  count = _share(fraction, len(candidates))
  return data.only(np.random.default_rng(seed).permutation(candidates)[:count])


def first_trajectories(data: Trajectories, fraction: float) -> Trajectories:
  """The first fraction of the trajectories that begin in each shard."""
  candidates = data.selected
  chosen = []
  for number in data.shard_rows:
    in_shard = candidates[data.shard[candidates] == number]
    chosen.append(in_shard[: _share(fraction, len(in_shard))])
  return data.only(np.concatenate(chosen))


def first_of_shards(data: Trajectories, fraction: float) -> Trajectories:
  """The first fraction of the rows of each shard; may split trajectories.

  Of a trajectory in several shards, only the part in the first shard that selects any
  of its rows is kept.
  """
  spans = np.array([*data.shard_rows.values(), (0, 0)])
  first, stop = spans[:, 0], spans[:, 0] + np.rint(fraction * np.ptp(spans, 1))
  # Each trajectory's first span that ends after its first step, or the empty one.
  chosen = np.searchsorted(stop[:-1], data.first, side='right')
  start = np.maximum(data.start, first[chosen])
  end = np.minimum(data.stop, stop[chosen].astype(np.int64))
  return data._replace(start=start, stop=end)


def first_fraction(data: Trajectories, fraction: float) -> Trajectories:
  """The first fraction of the agent steps of the run."""
  return first_transitions(data, round(fraction * data.num_steps))


def last_fraction(data: Trajectories, fraction: float) -> Trajectories:
  """The last fraction of the agent steps of the run."""
  return last_transitions(data, round(fraction * data.num_steps))


def first_transitions(data: Trajectories, count: int) -> Trajectories:
  """The first `count` agent steps of the run."""
  return _steps_between(data, 0, count)


def last_transitions(data: Trajectories, count: int) -> Trajectories:
  """The last `count` agent steps of the run."""
  return _steps_between(data, data.num_steps - count, data.num_steps)


def _steps_between(data, first, last):
  """Selects steps by their positions [first, last) among the selected steps."""
  lengths = data.lengths
  before = np.cumsum(lengths) - lengths
  start = data.first + np.clip(first - before, 0, lengths)
  stop = data.first + np.clip(last - before, 0, lengths)
  return data._replace(start=start, stop=stop)


def trajectories_by_return(
  data: Trajectories, lowest: float = -np.inf, highest: float = np.inf
) -> Trajectories:
  """Whole trajectories with lowest <= return <= highest (rewards as logged)."""
  candidates = data.selected
  returns = data.returns[candidates]
  return data.only(candidates[(returns >= lowest) & (returns <= highest)])


def best_trajectories(data: Trajectories, fraction: float) -> Trajectories:
  """The fraction of whole trajectories with the highest returns."""
  return _by_rank(data, fraction, -1)


def best_steps(data: Trajectories, fraction: float) -> Trajectories:
  """The trajectories with the highest returns, up to a fraction of all agent steps.

  At least one trajectory, and all of them whole, as for %BC (Chen et al., 2021).
  """
  order = _ranked(data, -1)
  total = np.cumsum(data.lengths[order])
  count = np.searchsorted(total, fraction * data.num_steps + 1e-6, side='right')
  return data.only(order[: max(1, count)])


def worst_trajectories(data: Trajectories, fraction: float) -> Trajectories:
  """The fraction of whole trajectories with the lowest returns."""
  return _by_rank(data, fraction, 1)


def _by_rank(data, fraction, sign):
  order = _ranked(data, sign)
  return data.only(order[: _share(fraction, len(order))])


def _ranked(data, sign):
  """Returns the selected trajectories by `sign` times their returns, ascending."""
  candidates = data.selected
  # A stable sort prefers the earlier of trajectories with equal returns.
  return candidates[np.argsort(sign * data.returns[candidates], kind='stable')]


SUBSETS: dict[str, Callable[..., Trajectories]] = {
  function.__name__: function
  for function in (
    *(shards, random_trajectories, first_trajectories, first_of_shards),
    *(first_fraction, last_fraction, first_transitions, last_transitions),
    *(trajectories_by_return, best_trajectories, best_steps),
    worst_trajectories,
  )
}


def select(data: Trajectories, text: str) -> Trajectories:
  """Returns the trajectories of a run, restricted to a subset.

  Args:
    data: All trajectories of the run.
    text: Name in `SUBSETS` with its arguments, or several joined by '&' and applied
      from left to right.

  Raises:
    ValueError: If the text cannot be parsed (the message lists the subsets), or the
      subset is empty.
  """
  for restrict in parse(text):
    data = restrict(data)
  if not len(data.selected):
    raise ValueError(f'The subset {text!r} is empty.')
  return data


def parse(text: str) -> list[functools.partial[Trajectories]]:
  """Parses the text of a subset without evaluating it as code.

  Returns:
    Function of each part, which restricts trajectories.

  Raises:
    ValueError: If the text is not a subset.
  """
  try:
    if not isinstance(text, str):
      raise ValueError('it is not a string')
    node = ast.parse(text.strip(), mode='eval').body
    parts = []
    while isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitAnd):
      parts.append(node.right)
      node = node.left
    return [_parse_part(part) for part in [node, *reversed(parts)]]
  except Exception as error:  # Python's parser raises many.
    raise ValueError(
      f'{text!r} is not a subset ({error}); use '
      f'{", ".join(map(usage, SUBSETS.values()))}, and join several by &.'
    ) from error


def _parse_part(node):
  if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name):
    raise ValueError('it is not of the form name(arguments)')
  function = SUBSETS.get(node.func.id)
  if function is None:
    raise ValueError(f'no subset is called {node.func.id}')
  arguments = [ast.literal_eval(argument) for argument in node.args]
  keywords = {str(k.arg): ast.literal_eval(k.value) for k in node.keywords}
  if len(keywords) < len(node.keywords):
    raise ValueError('it has an argument twice')
  signature = inspect.signature(function)
  bound = signature.bind(None, *arguments, **keywords)
  del bound.arguments['data']
  numbers = {
    name: _number(name, value, signature.parameters[name])
    for name, value in bound.arguments.items()
  }
  return functools.partial(function, **numbers)


def _number(name: str, value: Any, parameter: inspect.Parameter) -> Any:
  """Returns an argument's value, checked and converted to the parameter's type."""
  if value is None and parameter.default is None:
    return None
  if type(value) not in (int, float):
    raise ValueError(f'{name}={value!r} is not a number')
  if parameter.annotation is float:
    if name == 'fraction' and not 0 < value <= 1:
      raise ValueError(f'fraction={value} is not in (0, 1]')
    return float(value)
  if value != int(value) or value < 0:
    raise ValueError(f'{name}={value} is not an integer of at least 0')
  return min(int(value), 1 << 62)  # No run has as many steps.


def usage(function: Callable[..., Trajectories]) -> str:
  """Returns the syntax of a subset, e.g. 'shards(first, stop)'."""
  parameters = list(inspect.signature(function).parameters.values())[1:]
  return f'{function.__name__}({", ".join(p.name for p in parameters)})'


# --- trajectories of a store -----------------------------------------------------


def trajectories(store: store_lib.Store) -> Trajectories:
  """Returns the trajectories of a run: its rows, divided at ends and gaps."""
  begin = np.union1d(store.breaks, store.ends + 1)
  begin = begin[begin < store.rows]
  stop = np.append(begin[1:], store.rows)
  at_reset = ~np.isin(begin, store.breaks)
  at_reset[:1] |= store.starts_at_reset
  # An exported or imported trajectory may lack its episode's beginning, and so the
  # padding. The frames of each beginning are not read, so steps whose action and reward
  # are 0 count as padding.
  padding = np.arange(store.logged_padding or 0)
  rows = np.minimum(begin[:, None] + padding, stop[:, None] - 1)
  is_step = (store.action[rows] != 0) | (store.reward[rows] != 0)
  at_reset &= ~(is_step | np.isin(rows, store.ends)).any(axis=1)
  rewarded = np.flatnonzero(store.reward)
  of = np.searchsorted(begin, rewarded, side='right') - 1
  return Trajectories(
    begin=begin,
    steps_begin=begin + at_reset * store.first_padding(),
    at_reset=at_reset,
    start=begin,
    stop=stop,
    returns=np.bincount(of, store.reward[rewarded], len(begin)),
    shard=np.asarray(store.suffixes)[store.shard_of(begin)],
    shard_rows=store.shard_rows,
  )


def damaged_rows(
  store: store_lib.Store, first: np.ndarray, stop: np.ndarray
) -> np.ndarray:
  """Returns the number of rows of n ranges in damaged shards (`Store.damaged`).

  Args:
    store: Store of the run.
    first: First row of each range, int64 (n,).
    stop: Row after each range, int64 (n,).

  Returns:
    int64 (n,).
  """
  count = np.zeros(len(first), np.int64)
  for suffix in store.damaged:
    begin, end = store.shard_rows[suffix]
    inside = np.minimum(stop, end) - np.maximum(first, begin)
    count += np.maximum(inside, 0)
  return count


def hash_of(store: store_lib.Store, chosen: Trajectories) -> str:
  """Returns a hash of the data: the shards of a run and the rows selected.

  It is the same on every machine and independent of `stack_size`,
  `update_horizon` and seed.

  Returns:
    16 hexadecimal digits.
  """
  content = hashlib.sha256()
  for suffix, _, start, rows, _ in store.placements:
    if suffix not in store.damaged:
      line = f'{suffix} {start} {rows} {store.digest(suffix)}\n'
      content.update(line.encode())
  # Padding is never drawn, so the hash ignores whether it is selected.
  for column in (chosen.first, chosen.stop):
    content.update(column[chosen.selected].astype('<i8').tobytes())
  content.update(store.truncations.astype('<i8').tobytes())
  return content.hexdigest()[:16]
