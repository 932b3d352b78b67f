"""Processors, threads and memory of this machine, within a container's limits.

The limits are those of control groups (cgroups, version 2), and hold for the groups
below them: the smallest of the process's own group and its ancestors counts.
"""

import ctypes
import math
import os
import re
from collections.abc import Iterator

import psutil

# Statistics of memory that the kernel frees on demand: cached files and objects.
_RECLAIMABLE = r'(?m)^(?:active_file|inactive_file|slab_reclaimable) (\d+)$'


def num_cpus(root: str = '/') -> int:
  """Returns the number of processors that this process may use.

  A quota of a container, e.g. 1.5 processors, is rounded up.

  Args:
    root: Directory that has `proc` and the mounted control groups.
  """
  limits: list[float] = [len(os.sched_getaffinity(0))]
  for group in _groups(root):
    # Without a quota, it begins with 'max'.
    if match := re.fullmatch(r'(\d+) ([1-9]\d*)', _read(group, 'cpu.max')):
      limits.append(int(match[1]) / int(match[2]))
  return max(1, math.ceil(min(limits)))


def thread_limits(threads: int) -> dict[str, str]:
  """Returns environment variables that limit the threads of TensorFlow.

  Args:
    threads: Number of threads of each of its two pools, raised to at least 1.
  """
  names = ('TF_NUM_INTRAOP_THREADS', 'TF_NUM_INTEROP_THREADS')
  return dict.fromkeys(names, str(max(1, threads)))


def available_memory(root: str = '/') -> int:
  """Returns the available memory in bytes, within a container's limit.

  Memory that the kernel can reclaim, such as cached files, is available.

  Args:
    root: Directory that has `proc` and the mounted control groups.
  """
  available = [psutil.virtual_memory().available]
  for group in _groups(root):
    limit, used = _read(group, 'memory.max'), _read(group, 'memory.current')
    if limit.isdecimal() and used.isdecimal():  # Without a limit, it is 'max'.
      reclaimable = re.findall(_RECLAIMABLE, _read(group, 'memory.stat'))
      free = int(limit) - int(used) + sum(map(int, reclaimable))
      available.append(max(0, free))
  return min(available)


def return_freed_memory() -> None:
  """Returns freed memory to the system; the C library may keep it otherwise."""
  trim = getattr(ctypes.CDLL(None), 'malloc_trim', None)  # glibc only
  if trim is not None:
    trim(0)


def _groups(root: str) -> Iterator[str]:
  """Yields the directories of the process's group and its ancestors.

  A container may show its own group at the top, whose path is then missing below.
  """
  groups = _read(root, 'proc/self/cgroup')
  if match := re.search(r'^0::(/.*)$', groups, re.MULTILINE):
    top = os.path.normpath(os.path.join(root, 'sys/fs/cgroup'))
    group = top + os.path.normpath(match[1]).rstrip('/')
    while group.startswith(top):
      yield group
      group = os.path.dirname(group)


def _read(*path: str) -> str:
  """Returns the text of a file; empty if it cannot be read."""
  try:
    with open(os.path.join(*path), encoding='utf-8', errors='replace') as file:
      return file.read().strip()
  except OSError:
    return ''
