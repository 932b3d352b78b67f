"""Runs Python with arguments, and asks it to stop when whoever started it dies.

  python tied.py PARENT -um some.module ...

Without this, a cell whose worker is killed would live on, unwatched. Linux sends
SIGTERM, upon which a run saves and ends. A program of its own, as between fork and
exec a process of many threads may do little.
"""

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1


def main() -> None:
  """Becomes the program."""
  parent, arguments = int(sys.argv[1]), sys.argv[2:]
  if sys.platform == 'linux':
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
  if os.getppid() != parent:  # it has died before
    sys.exit(143)
  os.execv(sys.executable, [sys.executable, *arguments])


if __name__ == '__main__':
  main()
