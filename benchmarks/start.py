"""The time of a short training, with and without `programs.spare_garbage_collection`.

  python -um benchmarks.start [--quick]

`train` makes 20 updates of a DQN on MinAtar and plays an episode. With Python's own
settings, looking for garbage takes a part of this time. Both take turns; the figures are
medians.
"""

import itertools
import subprocess
import sys
import tempfile

import numpy as np

from benchmarks import logs, measuring

ROUNDS, EVALUATION, PROBE = 7, 50, 2048  # agent steps, and transitions
if measuring.QUICK:
  EVALUATION = PROBE = 0
# Runs a module as `python -m` does, at first with settings that it cannot change.
RUN = """
import gc, runpy, sys
{}
del sys.argv[0]
runpy.run_module(sys.argv[0], run_name='__main__', alter_sys=True)
"""
WAYS = {
  "Python's settings": 'gc.set_threshold = lambda *_: None; gc.freeze = int',
  'ours': '',
}
TRAIN = (
  'batch_rl.fixed_replay.train',
  f'--replay_dir={logs.minatar()}',
  '--config=dqn_adam',
  '--gin_files=batch_rl/minatar/configs/offline.gin',
  '--gin_bindings=FixedReplayRunner.num_iterations=1',
  '--gin_bindings=FixedReplayRunner.training_steps=80',  # agent steps
  f'--gin_bindings=FixedReplayRunner.evaluation_steps={EVALUATION}',
  f'--gin_bindings=FixedReplayRunner.probe_size={PROBE}',
  '--gin_bindings=FixedReplayRunner.max_steps_per_episode=50',
  '--seed=1',
)


def main() -> None:
  """Prints the table."""
  measuring.parser(__doc__).parse_args()
  numbers = itertools.count()
  with tempfile.TemporaryDirectory() as folder:

    def train(way: str) -> measuring.Cost:
      line = [sys.executable, '-c', RUN.format(WAYS[way]), *TRAIN]
      line.append(f'--base_dir={folder}/{next(numbers)}')
      return measuring.cost(
        lambda: subprocess.run(line, check=True, capture_output=True)
      )

    warm_up = 0 if measuring.QUICK else 1
    taken = measuring.take_turns(
      {way: lambda way=way: train(way) for way in WAYS}, ROUNDS, warm_up
    )
  default, ours = (
    np.array([cost.seconds for cost in costs]) for costs in taken.values()
  )
  seconds = [f'{np.median(times):.1f} s' for times in (default, ours)]
  ratio = f'{np.median(default / ours):.2f} x'
  measuring.table(['', *WAYS, 'ratio'], [['a short training', *seconds, ratio]])


if __name__ == '__main__':
  main()
