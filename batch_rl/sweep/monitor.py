"""Shows a sweep: as a live table in a terminal, or as lines in a log."""

import datetime
import itertools
from collections.abc import Iterator

import rich.table
from rich import box, markup

from batch_rl.sweep import cells as cell_lib
from batch_rl.sweep import plan, workload
from batch_rl.utils import programs

# Styles in the table, whose lines are in this order: the most important first.
_STYLES = {
  cell_lib.RUNNING: 'bold',
  cell_lib.FAILED: 'bold red',
  cell_lib.CHANGED: 'bold red',
  cell_lib.STOPPED: None,
  cell_lib.WAITING: None,
  cell_lib.DONE: 'green',
}
_HEADER = ('cell', 'state', 'iteration', 'rate', 'last evaluation', 'left')
_LONGEST = 1e13  # Seconds; `timedelta` has a limit.


class Monitor:
  """Status of the cells of a sweep, as of the last `refresh`.

  Args:
    sweep: Sweep to show.

  Attributes:
    statuses: Status of each cell.

  Raises:
    ValueError: If a gin file of a cell cannot be read.
  """

  def __init__(self, sweep: plan.Sweep):
    self._sweep = sweep
    self._workloads = {cell: workload.of_cell(cell) for cell in sweep.cells}
    self.statuses: dict[plan.Cell, cell_lib.Status] = {}
    self._reported: dict[plan.Cell, str] = {}
    self._turns = itertools.cycle(sweep.cells)
    self.refresh()

  def refresh(self, limit: int | None = None) -> None:
    """Reads the status of all running cells, and of others in turn.

    Args:
      limit: Number of other cells to read; None for all. A thousand cells take seconds
        on a network file system.
    """
    turn = itertools.islice(self._turns, limit or len(self._sweep.cells))
    statuses = self.statuses.items()
    running = [c for c, s in statuses if s.state == cell_lib.RUNNING]
    for cell in dict.fromkeys([*running, *turn]):
      before = self.statuses.get(cell)
      if before is None or before.state != cell_lib.DONE:
        self.statuses[cell] = cell_lib.status(cell)

  @property
  def rates(self) -> dict[str, float]:
    """Updates or agent steps per second by phase, for estimates."""
    return workload.rates(self._sweep, list(self.statuses.values()))

  def count(self, state: str) -> int:
    """Returns the number of cells in a state."""
    return sum(status.state == state for status in self.statuses.values())

  def seconds_left(self) -> float:
    """Returns the seconds of work left in all cells, one after the other."""
    rates = self.rates
    return sum(
      self._workloads[cell].seconds_left(status, rates)
      for cell, status in self.statuses.items()
      if status.state != cell_lib.FAILED
    )

  def work(self) -> tuple[float, float]:
    """Returns the work of all cells, done or not.

    Returns:
      Number of updates, or of agent steps of training for an online sweep; and number
      of agent steps of evaluation.
    """
    works = self._workloads.values()
    train = sum(work.iterations * work.train for work in works)
    return train, sum(work.iterations * work.eval for work in works)

  def table(self, height: int) -> rich.table.Table:
    """Returns a table with a line for each of the most important cells.

    Args:
      height: Number of lines of the terminal.
    """
    # Brackets in names and messages are not markup.
    title = markup.escape(self.summary())
    table = rich.table.Table(box=box.SIMPLE, title=title)
    for name in _HEADER:
      is_text = name in ('cell', 'state')
      table.add_column(name, justify='left' if is_text else 'right')
    ordered = sorted(
      self.statuses.items(), key=lambda item: list(_STYLES).index(item[1].state)
    )
    shown, rates = max(height - 8, 4), self.rates
    for cell, status in ordered[:shown]:
      row = map(markup.escape, self._row(cell, status, rates))
      table.add_row(*row, style=_STYLES[status.state])
    if len(ordered) > shown:
      table.caption = f'and {len(ordered) - shown} more'
    return table

  def summary(self) -> str:
    """Returns the number of cells in each state and the time left, in a line."""
    counts = ', '.join(
      f'{count} {state}' for state in _STYLES if (count := self.count(state))
    )
    running, left, eta = self.count(cell_lib.RUNNING), self.seconds_left(), ''
    if running and left:
      eta = f'; {duration(left / running)} left at this pace'
    return f'{self._sweep.base_dir}: {counts} of {len(self.statuses)}{eta}'

  def state_changes(self) -> Iterator[str]:
    """Yields a line for each cell whose state has changed since the last call."""
    for cell, status in self.statuses.items():
      if self._reported.get(cell, cell_lib.WAITING) != status.state:
        self._reported[cell] = status.state
        yield f'{cell.name}: {describe(status)}'

  def _row(self, cell, status, rates):
    latest = status.progress
    iteration = rate = left = score = ''
    if latest:
      total = latest['iterations']
      iteration = f'{min(latest["iteration"] + 1, total)}/{total}'
    phase, own = latest.get('phase'), latest.get('rates', {})
    if status.state == cell_lib.RUNNING and phase in own:
      rate = f'{own[phase]:.3g} {latest.get("unit", "")}s/s'
    if status.state in (cell_lib.RUNNING, cell_lib.STOPPED):
      left = duration(self._workloads[cell].seconds_left(status, rates))
    state = status.state
    if status.state == cell_lib.FAILED:
      state += f': {programs.printable(status.message[-60:])}'
    if (value := latest.get('evaluation')) is not None:
      score = f'{value:.2f}'
    return cell.name, state, iteration, rate, score, left


def describe(status: cell_lib.Status) -> str:
  """Returns the state, with its process or reason."""
  message = programs.printable(status.message)
  words = {
    cell_lib.RUNNING: f'running ({status.where})',
    cell_lib.FAILED: f'failed in attempt {status.attempts}: {message}',
    cell_lib.CHANGED: message,
  }
  return words.get(status.state, status.state)


def duration(seconds: float) -> str:
  """Returns a duration as days, hours, minutes and seconds: '12 days, 0:05:00'."""
  return str(datetime.timedelta(seconds=round(min(seconds, _LONGEST))))
