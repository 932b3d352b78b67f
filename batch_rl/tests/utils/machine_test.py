"""Processors and memory are those within the limits of control groups."""

import os
import types

import psutil
import pytest

from batch_rl.tests import user_code
from batch_rl.utils import machine

GB = 10**9
# Of the machine, without limits of groups.
PROCESSORS, MEMORY = 64, 1000 * GB


@pytest.fixture
def make_tree(tmp_path, monkeypatch):
  """Writes files `{path: content}` of a large machine; returns their root."""
  monkeypatch.setattr(os, 'sched_getaffinity', lambda pid: range(PROCESSORS))
  memory = types.SimpleNamespace(available=MEMORY)
  monkeypatch.setattr(psutil, 'virtual_memory', lambda: memory)

  def make(files):
    for path, content in files.items():
      user_code.write(tmp_path / path, f'{content}\n')
    return str(tmp_path)

  return make


def version_2(files, path='/'):
  return {
    'proc/self/cgroup': f'0::{path}',
    **{f'sys/fs/cgroup/{name}': content for name, content in files.items()},
  }


@pytest.mark.parametrize(
  ('files', 'processors'),
  [
    (version_2({'cpu.max': '150000 100000'}), 2),
    (version_2({'cpu.max': '200000 0'}), PROCESSORS),
    (version_2({'cpu.max': 'damaged \x00'}), PROCESSORS),
    # Version 1, of which a hybrid hierarchy still has controllers.
    (version_2({'cpu.max': '2 1'}) | {'proc/self/cgroup': '4:cpu:/\n0::/'}, 2),
    # The smallest quota of the group and its ancestors.
    (version_2({'a/b/cpu.max': '2 1', 'a/cpu.max': '3 1'}, '/a/b'), 2),
    # A container shows its own group at the top.
    (version_2({'cpu.max': '3 1'}, '/../x'), 3),
    ({'proc/self/cgroup': 'a\nb:c:d:e'}, PROCESSORS),
    ({}, PROCESSORS),
  ],
)
def test_processors(make_tree, files, processors):
  found = machine.num_cpus(make_tree(files))
  assert found == processors
  assert set(machine.thread_limits(found).values()) == {str(processors)}


def memory_2(limit, used, **statistics):
  lines = '\n'.join(f'{name} {value}' for name, value in statistics.items())
  return {'memory.max': limit, 'memory.current': used, 'memory.stat': lines}


CACHED = dict(anon=2 * GB, file=6 * GB, inactive_file=4 * GB, active_file=GB)
CACHED |= dict(slab_reclaimable=10**6, shmem=GB)
POD = memory_2(20 * GB, 19 * GB, inactive_file=GB // 2)
APP = memory_2(10 * GB, 2 * GB)
PODS = {f'pod/{name}': content for name, content in POD.items()}
PODS |= {f'pod/app/{name}': content for name, content in APP.items()}


@pytest.mark.parametrize(
  ('files', 'available'),
  [
    (version_2(memory_2(GB, 3 * GB)), 0),
    (version_2({'memory.max': GB}), MEMORY),
    (version_2(memory_2(3 * GB, GB, inactive_file='damaged')), 2 * GB),
    (version_2(memory_2(10 * GB, 8 * GB, **CACHED)), 7 * GB + 10**6),
    (version_2(PODS, '/pod/app'), 3 * GB // 2),
  ],
)
def test_memory(make_tree, files, available):
  assert machine.available_memory(make_tree(files)) == available


def test_values_of_this_machine():
  assert 1 <= machine.num_cpus() <= len(os.sched_getaffinity(0))
  assert 0 < machine.available_memory() <= psutil.virtual_memory().total
  assert set(machine.thread_limits(0).values()) == {'1'}
  machine.return_freed_memory()
