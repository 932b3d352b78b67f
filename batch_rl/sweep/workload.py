"""Amount of work in a cell, and the time it takes at measured rates."""

import functools
import numbers
import statistics
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from batch_rl.runs import checkpoints, gin_files
from batch_rl.runs.bindings import settings, syntax
from batch_rl.sweep import cells as cell_lib
from batch_rl.sweep import plan
from batch_rl.utils import number_ranges

# Updates and agent steps per second of an Atari cell on two cores without a GPU, by
# benchmarks/iteration.py.
TWO_CORES = {
  'offline': {'train': 28.0, 'eval': 1100.0},
  'online': {'train': 90.0, 'eval': 400.0},
  'evaluate': {'eval': 1100.0},
}


class Workload(NamedTuple):
  """Work of a cell.

  Attributes:
    iterations: Number of iterations of training and evaluation.
    train: Updates in an iteration; agent steps for an online run.
    eval: Agent steps of evaluation in an iteration.
  """

  iterations: int
  train: float
  eval: float

  def seconds_left(
    self, status: cell_lib.Status, rates: Mapping[str, float]
  ) -> float:
    """Returns the remaining seconds of a cell.

    Args:
      status: Status of the cell. Rates in its progress take precedence.
      rates: Updates or agent steps per second in 'train' and 'eval'.
    """
    if status.state in (cell_lib.CHANGED, cell_lib.DONE):
      return 0.0
    latest = status.progress
    rates = {**rates, **latest.get('rates', {})}
    train = self.train / rates['train'] if self.train else 0.0
    evaluation = self.eval / rates['eval'] if self.eval else 0.0
    left = self.iterations - latest.get('iteration', 0)
    phase = latest.get('phase', '')
    done = (latest.get('done') or 0) / rates.get(phase, 1.0)
    if phase == 'eval':
      done += train
    return max(left * (train + evaluation) - done, 0.0)


def of_cell(cell: plan.Cell) -> Workload:
  """Returns the work of a cell, read from the text of its gin configuration.

  Raises:
    ValueError: If a gin file is missing, or a line cannot be read. The message names
      the cell.
  """
  try:
    lines = *_lines(cell.gin_files, ()), *_lines((), cell.gin_bindings)
  except ValueError as error:
    raise ValueError(f'{cell.name}: {error}') from error
  flags = dict(a.split('=', 1) for a in cell.arguments if a[:2] == '--')
  named = [value for _, name, value in lines if name == 'agent_name']
  named.append(flags.get('--agent_name'))
  agents = 'Agent', *(str(agent).rpartition('.')[2] for agent in named)
  runner = 'LoggedRunner' if cell.job == 'online' else 'FixedReplayRunner'
  # Classes of the user may have parameters of the same names.
  bound = {
    name: value
    for owner, name, value in lines
    if owner in ('Runner', runner)
    or name[0] == '%'
    or (name == 'update_period' and owner.endswith(agents))
  }
  chosen = {}
  for name, default in settings.DEFAULTS.items():
    value = bound.get(name)
    if isinstance(value, syntax.Reference):
      value = bound.get(f'%{value.arguments[0]}')  # of a macro
    setting = settings.SETTINGS[name]
    if isinstance(value, numbers.Real) and not setting.allows(value):
      raise ValueError(
        f'{cell.name}: {name}={value} is not allowed: give {setting}.'
      )
    chosen[name] = value if isinstance(value, int) else default
  steps = chosen['evaluation_steps']
  if cell.job == 'evaluate':
    evaluated = flags.get('--checkpoints', 'last')
    count = 1
    if evaluated[:1].isdigit():
      count = len(number_ranges.parse(evaluated, '--checkpoints'))
    if evaluated == 'all':
      found = checkpoints.find(cell.directory)
      # Without those within an iteration.
      count = sum(not checkpoint.position.steps for checkpoint in found)
    return Workload(1, 0, count * int(flags.get('--evaluation_steps', steps)))
  train = chosen['training_steps']
  if cell.job == 'offline':
    train = -(-train // chosen['update_period'])
  return Workload(chosen['num_iterations'], train, steps)


def rates(
  sweep: plan.Sweep, statuses: Iterable[cell_lib.Status]
) -> dict[str, float]:
  """Returns updates or agent steps per second by phase, for estimates.

  The medians of the sweep's cells so far take precedence over the rates in its file, and
  those over measurements on two cores.
  """
  chosen = {**TWO_CORES[sweep.job], **sweep.rates}
  for phase in chosen:
    known = [s.progress.get('rates', {}).get(phase) for s in statuses]
    if measured := [*filter(None, known)]:
      chosen[phase] = statistics.median(measured)
  return chosen


@functools.cache
def _lines(paths: tuple[str, ...], bindings: tuple[str, ...]) -> tuple:
  """Returns class, parameter and value of each line; '%name' for a macro's name."""
  statements = gin_files.binding_statements(gin_files.read(paths, bindings))
  return tuple(
    (selector.rpartition('.')[2], parameter or f'%{selector}', value)
    for _, selector, parameter, value, _ in statements
  )
