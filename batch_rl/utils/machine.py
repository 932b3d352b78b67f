"""Processors, threads and memory of this machine, within a container's limits."""

import ctypes
import os

import psutil


def num_cpus() -> int:
  """Returns the number of processors that this process may use."""
  return len(os.sched_getaffinity(0))


def thread_limits(threads: int) -> dict[str, str]:
  """Returns environment variables that limit the threads of TensorFlow.

  Args:
    threads: Number of threads of each of its two pools, raised to at least 1.
  """
  names = ('TF_NUM_INTRAOP_THREADS', 'TF_NUM_INTEROP_THREADS')
  return dict.fromkeys(names, str(max(1, threads)))


def available_memory() -> int:
  """Returns the available memory in bytes, within a container's limit."""
  available = psutil.virtual_memory().available
  try:
    with open('/sys/fs/cgroup/memory.max', encoding='ascii') as file:
      limit = int(file.read())
    with open('/sys/fs/cgroup/memory.current', encoding='ascii') as file:
      return min(available, limit - int(file.read()))
  except (OSError, ValueError):  # Without a limit the file holds 'max'.
    return available


def return_freed_memory() -> None:
  """Returns freed memory to the system; the C library may keep it otherwise."""
  trim = getattr(ctypes.CDLL(None), 'malloc_trim', None)  # glibc only
  if trim is not None:
    trim(0)
