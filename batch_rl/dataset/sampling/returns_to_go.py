"""Returns to go: sums of the rewards from a row to the end of its trajectory."""

import numpy as np

# Rows between the entries of the table, which takes 8 bytes for each.
_SPACING = 64
_BLOCKS_AT_ONCE = 1 << 14


class ReturnsToGo:
  """Returns to go of a run, read from a small table and the next rewards.

  The return to go at row t of a trajectory is sum over j < stop - t of
  gamma^j r_{t+j}, where `stop` is the row after the trajectory. It is summed in
  float64, so whole rewards give exact undiscounted sums.

  Args:
    reward: Rewards in time order, (rows,).
    stops: Row after each trajectory, ascending, the last one `rows`: int64 (n,).
    gamma: Discount factor.
  """

  def __init__(self, reward: np.ndarray, stops: np.ndarray, gamma: float):
    self._reward = reward
    self._powers = float(gamma) ** np.arange(_SPACING + 1)
    rows = np.arange(0, len(reward), _SPACING)
    stop = stops[np.searchsorted(stops, rows, side='right')]
    near = np.empty(len(rows))
    for i in range(0, len(rows), _BLOCKS_AT_ONCE):
      part = slice(i, i + _BLOCKS_AT_ONCE)
      near[part] = self._sums(rows[part], stop[part])
    goes_on = stop > rows + _SPACING
    over, table, later = self._powers[-1].item(), [], 0.0
    for first, more in zip(
      near[::-1].tolist(), goes_on[::-1].tolist(), strict=True
    ):
      later = first + over * later if more else first
      table.append(later)
    self._table = np.array(table[::-1])

  def at(self, rows: np.ndarray, stops: np.ndarray) -> np.ndarray:
    """Returns the returns to go at rows.

    Args:
      rows: Rows of the run, int64 (n,).
      stops: Row after each row's trajectory, int64 (n,).

    Returns:
      float64 (n,).
    """
    entry = -(-rows // _SPACING)
    near = self._sums(rows, np.minimum(stops, entry * _SPACING))
    later = self._table[np.minimum(entry, len(self._table) - 1)]
    later = later * self._powers[entry * _SPACING - rows]
    return near + np.where(entry * _SPACING < stops, later, 0)

  def _sums(self, rows: np.ndarray, stops: np.ndarray) -> np.ndarray:
    """Returns the discounted sums over at most `_SPACING` rows, float64 (n,)."""
    each = rows[:, None] + np.arange(_SPACING)
    reward = self._reward[np.minimum(each, len(self._reward) - 1)]
    reward = np.where(each < stops[:, None], reward, 0)
    return (reward * self._powers[:-1]).sum(axis=1)
