"""This package beside d3rlpy and TorchRL: losses, and updates a second.

  python -um benchmarks.peers [RUN] [--environment=DIR] [--quick]

d3rlpy and TorchRL are installed into a virtual environment of their own, and run in a
process of their own (`theirs.py`). `--quick` installs nothing.

- Losses: both sides get the same float32 arrays, a batch of transitions and the weights of
  small networks. An error is max |ours - theirs| / max |theirs|; that of the gradient is
  the largest over all arrays of weights. Below the table is where a peer differs by
  default, and what was done about it.
- Updates: the network of Mnih et al., 2015, batches of 32, Adam, one thread of the
  processor for the network. Each side draws its batches itself: ours from the run, in
  two threads ahead of time, d3rlpy from the first five episodes in memory. They take
  turns; rates are medians over the rounds. Our BCQ has a hidden layer more.
"""

import json
import os
import subprocess
import sys
import tempfile

import numpy as np
from absl import logging

from batch_rl.utils import machine
from benchmarks import measuring
from benchmarks.peers import ours

FOLDER = os.path.dirname(os.path.abspath(__file__))
TOLERANCE = 1e-5
ROUNDS, UPDATES = 7, 4 if measuring.QUICK else 50
# One thread for the network, so that processes do not wait for each other.
ONE_THREAD = machine.thread_limits(1) | {'OMP_NUM_THREADS': '1'}


def main() -> int:
  """Prints both tables; returns 1 if a loss differs."""
  parser = measuring.parser(__doc__)
  parser.add_argument('run', nargs='?', default='data/Pong/1', help='Atari run')
  parser.add_argument(
    '--environment',
    default='.venv-peers',
    help='virtual environment of the peers, made if it is not there; default: '
    '%(default)s',
  )
  arguments = parser.parse_args()
  logging.set_verbosity(logging.ERROR)
  if measuring.QUICK and not is_installed(arguments.environment):
    measuring.leave_out(
      f'{arguments.environment} has no d3rlpy and TorchRL, which are installed '
      'without --quick.'
    )
  with tempfile.TemporaryDirectory() as folder:
    episodes = os.path.join(folder, 'episodes.npz')
    ours.write_episodes(arguments.run, episodes)  # refuses another directory
    python = install(arguments.environment)
    theirs = [python, '-W', 'ignore', os.path.join(FOLDER, 'theirs.py')]
    worst = compare_losses(theirs, folder)
    compare_rates(theirs, episodes, arguments.run)
  return int(not worst <= TOLERANCE)


def is_installed(directory: str) -> bool:
  """Returns whether an environment of the peers is complete."""
  return os.path.exists(os.path.join(directory, '.installed'))


def install(directory: str) -> str:
  """Makes the environment of the peers unless it is there; returns its Python."""
  python = os.path.join(directory, 'bin', 'python')
  if not is_installed(directory):
    print(f'Installing d3rlpy and TorchRL into {directory}.', flush=True)
    subprocess.run([sys.executable, '-m', 'venv', directory], check=True)
    subprocess.run(
      [python, '-m', 'pip', 'install', '--quiet', '--retries', '0']
      + ['--extra-index-url', 'https://download.pytorch.org/whl/cpu']
      + ['--requirement', os.path.join(FOLDER, 'requirements.txt')],
      check=True,
    )
    open(os.path.join(directory, '.installed'), 'w').close()
  return python


def compare_losses(theirs: list[str], folder: str) -> float:
  """Prints the table of losses; returns the largest error."""
  inputs = ours.draw_inputs(seed=1)
  source, result = (os.path.join(folder, f'{i}.npz') for i in ('in', 'out'))
  np.savez(source, **inputs)
  subprocess.run([*theirs, 'losses', source, result], check=True)
  rows, worst = [], [0.0]
  with np.load(result) as found:
    for case in ours.CASES:
      loss, gradients = ours.compute_loss(case, inputs)
      expected = found[f'{case.peer}/loss']
      error = _error(loss, expected)
      of_gradients = [
        _error(array, found[f'{case.peer}/{i}'])
        for i, array in enumerate(gradients)
      ]
      of_gradient = np.max(of_gradients)
      worst += [error, of_gradient]
      numbers = f'{loss:.5f}', f'{expected:.5f}'
      errors = f'{error:.0e}', f'{of_gradient:.0e}'
      rows.append((case.peer, *numbers, *errors))
  head = 'loss', 'ours', 'theirs', 'error', 'of the gradient'
  measuring.table(head, rows)
  for case in ours.CASES:
    print(f'- {case.peer}: {case.difference}.')
  print()
  return float(np.max(worst))  # NaN if one is


def _error(array, expected):
  return np.abs(array - expected).max() / np.abs(expected).max()


def compare_rates(theirs: list[str], episodes: str, run: str) -> None:
  """Prints the table of updates a second."""
  with (
    subprocess.Popen(
      [*theirs, 'updates', episodes, str(UPDATES)],
      stdin=subprocess.PIPE,
      stdout=subprocess.PIPE,
      text=True,
    ) as peer,
    measuring.apart(
      ours.start_updates, run, UPDATES, **ONE_THREAD
    ) as make_updates,
  ):

    def make_theirs():
      print(file=peer.stdin, flush=True)
      # d3rlpy logs to its stdout, too.
      line = next(line for line in peer.stdout if line.startswith('{'))
      return json.loads(line)

    ways = {'ours': make_updates, 'theirs': make_theirs}
    taken = measuring.take_turns(ways, ROUNDS, warm_up=1)
    peer.stdin.close()
  rows = []
  for name in taken['ours'][0]:
    both = [np.array([costs[name] for costs in taken[way]]) for way in ways]
    here, there = (UPDATES / np.median(seconds) for seconds in both)
    ratio = np.median(both[1] / both[0])
    rows.append((name, f'{here:.1f}', f'{there:.1f}', f'{ratio:.2f}'))
  measuring.table(('updates/s', 'ours', 'd3rlpy', 'ratio'), rows)


if __name__ == '__main__':
  sys.exit(main())
