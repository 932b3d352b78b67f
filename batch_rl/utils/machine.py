"""Processors and memory of this machine, within the limits of a container."""

import ctypes
import os

import psutil


def num_cpus() -> int:
  """Processors that this process may use."""
  return len(os.sched_getaffinity(0))


def available_memory() -> int:
  """Bytes of memory that can be had, in the limits of a container."""
  available = psutil.virtual_memory().available
  try:
    with open('/sys/fs/cgroup/memory.max', encoding='ascii') as file:
      limit = int(file.read())
    with open('/sys/fs/cgroup/memory.current', encoding='ascii') as file:
      return min(available, limit - int(file.read()))
  except (OSError, ValueError):  # no limit: 'max'
    return available


def return_freed_memory() -> None:
  """Gives what was freed back to the system; the C library may keep it."""
  trim = getattr(ctypes.CDLL(None), 'malloc_trim', None)  # only glibc has it
  if trim is not None:
    trim(0)
