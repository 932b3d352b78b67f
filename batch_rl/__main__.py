"""Offline reinforcement learning on the DQN Replay Dataset.

usage: batch-rl COMMAND ...
       batch-rl --version

  train     train an agent on logged data
  online    train an agent in the emulator, and log its experience
  evaluate  evaluate checkpoints of a trained agent, and make videos
  select    rank trained agents by logged data alone
  dataset   fetch, verify, inspect, convert and compare logged data
  report    tables and plots of runs, with intervals, and a page
  sweep     many runs: on this machine, a Ray cluster or SLURM

`batch-rl COMMAND --help` shows the options of a command.
"""

import os
import runpy
import sys

import batch_rl
from batch_rl.utils import choices, programs

# Modules of the commands. None is imported before it is chosen.
COMMANDS = {
  'train': 'batch_rl.fixed_replay.train',
  'online': 'batch_rl.baselines.train',
  'evaluate': 'batch_rl.fixed_replay.evaluate',
  'select': 'batch_rl.fixed_replay.select',
  'dataset': 'batch_rl.dataset',
  'report': 'batch_rl.report',
  'sweep': 'batch_rl.sweep',
}


def main() -> int:
  """Runs the command that the command line names, as `python -m` runs its module.

  Returns:
    The exit code, unless the command exits itself.
  """
  name, *arguments = sys.argv[1:] or ['--help']
  if name in ('-h', '--help'):
    return programs.run(lambda: print(__doc__ or '', end=''))
  elif name == '--version':
    print(f'batch_rl {batch_rl.__version__}')
  elif name not in COMMANDS:
    message = choices.unknown('command', name, COMMANDS)
    print(f'batch-rl: error: {message}.', file=sys.stderr)
    return 2
  else:
    # The user's modules come last: a torch.py of theirs is not PyTorch.
    if sys.path[0] == os.path.dirname(os.path.realpath(sys.argv[0])):
      sys.path[:] = [*sys.path[1:], os.getcwd()]
    sys.argv[1:] = arguments
    try:
      runpy.run_module(COMMANDS[name], run_name='__main__', alter_sys=True)
    except ImportError as error:
      if getattr(error.__cause__, 'name', None) != 'batch_rl':
        raise
      print(f'batch-rl: error: {error.__cause__}', file=sys.stderr)
      return 2
  return 0


if __name__ == '__main__':
  sys.exit(main())
