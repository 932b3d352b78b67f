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
# kind of group. Version 1 counts a group's descendants under `total_...` only.
_RECLAIMABLE = {
  'cgroup2': ('active_file', 'inactive_file', 'slab_reclaimable'),
  'cgroup': ('total_active_file', 'total_inactive_file'),
}
_MEMORY_FILES = {
  'cgroup2': ('memory.max', 'memory.current'),
  'cgroup': ('memory.limit_in_bytes', 'memory.usage_in_bytes'),
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
  for kind, group in _groups('cpu', root):
    if kind == 'cgroup2':
      quota, period = [*_read(group, 'cpu.max').split(), '', ''][:2]
    else:
      quota = _read(group, 'cpu.cfs_quota_us')
      period = _read(group, 'cpu.cfs_period_us')
    # Without a quota, it is 'max' or -1.
    if quota.isdecimal() and period.isdecimal() and int(period):
      quotas.append(int(quota) / int(period))
  return min(quotas)


def _memory_in_groups(root: str) -> float:
  """Returns the bytes below the limits of all groups; infinity without a limit."""
  available = [math.inf]
  for kind, group in _groups('memory', root):
    limit, used = (_read(group, name) for name in _MEMORY_FILES[kind])
    if limit.isdecimal() and used.isdecimal():  # Without a limit, it is 'max'.
      free = int(limit) - int(used) + _reclaimable(kind, group)
      available.append(max(0, free))
  return min(available)


def _reclaimable(kind: str, group: str) -> int:
  statistics = dict(
    re.findall(r'^(\w+) (\d+)$', _read(group, 'memory.stat'), re.MULTILINE)
  )
  return sum(int(statistics.get(name, 0)) for name in _RECLAIMABLE[kind])


def _groups(controller: str, root: str) -> Iterator[tuple[str, str]]:
  """Yields the kind and directory of the process's groups, the ancestors last."""
  proc, paths = os.path.join(root, 'proc/self'), {}
  for names, path in re.findall(
    r'^\d+:(.*?):(/.*)$', _read(proc, 'cgroup'), re.MULTILINE
  ):
    if controller in names.split(','):
      paths['cgroup'] = path
    elif not names:
      paths['cgroup2'] = path
  # ... <shown part of the tree> <mount point> ... - <kind> ... <options>
  for shown, mount, kind, options in re.findall(
    r'^\S+ \S+ \S+ (/\S*) (/\S*) .*- (cgroup2?) .*?(\S+)$',
    _read(proc, 'mountinfo'),
    re.MULTILINE,
  ):
    own_tree = kind == 'cgroup2' or controller in options.split(',')
    if kind not in paths or not own_tree:
      continue
    top = os.path.normpath(os.path.join(root, mount.lstrip('/')))
    below = os.path.relpath(paths[kind], shown)
    # A container may show only a part, without the process's group.
    group = top if below.startswith('..') else os.path.join(top, below)
    group = os.path.normpath(group)
    while group != top:
      yield kind, group
      group = os.path.dirname(group)
    yield kind, top


def _read(*path: str) -> str:
  """Returns the text of a file; empty if it cannot be read."""
  try:
    with open(os.path.join(*path), encoding='utf-8', errors='replace') as file:
      return file.read().strip()
  except OSError:
    return ''
