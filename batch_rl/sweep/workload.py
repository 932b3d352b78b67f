"""Amount of work in a cell, and the time it takes at measured rates."""

import concurrent.futures
import dataclasses
import inspect
import multiprocessing
import os
import statistics
import time
import traceback
from collections.abc import Mapping, Sequence
from typing import Any

from batch_rl.runs import checkpoints, command_line, games, progress
from batch_rl.runs.bindings import any_agent, files_of_2020
from batch_rl.sweep import cells as cell_lib
from batch_rl.sweep import plan
from batch_rl.utils.user_code import gin_signatures, user_modules

# Updates and agent steps per second of an Atari cell on two cores without a GPU, measured
# with benchmarks/iteration.py and benchmarks/bench.py.
TWO_CORES = {
  'offline': {'train': 28.0, 'eval': 1100.0},
  'online': {'train': 90.0, 'eval': 400.0},
  'evaluate': {'eval': 1100.0},
}


@dataclasses.dataclass(frozen=True)
class Workload:
  """Work of a cell.

  Attributes:
    iterations: Number of iterations of training and evaluation.
    train: Updates in an iteration; agent steps for an online run.
    eval: Agent steps of evaluation in an iteration.
  """

  iterations: int
  train: float
  eval: float

  def seconds_per_iteration(self, rates: Mapping[str, float]) -> float:
    """Returns the seconds of an iteration at `rates` per second by phase."""
    return (self.train / rates['train'] if self.train else 0.0) + (
      self.eval / rates['eval'] if self.eval else 0.0
    )

  def seconds_left(
    self, status: cell_lib.Status, rates: Mapping[str, float]
  ) -> float:
    """Returns the remaining seconds of a cell.

    Args:
      status: Status of the cell. Rates in its progress take precedence.
      rates: Updates or agent steps per second in 'train' and 'eval'.
    """
    latest = status.progress
    if status.state in (cell_lib.CHANGED, cell_lib.DONE):
      return 0.0
    if not latest:
      return self.iterations * self.seconds_per_iteration(rates)
    rates = {**rates, **latest.get('rates', {})}
    iteration = self.seconds_per_iteration(rates)
    phase = latest['phase']
    if phase == progress.FINISHED:  # A longer run is asked for now.
      return max(self.iterations - latest['iteration'], 0) * iteration
    later = max(self.iterations - latest['iteration'] - 1, 0) * iteration
    done = (latest.get('done') or 0) / max(rates.get(phase, 1.0), 1e-9)
    done += self.train / rates['train'] if phase == 'eval' else 0.0
    is_running = status.state == cell_lib.RUNNING
    since = max(time.time() - latest['time'], 0.0) if is_running else 0.0
    return later + max(iteration - done - since, 0.0)


def measure(sweep: plan.Sweep) -> dict[plan.Cell, Workload]:
  """Returns the work of each cell, read from its gin configuration.

  The configurations are loaded in another process because that imports TensorFlow.

  Raises:
    ValueError: If a configuration cannot be loaded. The message names the cell.
  """
  groups: dict[tuple, list[plan.Cell]] = {}
  for cell in sweep.cells:
    groups.setdefault(_settings(cell), []).append(cell)
  spawn = multiprocessing.get_context('spawn')
  with concurrent.futures.ProcessPoolExecutor(1, spawn) as pool:
    measured = list(pool.map(_measure, groups))
  workloads: dict[plan.Cell, Workload] = {}
  for cells, workload in zip(groups.values(), measured, strict=True):
    if isinstance(workload, str):
      raise ValueError(f'{cells[0].name}: {workload}')
    workloads |= dict.fromkeys(cells, workload)
  return workloads


def rates(
  sweep: plan.Sweep, statuses: Sequence[cell_lib.Status]
) -> tuple[dict[str, float], str]:
  """Returns rates for estimates and their origin in words.

  The medians of the sweep's cells so far take precedence over the rates in its file, and
  those over measurements on two cores.
  """
  chosen = dict(TWO_CORES[sweep.job])
  origin = (
    'measured with Atari agents on two cores without a GPU for each cell; give '
    'your own as `rates:`, or run a cell'
  )
  if sweep.rates:
    chosen |= sweep.rates
    origin = 'given by the sweep'
  for phase in chosen:
    measured = [
      status.progress['rates'][phase]
      for status in statuses
      if status.progress.get('rates', {}).get(phase)
    ]
    if measured:
      chosen[phase] = statistics.median(measured)
      origin = 'measured in this sweep'
  return chosen, origin


def _settings(cell):
  """Returns the settings that affect the amount of work; the game does not."""
  of_game = (games.ATARI_SETTING, games.MINATAR_SETTING)
  bindings = [b for b in cell.gin_bindings if not b.startswith(of_game)]
  flags = dict(a.split('=', 1) for a in cell.arguments if a[:2] == '--')
  steps = int(flags.get('--evaluation_steps', 0))
  chosen = flags.get('--checkpoints', '')
  count = chosen.count(',') + 1
  if chosen == 'all':
    found = checkpoints.find(cell.directory)
    # Without those within an iteration.
    count = max(sum(not c.position.steps for c in found), 1)
  own = cell.agent, cell.module
  return cell.job, cell.gin_files, tuple(bindings), (steps, count), *own


def _measure(settings) -> Workload | str:
  """Returns the work, or the message of an error."""
  try:
    return _load(*settings)
  except command_line.MISTAKES as error:
    if user_modules.is_raised_by_user(error):
      traceback.print_exc()
    return ' '.join(str(error).split())


def _load(job, gin_files, bindings, evaluated, own_agent, module):
  # Imported here because they import TensorFlow.
  import gin

  from batch_rl.baselines import agents as online_agents
  from batch_rl.baselines import run_experiment as online
  from batch_rl.fixed_replay import agents as offline_agents
  from batch_rl.fixed_replay import run_experiment as offline

  runner: Any = offline.FixedReplayRunner
  agents = offline_agents.REGISTRY
  if job == 'online':
    runner, agents = online.LoggedRunner, online_agents.REGISTRY
  gin.clear_config()
  if module:
    user_modules.add_folder(os.path.dirname(module))
  if own_agent:
    agents.find(own_agent)  # gin knows the class from now on
  statements = command_line.load_gin(list(gin_files), list(bindings))
  parameters = inspect.signature(runner).parameters
  values = {name: parameter.default for name, parameter in parameters.items()}
  values |= gin.get_bindings(runner)
  if job == 'evaluate':
    steps, number = evaluated
    return Workload(1, 0, number * (steps or values['evaluation_steps']))
  train = values['training_steps']
  if job == 'offline':
    agent = (
      own_agent
      or gin.get_bindings(offline.create_offline_agent).get('agent_name')
      or files_of_2020.agent_name(statements, agents)
    )
    agent_class = agents.find(agent)
    any_agent.bind(statements, agents, agent_class)
    period = gin_signatures.configured_value(agent_class, 'update_period')
    train = -(-train // period)
  return Workload(values['num_iterations'], train, values['evaluation_steps'])
