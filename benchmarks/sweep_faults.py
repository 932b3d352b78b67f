"""Kills workers of a sweep on Ray, and compares its cells with an undisturbed sweep.

  python -um benchmarks.sweep_faults [--cells 200] [--period 60] [--quick]

Both sweeps train the same small agents on CartPole, at once, with the command that users type.
In the second, every `--period` seconds SIGKILL ends a Ray worker with its training, or the
training alone. Then all cells must be done, each started once and once more for each of its
kills, with the weights, losses and evaluations of the first sweep; and the same command must
start nothing. The exit code is 1 if not. The same command continues. Takes half an hour on two
cores.
"""

import concurrent.futures
import contextlib
import pathlib
import random
import subprocess
import sys
import threading
import time
from collections import Counter

import numpy as np
import psutil
import tqdm

from batch_rl.dataset.shards import replay_log
from batch_rl.sweep import cells as cell_lib
from batch_rl.sweep import plan
from batch_rl.utils import files, programs
from benchmarks import measuring
from benchmarks.fuzz import outcomes

# At most so many kills of a cell, which has three retries.
CELLS, PERIOD, MOST = (1, 4.0, 1) if measuring.QUICK else (200, 60.0, 2)
SWEEP = """
base_dir: {directory}/{name}
data_dir: {directory}/data
games: CartPole
agents: batch_rl/tests/sweep/configs/cartpole.gin
seeds: 1-{cells}
gin_bindings:
  - FixedReplayRunner.num_iterations = 3
  - FixedReplayRunner.training_steps = 300
  - Checkpoints.every_steps = 50
"""


class Killer(threading.Thread):
  """Kills a worker, or the training in it, again and again.

  Args:
    driver: Process of the sweep.
    period: Seconds between kills.
    path: File that keeps the number of kills by the directory of the cell.
  """

  def __init__(self, driver: int, period: float, path: pathlib.Path):
    super().__init__(daemon=True)
    self._driver, self._period, self._path = driver, period, path
    self.kills = Counter[str](files.read_json(str(path)) or {})

  def run(self) -> None:
    """Kills until the sweep has ended."""
    while psutil.pid_exists(self._driver):
      time.sleep(random.uniform(0.5, 1.5) * self._period)
      with contextlib.suppress(psutil.Error):
        self._kill()

  def _kill(self) -> None:
    descendants = psutil.Process(self._driver).children(recursive=True)
    trainings = {
      directory: process
      for process in descendants
      for argument in process.cmdline()
      if (directory := argument.removeprefix('--base_dir=')) != argument
      and self.kills[directory] < MOST
    }
    if trainings:
      directory, training = random.choice([*trainings.items()])
      worker = training.parent() if random.random() < 0.75 else training
      (worker or training).kill()
      self.kills[directory] += 1
      files.write_json(str(self._path), self.kills)


def run(path: pathlib.Path, period: float | None = None) -> Counter[str]:
  """Runs a sweep to its end.

  Args:
    path: Its file.
    period: Seconds between kills; None for no kill.

  Returns:
    Number of kills by the directory of the cell.

  Raises:
    RuntimeError: If a cell failed.
  """
  program = [sys.executable, '-um', 'batch_rl.sweep', str(path)]
  with path.with_suffix('.txt').open('ab') as log:
    driver = subprocess.Popen(program, stdout=log, stderr=log)
    killer = Killer(driver.pid, period or 0, path.with_suffix('.kills.json'))
    if period is not None:
      killer.start()
    cells = plan.read(str(path), {}).cells
    with tqdm.tqdm(
      total=len(cells), desc=path.stem, unit='cell', mininterval=10
    ) as bar:
      while driver.poll() is None:
        time.sleep(1.0)
        bar.update(sum(map(is_done, cells)) - bar.n)
  if driver.returncode:
    raise RuntimeError(
      f'{path.stem}: exit code {driver.returncode}: {log.name}'
    )
  return killer.kills


def write_log(directory: pathlib.Path) -> None:
  """Logs three episodes of random observations of CartPole's shape."""
  random = np.random.default_rng(0)
  with replay_log.ReplayLog(str(directory), (4, 1), np.float64, 50, 1) as log:
    for row in range(75):
      observation = random.uniform(-1, 1, (4, 1))
      log.add(observation, row % 2, 1.0, row % 25 == 24)


def is_done(cell: plan.Cell) -> bool:
  """Returns whether the cell is done."""
  return cell_lib.status(cell).state == cell_lib.DONE


def attempts(cells: list[plan.Cell]) -> list[int]:
  """Returns how often each cell was started."""
  return [cell_lib.status(cell).attempts for cell in cells]


def main() -> int:
  """Prints the cells that are not as they must be, and the counts."""
  parser = measuring.parser(__doc__)
  parser.add_argument('--cells', type=int, default=CELLS)
  parser.add_argument(
    '--period', type=float, default=PERIOD, help='mean seconds between kills'
  )
  measuring.add_work_dir(parser, 'runs/sweep_faults')
  options = parser.parse_args()
  directory = options.work_dir.absolute()
  log_dir = directory / 'data/CartPole/1/replay_logs'
  if not log_dir.exists():
    partial = directory / 'partial'
    write_log(partial)
    log_dir.parent.mkdir(parents=True)
    partial.rename(log_dir)
  paths = [directory / f'{name}.yaml' for name in ('undisturbed', 'killed')]
  for path in paths:
    path.write_text(
      SWEEP.format(directory=directory, name=path.stem, cells=options.cells)
    )
  with concurrent.futures.ThreadPoolExecutor() as pool:
    ended = pool.map(run, paths, (None, options.period))
    # TensorFlow takes seconds to import.
    from batch_rl.tests import results

    _, kills = ended
  undisturbed, killed = (plan.read(str(path), {}).cells for path in paths)
  started = attempts(killed)
  run(path)
  wrong = []
  for other, cell, count in zip(undisturbed, killed, started, strict=True):
    times = kills[cell.directory]
    if not is_done(cell):
      wrong.append(f'{cell.name}: not done')
    if count != 1 + times:
      wrong.append(f'{cell.name}: started {count} times, killed {times} times')
    expected, found = (results.of_run(c.directory) for c in (other, cell))
    if names := outcomes.differences(found, expected):
      wrong.append(f'{cell.name}: other {", ".join(names)}')
  if attempts(killed) != started:
    wrong.append('the same command started cells again')
  if not measuring.QUICK and not kills:
    wrong.append('nothing was killed: take a smaller --period')
  for line in wrong:
    print(line)
  print(
    f'{len(started)} cells, {sum(kills.values())} kills in '
    f'{len(kills)} of them, {sum(started)} starts, {len(wrong)} faults'
  )
  return int(bool(wrong))


if __name__ == '__main__':
  sys.exit(programs.run(main))
