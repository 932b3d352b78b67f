"""How much a cell has to do, and how long that takes at measured rates."""

import concurrent.futures
import dataclasses
import inspect
import multiprocessing
import statistics
from collections.abc import Mapping, Sequence

from batch_rl.runs import command_line, progress
from batch_rl.sweep import cells as cell_lib
from batch_rl.sweep import plan

# Of a cell that has two cores and no GPU, by benchmarks/iteration.py and
# benchmarks/bench.py, for Atari: updates and agent steps a second.
TWO_CORES = {
  'offline': {'train': 28.0, 'eval': 1100.0},
  'online': {'train': 90.0, 'eval': 400.0},
  'evaluate': {'eval': 1100.0},
}


@dataclasses.dataclass(frozen=True)
class Work:
  """What a cell has to do.

  Attributes:
    iterations: each trains, and evaluates.
    train: an iteration's updates; of an online run, its agent steps.
    eval: an iteration's agent steps of evaluation.
  """

  iterations: int
  train: float
  eval: float

  def seconds_an_iteration(self, rates: Mapping[str, float]) -> float:
    """How long an iteration takes, at rates a second in 'train' and 'eval'."""
    return (self.train / rates['train'] if self.train else 0.0) + (
      self.eval / rates['eval'] if self.eval else 0.0
    )

  def seconds_left(
    self, status: cell_lib.Status, rates: Mapping[str, float]
  ) -> float:
    """How long what is left takes of a cell that stands so."""
    now = status.progress
    if status.state == cell_lib.DONE:
      return 0.0
    if not now:
      return self.iterations * self.seconds_an_iteration(rates)
    rates = {**rates, **now.get('rates', {})}
    iteration = self.seconds_an_iteration(rates)
    phase = now['phase']
    if phase == progress.FINISHED:  # and is to be prolonged
      return max(self.iterations - now['iteration'], 0) * iteration
    left = max(self.iterations - now['iteration'] - 1, 0) * iteration
    done = now['done'] / max(rates.get(phase, 1.0), 1e-9)
    done += self.train / rates['train'] if phase == 'eval' else 0.0
    running = status.seconds if status.state == cell_lib.RUNNING else 0.0
    return left + max(iteration - done - running, 0.0)


def measure(sweep: plan.Sweep) -> dict[plan.Cell, Work]:
  """What the cells have to do, by their gin configurations.

  It loads each of those, in another process, as TensorFlow is needed for that.

  Raises:
    ValueError: if one cannot be loaded; names the cell.
  """
  kinds: dict[tuple, list[plan.Cell]] = {}
  for cell in sweep.cells:
    kinds.setdefault(_kind(cell), []).append(cell)
  spawn = multiprocessing.get_context('spawn')
  with concurrent.futures.ProcessPoolExecutor(1, spawn) as pool:
    found = list(pool.map(_measure, kinds))
  works: dict[plan.Cell, Work] = {}
  for (kind, cells), work in zip(kinds.items(), found, strict=True):
    del kind
    if isinstance(work, str):
      raise ValueError(f'{cells[0].name}: {work}')
    works |= dict.fromkeys(cells, work)
  return works


def rates(
  sweep: plan.Sweep, statuses: Sequence[cell_lib.Status]
) -> tuple[dict[str, float], str]:
  """Rates to project with, and where they are from.

  Those that the sweep's file names; else the medians of its cells that have run;
  else those that were measured on two cores.
  """
  found = dict(TWO_CORES[sweep.job])
  origin = (
    'measured with Atari agents on two cores without a GPU for each cell; give '
    'your own as `rates:`, or run a cell'
  )
  for phase in found:
    seen = [
      status.progress['rates'][phase]
      for status in statuses
      if status.progress.get('rates', {}).get(phase)
    ]
    if seen and sweep.job != 'evaluate':
      found[phase] = statistics.median(seen)
      origin = 'measured in this sweep'
  if sweep.rates:
    found |= sweep.rates
    origin = 'given by the sweep'
  return found, origin


def _kind(cell):
  """Cells of one kind have the same work; the game makes no difference."""
  bindings = [b for b in cell.gin_bindings if not b.startswith(plan.GAME)]
  steps = next(
    (
      int(argument.split('=')[1])
      for argument in cell.arguments
      if argument.startswith('--evaluation_steps=')
    ),
    None,
  )
  return cell.job, cell.gin_files, tuple(bindings), steps


def _measure(kind) -> Work | str:
  """Loads a configuration as the program would; an error is returned in words."""
  try:
    return _load(*kind)
  except command_line.MISTAKES as error:
    return ' '.join(str(error).split())


def _load(job, gin_files, bindings, evaluation_steps):
  # Here, as they load TensorFlow.
  import gin

  from batch_rl.baselines import agents as online_agents
  from batch_rl.baselines import run_experiment as online
  from batch_rl.fixed_replay import agents as offline_agents
  from batch_rl.fixed_replay import run_experiment as offline

  runner, create, agents = (
    (online.LoggedRunner, online.create_online_agent, online_agents.AGENTS)
    if job == 'online'
    else (
      offline.FixedReplayRunner,
      offline.create_offline_agent,
      offline_agents.AGENTS,
    )
  )
  gin.clear_config()
  command_line.load_gin(list(gin_files), list(bindings))
  values = {
    **{
      name: parameter.default
      for name, parameter in inspect.signature(runner).parameters.items()
    },
    **gin.get_bindings(runner),
  }
  if job == 'evaluate':
    return Work(1, 0, evaluation_steps or values['evaluation_steps'])
  train = values['training_steps']
  if job == 'offline':
    agent = gin.get_bindings(create).get('agent_name')
    _, class_name = agents[command_line.choose('agent', agent, agents)]
    period = gin.get_bindings(class_name).get('update_period', 4)
    train = -(-train // period)
  return Work(values['num_iterations'], train, values['evaluation_steps'])
