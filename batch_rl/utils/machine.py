"""Processors, threads and memory of this machine, within a container's limits.

The limits are those of control groups (cgroups), and hold for the groups below them:
the smallest of the process's own group and its ancestors counts. Version 2 has one
tree of groups, version 1 one for each controller.
"""

import ctypes
import math
import os
import re
from collections.abc import Iterator

import psutil

# Statistics of memory that the kernel frees on demand: cached files and objects, by
# version. Version 1 counts a group's descendants under `total_...` only.
_RECLAIMABLE = {
  2: ('active_file', 'inactive_file', 'slab_reclaimable'),
  1: ('total_active_file', 'total_inactive_file'),
}
_CPU_FILES = {
  2: ['cpu.max'],
  1: ['cpu.cfs_quota_us', 'cpu.cfs_period_us'],
}
_MEMORY_FILES = {
  2: ('memory.max', 'memory.current'),
  1: ('memory.limit_in_bytes', 'memory.usage_in_bytes'),
}


def num_cpus(root: str = '/') -> int:
  """Returns the number of processors that this process may use.

  A quota of a container, e.g. 1.5 processors, is rounded up.

  Args:
    root: Directory that has `proc` and the mounted control groups.
  """
  allowed = len(os.sched_getaffinity(0))
  return max(1, math.ceil(min(allowed, _cpu_quota(root))))


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
  available = psutil.virtual_memory().available
  return int(min(available, _memory_in_groups(root)))


def return_freed_memory() -> None:
  """Returns freed memory to the system; the C library may keep it otherwise."""
  trim = getattr(ctypes.CDLL(None), 'malloc_trim', None)  # glibc only
  if trim is not None:
    trim(0)


def _cpu_quota(root: str) -> float:
  """Returns the smallest CPU quota in processors; infinity without one."""
  quotas = [math.inf]
  for version, group in _groups('cpu', root):
    text = ' '.join(_read(group, name) for name in _CPU_FILES[version])
    # Without a quota, it is 'max' or -1.
    if match := re.fullmatch(r'(\d+) ([1-9]\d*)', text):
      quotas.append(int(match[1]) / int(match[2]))
  return min(quotas)


def _memory_in_groups(root: str) -> float:
  """Returns the bytes below the limits of all groups; infinity without a limit."""
  available = [math.inf]
  for version, group in _groups('memory', root):
    limit, used = (_read(group, name) for name in _MEMORY_FILES[version])
    if limit.isdecimal() and used.isdecimal():  # Without a limit, it is 'max'.
      names = '|'.join(_RECLAIMABLE[version])
      reclaimable = re.findall(
        rf'^(?:{names}) (\d+)$', _read(group, 'memory.stat'), re.MULTILINE
      )
      free = int(limit) - int(used) + sum(map(int, reclaimable))
      available.append(max(0, free))
  return min(available)


def _groups(controller: str, root: str) -> Iterator[tuple[int, str]]:
  """Yields the version and directory of the process's groups, the ancestors last.

  A container may show its own group at the top, whose path is then missing below.
  """
  for names, path in re.findall(
    r'^\d+:(.*?):(/.*)$', _read(root, 'proc/self/cgroup'), re.MULTILINE
  ):
    if names and controller not in names.split(','):
      continue
    top = os.path.join(root, 'sys/fs/cgroup', controller if names else '')
    top = os.path.normpath(top)
    group = top + os.path.normpath(path).rstrip('/')
    while group.startswith(top):
      yield (1 if names else 2), group
      group = os.path.dirname(group)


def _read(*path: str) -> str:
  """Returns the text of a file; empty if it cannot be read."""
  try:
    with open(os.path.join(*path), encoding='utf-8', errors='replace') as file:
      return file.read().strip()
  except OSError:
    return ''
