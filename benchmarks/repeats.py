"""Trains agents twice with one seed, and compares the results of the two runs.

  python -um benchmarks.repeats [--agents dqn rem quantile iql] [--updates 500]

Each agent trains with `run_seed.deterministic_ops` and without, on `data/Pong/1`. The
table has the number of results that differ: tensors of the checkpoint, losses, episodes.
On a CPU none does; on a GPU none with deterministic operations, or the exit code is 1.
`--quick` trains one agent, with deterministic operations.
"""

import concurrent.futures
import os
import subprocess
import sys
import tempfile

import tqdm

from batch_rl.tests import results
from benchmarks import logs, measuring
from benchmarks.fuzz import outcomes


def command(
  agent: str, data_dir: str, directory: str, updates: int, deterministic: bool
) -> list[str]:
  """Returns the command line of a run."""
  runner = {
    'num_iterations': 1,
    'training_steps': 4 * updates,  # agent steps
    'evaluation_steps': 200,
    'max_steps_per_episode': 200,
    'probe_size': 32,
  }
  bindings = [f'FixedReplayRunner.{name}={n}' for name, n in runner.items()]
  bindings += ['make_atari.rom_set="current"']
  bindings += [f'run_seed.deterministic_ops={deterministic}']
  return [
    sys.executable,
    '-um',
    'batch_rl.fixed_replay.train',
    f'--base_dir={directory}',
    f'--replay_dir={data_dir}',
    f'--config={agent}',
    '--seed=1',
    *(f'--gin_bindings={binding}' for binding in bindings),
  ]


def main() -> int:
  """Prints the table; returns 1 if runs with deterministic operations differ."""
  parser = measuring.parser(__doc__)
  quick = measuring.QUICK
  agents = ['dqn'] if quick else ['dqn', 'rem', 'quantile', 'iql']
  parser.add_argument('--agents', nargs='+', default=agents)
  parser.add_argument('--updates', type=int, default=10 if quick else 500)
  options = parser.parse_args()
  data_dir = logs.make('Pong') if quick else 'data/Pong/1'
  # Two runs share a GPU.
  environment = {**os.environ, 'TF_FORCE_GPU_ALLOW_GROWTH': 'true'}

  def train(agent, directory, deterministic):
    given = (agent, data_dir, directory, options.updates, deterministic)
    done = subprocess.run(
      command(*given), env=environment, stderr=subprocess.PIPE, text=True
    )
    if done.returncode:
      raise RuntimeError(f'{agent} failed: {done.stderr[-2000:]}')
    return results.of_run(directory)

  failed, rows = False, []
  settings = [
    (a, d) for a in options.agents for d in (True, False)[: 2 - quick]
  ]
  with (
    tempfile.TemporaryDirectory() as folder,
    concurrent.futures.ThreadPoolExecutor(2) as pool,
  ):
    for agent, deterministic in tqdm.tqdm(settings, 'training', unit='pair'):
      base = os.path.join(folder, f'{agent}-{deterministic}')
      first, second = pool.map(
        train,
        [agent] * 2,
        [f'{base}-{i}' for i in range(2)],
        [deterministic] * 2,
      )
      found = outcomes.differences(first, second)
      failed |= bool(found) and deterministic
      rows.append([agent, *map(str, (deterministic, len(first), len(found)))])
  print(f'Runs of {options.updates} updates:\n')
  measuring.table(('agent', 'deterministic_ops', 'results', 'different'), rows)
  return int(failed)


if __name__ == '__main__':
  sys.exit(main())
