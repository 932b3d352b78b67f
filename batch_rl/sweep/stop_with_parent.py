"""Runs Python as a child process that stops when its parent dies.

  python stop_with_parent.py PARENT_PID -um some.module ...

Without it, a cell would outlive a killed worker, and nobody would watch it. Linux
sends the child SIGTERM, so a training run saves and ends. This is a program rather
than a `preexec_fn` because few calls are safe between fork and exec in a process with
many threads.
"""

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1


def main() -> None:
  """Asks the kernel for the signal, then replaces itself with the program."""
  parent, arguments = int(sys.argv[1]), sys.argv[2:]
  ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
  if os.getppid() != parent:  # The parent died before the call.
    sys.exit(143)
  os.execv(sys.executable, [sys.executable, *arguments])


if __name__ == '__main__':
  main()
