"""A training program without TensorFlow, for tests that kill it.

It takes the flags of `batch_rl.fixed_replay.train`, counts steps, and saves each.
Half-way it waits while its replay_dir has a file `hold`. A program whose base_dir
contains 'broken' ends with a user error.
"""

import argparse
import os
import sys
import time

from batch_rl.runs import progress, run_record
from batch_rl.utils import files

STEPS = 80
HOLD = 'hold'
_STEP_SECONDS = 0.05


def _main(arguments):
  parser = argparse.ArgumentParser(allow_abbrev=False)
  for name in ('base_dir', 'replay_dir', 'seed', 'gin_files', 'gin_bindings'):
    parser.add_argument(f'--{name}', required=True)
  options = parser.parse_args(arguments)
  if 'broken' in options.base_dir:
    print('train: error: The loss is nan at update 1.')
    return 2
  run_record.lock(options.base_dir)  # Fails if two of them run at once.
  state_path = os.path.join(options.base_dir, 'state.json')
  step = (files.read_json(state_path) or {'step': 0})['step']
  reporter = progress.Progress(options.base_dir, 1)
  phase = {'iteration': 0, 'phase': 'train', 'total': STEPS, 'unit': 'update'}
  hold = os.path.join(options.replay_dir, HOLD)
  while step < STEPS:
    time.sleep(_STEP_SECONDS)
    if step >= STEPS // 2 and os.path.exists(hold):
      continue
    step += 1
    files.write_json(state_path, {'step': step}, durable=False)
    reporter.write(step, None, phase)
  reporter.finish()
  return 0


if __name__ == '__main__':
  sys.exit(_main(sys.argv[1:]))
