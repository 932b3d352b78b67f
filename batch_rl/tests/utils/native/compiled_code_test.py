"""Results of compiling are kept on disk."""

import os
import subprocess
import sys

_DOUBLE = """
from batch_rl.utils.native import compiled_code
@compiled_code.kept
def double(value):
  return 2 * value
if __name__ == '__main__':
  print('ready', flush=True)
  input()
  print(double(21), double.stats.cache_misses.total())
"""


def test_processes_may_compile_at_the_same_time(tmp_path):
  program = tmp_path / 'double.py'
  program.write_text(_DOUBLE)

  def run(count):
    """Returns the outputs of processes that call the function together."""
    processes = [
      subprocess.Popen(
        [sys.executable, str(program)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, 'NUMBA_CACHE_DIR': str(tmp_path / 'kept')},
      )
      for _ in range(count)
    ]
    for process in processes:
      assert process.stdout.readline() == 'ready\n'
    for process in processes:
      process.stdin.write('\n')
      process.stdin.flush()
    return [process.communicate(timeout=300)[0] for process in processes]

  first, second = run(2)
  assert first.startswith('42 ') and second.startswith('42 ')
  assert '42 1\n' in (first, second)
  assert run(1) == ['42 0\n']
