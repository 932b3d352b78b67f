"""A SLURM of one machine, with the features that submitit uses.

`install` puts `sbatch`, `srun`, `sacct` and `scontrol` into a folder, and their state is
in files beside them. Jobs start at once, and are queued again on request.
"""

import os
import pathlib
import re
import signal
import subprocess
import sys

COMMANDS = ('sbatch', 'srun', 'sacct', 'scontrol')


def install(folder: pathlib.Path) -> None:
  """Writes the commands. The folder must be on the PATH and in FAKE_SLURM."""
  folder.mkdir()
  for name in COMMANDS:
    path = folder / name
    program = f'{sys.executable} -S {__file__} {name}'  # Starts faster.
    path.write_text(f'#!/bin/sh\nexec {program} "$@"\n')
    path.chmod(0o755)


def preempt(folder: pathlib.Path, job: str, sent=signal.SIGUSR2) -> None:
  os.kill(int((folder / f'pid-{job}').read_text()), sent)


def requeue(folder: pathlib.Path, job: str) -> None:
  """Kills a job at the end of its grace time, and runs it again."""
  (folder / f'again-{job}').touch()
  preempt(folder, job, signal.SIGKILL)


def refuse(folder: pathlib.Path, command: str, message: str) -> None:
  """Makes a command fail with a message from now on."""
  (folder / f'refusal-{command}').write_text(message)


def jobs(folder: pathlib.Path) -> list[str]:
  """Returns all jobs that were ever submitted."""
  return sorted(p.name.removeprefix('state-') for p in folder.glob('state-*'))


def _sbatch(folder, file):
  number = str(100 + len(list(folder.glob('file-*'))))
  (folder / f'file-{number}').write_text(file)
  array = re.search(r'#SBATCH --array=0-(\d+)', pathlib.Path(file).read_text())
  count = int(array[1]) + 1 if array else 0
  for job in [f'{number}_{i}' for i in range(count)] or [number]:
    (folder / f'state-{job}').write_text('RUNNING')
    machine = [sys.executable, '-S', __file__, '_machine', job, file]
    null = dict.fromkeys(('stdin', 'stdout', 'stderr'), subprocess.DEVNULL)
    subprocess.Popen(machine, start_new_session=True, **null)
  print(f'Submitted batch job {number}')


def _machine(folder, job, file):
  """Runs a job, again as long as it asks for it."""
  array, _, index = job.partition('_')
  one = {'SLURM_JOB_ID': job, 'SLURM_JOB_NODELIST': 'here', 'SLURM_PROCID': '0'}
  one |= {'SLURM_NTASKS': '1', 'SLURM_LOCALID': '0', 'SLURM_NODEID': '0'}
  one |= {'SLURM_JOB_NUM_NODES': '1'}
  if index:
    one |= {'SLURM_ARRAY_JOB_ID': array, 'SLURM_ARRAY_TASK_ID': index}
  again = folder / f'again-{job}'
  while True:
    code = subprocess.call(['bash', file], env={**os.environ, **one})
    if not again.exists():
      break
    again.unlink()
  state = 'FAILED' if code else 'COMPLETED'
  (folder / f'state-{job}').write_text(state)


def _srun(folder, *arguments):
  job = os.environ['SLURM_JOB_ID']
  (folder / f'pid-{job}').write_text(str(os.getpid()))
  arguments = list(arguments)
  while arguments[0].startswith('--'):
    name = arguments.pop(0)
    if name in ('--output', '--error'):
      array, _, index = job.partition('_')
      path = arguments.pop(0).replace('%A', array).replace('%a', index)
      path = path.replace('%j', job).replace('%t', '0')
      descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
      os.dup2(descriptor, 1 if name == '--output' else 2)
  os.execv(arguments[0], arguments)


def _sacct(folder, *arguments):
  del arguments
  print('JobID|State|NodeList')
  for job in jobs(folder):
    print(f'{job}|{(folder / f"state-{job}").read_text()}|here')


def _scontrol(folder, command, job):
  if command != 'requeue':
    sys.exit(1)
  (folder / f'again-{job}').touch()


if __name__ == '__main__':
  state = pathlib.Path(os.environ['FAKE_SLURM'])
  if (refusal := state / f'refusal-{sys.argv[1]}').exists():
    sys.exit(refusal.read_text())
  function = sys.argv[1] if sys.argv[1].startswith('_') else f'_{sys.argv[1]}'
  globals()[function](state, *sys.argv[2:])
