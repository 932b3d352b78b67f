"""A sweep as a table: of the terminal, live, or lines of a log."""

import itertools
from collections.abc import Iterator, Mapping

import rich.table
from rich import box

from batch_rl.sweep import cells as cell_lib
from batch_rl.sweep import plan, projection

_STYLES = {
  cell_lib.RUNNING: 'bold',
  cell_lib.FAILED: 'bold red',
  cell_lib.DONE: 'green',
}
# In this order, as many as there is room for.
_ORDER = (
  cell_lib.RUNNING,
  cell_lib.FAILED,
  cell_lib.STOPPED,
  cell_lib.WAITING,
  cell_lib.DONE,
)
_HEAD = ('cell', 'state', 'iteration', 'rate', 'last evaluation', 'left')


class View:
  """How the cells of a sweep stand.

  Args:
    sweep: to show.
    works: what each cell has to do.
  """

  def __init__(
    self, sweep: plan.Sweep, works: Mapping[plan.Cell, projection.Work]
  ):
    self._sweep, self._works = sweep, works
    self._statuses: dict[plan.Cell, cell_lib.Status] = {}
    self._rates: tuple[dict[str, float], str] = ({}, '')
    self._told: dict[plan.Cell, str] = {}
    self._turns = itertools.cycle(sweep.cells)
    self.refresh()

  @property
  def statuses(self) -> dict[plan.Cell, cell_lib.Status]:
    """Those of the last refresh."""
    return self._statuses

  def refresh(self, most: int | None = None) -> None:
    """Looks at the directories of the cells that are not known to be done.

    Args:
      most: how many of those that do not run, in turns, as a network's file system
        takes seconds for a thousand; all of them, if None.
    """
    turn = itertools.islice(self._turns, most or len(self._sweep.cells))
    running = [
      cell
      for cell, status in self._statuses.items()
      if status.state == cell_lib.RUNNING
    ]
    for cell in dict.fromkeys([*running, *turn]):
      before = self._statuses.get(cell)
      if before is None or before.state != cell_lib.DONE:
        self._statuses[cell] = cell_lib.status(cell)
    self._rates = projection.rates(self._sweep, list(self._statuses.values()))

  def count(self, state: str) -> int:
    """Cells that are in a state."""
    return sum(status.state == state for status in self._statuses.values())

  def seconds_left(self) -> float:
    """Of work, of all cells together."""
    return sum(
      self._works[cell].seconds_left(status, self.rates)
      for cell, status in self._statuses.items()
      if status.state != cell_lib.FAILED
    )

  @property
  def rates(self) -> dict[str, float]:
    """Those that are projected with."""
    return self._rates[0]

  @property
  def origin_of_rates(self) -> str:
    """Where they are from."""
    return self._rates[1]

  def table(self, height: int) -> rich.table.Table:
    """The cells that matter most, a line each.

    Args:
      height: lines that there is room for.
    """
    table = rich.table.Table(box=box.SIMPLE, title=self.summary())
    for name in _HEAD:
      left = name in ('cell', 'state')
      table.add_column(name, justify='left' if left else 'right')
    shown = sorted(
      self._statuses.items(), key=lambda item: _ORDER.index(item[1].state)
    )
    room = max(height - 8, 4)
    for cell, status in shown[:room]:
      table.add_row(*self._line(cell, status), style=_STYLES.get(status.state))
    if len(shown) > room:
      table.caption = f'and {len(shown) - room} more'
    return table

  def summary(self) -> str:
    """All cells in a line."""
    counts = ', '.join(
      f'{count} {state}' for state in _ORDER if (count := self.count(state))
    )
    eta = ''
    if (running := self.count(cell_lib.RUNNING)) and (
      left := self.seconds_left()
    ):
      eta = f'; {duration(left / running)} left at this pace'
    return f'{self._sweep.base_dir}: {counts} of {len(self._statuses)}{eta}'

  def news(self) -> Iterator[str]:
    """A line for each cell whose state has changed since it was last asked."""
    for cell, status in self._statuses.items():
      if self._told.get(cell, cell_lib.WAITING) != status.state:
        self._told[cell] = status.state
        yield f'{cell.name}: {describe(status)}'

  def _line(self, cell, status):
    now = status.progress
    iteration = rate = left = ''
    if now:
      iteration = (
        f'{min(now["iteration"] + 1, now["iterations"])}/{now["iterations"]}'
      )
    if status.state == cell_lib.RUNNING and now.get('phase') in now.get(
      'rates', {}
    ):
      rate = f'{now["rates"][now["phase"]]:.3g} {now["unit"]}s/s'
    if status.state in (cell_lib.RUNNING, cell_lib.STOPPED):
      left = duration(self._works[cell].seconds_left(status, self.rates))
    state = status.state
    if status.state == cell_lib.FAILED:
      state += f': {status.message[-60:]}'
    value = now.get('evaluation')
    score = '' if value is None else f'{value:.2f}'
    return cell.name, state, iteration, rate, score, left


def describe(status: cell_lib.Status) -> str:
  """A state in words."""
  words = {
    cell_lib.RUNNING: f'running ({status.where})',
    cell_lib.FAILED: f'failed after {status.attempts} attempts: {status.message}',
  }
  return words.get(status.state, status.state)


def duration(seconds: float) -> str:
  """Of a few digits: '45 s', '3.2 h', '12 days'."""
  for limit, unit, name in (
    (90, 1, 's'),
    (90 * 60, 60, 'min'),
    (48 * 3600, 3600, 'h'),
  ):
    if seconds < limit:
      value = seconds / unit
      return f'{value:.0f} {name}' if value >= 10 else f'{value:.1f} {name}'
  return f'{seconds / 86400:.1f} days'
