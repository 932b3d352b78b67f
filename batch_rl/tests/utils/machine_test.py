"""Processors and memory are those within the limits of control groups."""

import os
import types

import psutil
import pytest

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
      file = tmp_path / path
      file.parent.mkdir(parents=True, exist_ok=True)
      file.write_text(f'{content}\n')
    return str(tmp_path)

  return make


def version_2(files, path='/', shown='/'):
  return {
    'proc/self/cgroup': f'0::{path}',
    'proc/self/mountinfo': (
      '22 28 0:21 / /proc rw,nosuid shared:12 - proc proc rw\n'
      f'30 23 0:26 {shown} /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw'
    ),
    **{f'sys/fs/cgroup/{name}': content for name, content in files.items()},
  }


def version_1(files, path='/', shown='/'):
  """Files of the controllers `cpu,cpuacct` and `memory`."""
  return {
    'proc/self/cgroup': (
      f'12:cpuset:/\n5:memory:{path}\n4:cpu,cpuacct:{path}\n'
      '1:name=systemd:/x\n0::/user.slice'
    ),
    'proc/self/mountinfo': '\n'.join(
      f'3{i} 30 0:3{i} {shown} /sys/fs/cgroup/{name} rw master:{i} - cgroup '
      f'cgroup rw,{name}'
      for i, name in enumerate(['cpuset', 'memory', 'cpu,cpuacct'])
    ),
    **{f'sys/fs/cgroup/{name}': content for name, content in files.items()},
  }


@pytest.mark.parametrize(
  'text, processors',
  [
    ('max 100000', PROCESSORS),
    ('200000 100000', 2),
    ('150000 100000', 2),
    ('1000 100000', 1),
    ('9900000 100000', PROCESSORS),
    ('200000 0', PROCESSORS),
    ('200000', PROCESSORS),
    ('-1 100000', PROCESSORS),
    ('', PROCESSORS),
    ('damaged \x00', PROCESSORS),
  ],
)
def test_quotas_of_version_2(make_tree, text, processors):
  root = make_tree(version_2({'cpu.max': text}))
  assert machine.num_cpus(root) == processors
  limits = machine.thread_limits(machine.num_cpus(root))
  assert set(limits.values()) == {str(processors)}


@pytest.mark.parametrize(
  'quota, period, processors',
  [
    ('-1', '100000', PROCESSORS),
    ('50000', '20000', 3),
    ('5', '', PROCESSORS),
  ],
)
def test_quotas_of_version_1(make_tree, quota, period, processors):
  folder = 'cpu,cpuacct/job'
  files = {
    f'{folder}/cpu.cfs_quota_us': quota,
    f'{folder}/cpu.cfs_period_us': period,
  }
  root = make_tree(version_1(files, '/job'))
  assert machine.num_cpus(root) == processors


@pytest.mark.parametrize('path, processors', [('/a/b', 2), ('/a', 3), ('/', 8)])
def test_the_smallest_quota_of_all_ancestors_counts(
  make_tree, path, processors
):
  quotas = {'cpu.max': 8, 'a/cpu.max': 3, 'a/b/cpu.max': 2, 'c/cpu.max': 1}
  files = {name: f'{100_000 * n} 100000' for name, n in quotas.items()}
  assert machine.num_cpus(make_tree(version_2(files, path))) == processors
  files['a/cpu.max'] = '100000 100000'
  limited = machine.num_cpus(make_tree(version_2(files, path)))
  assert limited == (8 if path == '/' else 1)


@pytest.mark.parametrize('shown', ['/docker/1a', '/docker/1a/b', '/other'])
def test_a_container_shows_a_part_of_the_tree(make_tree, shown):
  """The groups of `path` below `shown` are at the top of the mount."""
  path = '/docker/1a/b'
  below = 'b/' if shown == '/docker/1a' else ''
  files = {f'{below}cpu.max': '300000 100000'}
  assert machine.num_cpus(make_tree(version_2(files, path, shown))) == 3


def memory_2(limit, used, **statistics):
  lines = '\n'.join(f'{name} {value}' for name, value in statistics.items())
  return {
    'memory.max': limit,
    'memory.current': used,
    'memory.swap.max': 0,
    'memory.stat': lines,
  }


def test_cached_files_are_available(make_tree):
  statistics = {
    'anon': 2 * GB,
    'file': 6 * GB,
    'inactive_file': 4 * GB,
    'active_file': GB,
    'slab_reclaimable': 10**6,
    'shmem': GB,
  }
  root = make_tree(version_2(memory_2(10 * GB, 8 * GB, **statistics)))
  assert machine.available_memory(root) == 7 * GB + 10**6


def test_cached_files_are_available_in_version_1(make_tree):
  files = {
    'memory/job/memory.limit_in_bytes': 10 * GB,
    'memory/job/memory.usage_in_bytes': 9 * GB,
    # Without `total_`, the group alone, without those below.
    'memory/job/memory.stat': (
      f'cache 7\ninactive_file 5\ntotal_inactive_file {3 * GB}\n'
      f'total_active_file {GB}'
    ),
    'memory/job/memory.memsw.limit_in_bytes': 9 * GB,
    'memory/memory.limit_in_bytes': 9223372036854771712,
    'memory/memory.usage_in_bytes': 90 * GB,
    'memory/memory.stat': '',
  }
  root = make_tree(version_1(files, '/job'))
  assert machine.available_memory(root) == 5 * GB


@pytest.mark.parametrize(
  'files, available',
  [
    ({}, MEMORY),
    (memory_2('max', GB), MEMORY),
    (memory_2(2 * MEMORY, GB), MEMORY),
    (memory_2(GB, 3 * GB), 0),
    (memory_2('', GB), MEMORY),
    ({'memory.max': GB}, MEMORY),
    ({'memory.max': 3 * GB, 'memory.current': GB}, 2 * GB),
    (memory_2(3 * GB, GB, inactive_file='damaged'), 2 * GB),
  ],
)
def test_missing_and_damaged_files_are_no_limit(make_tree, files, available):
  assert machine.available_memory(make_tree(version_2(files))) == available


def test_the_fullest_ancestor_counts(make_tree):
  groups = {
    'pod': memory_2(20 * GB, 19 * GB, inactive_file=GB // 2),
    'pod/app': memory_2(10 * GB, 2 * GB),
  }
  files = {
    f'{group}/{name}': content
    for group, contents in groups.items()
    for name, content in contents.items()
  }
  root = make_tree(version_2(files, '/pod/app'))
  assert machine.available_memory(root) == 3 * GB // 2


@pytest.mark.parametrize(
  'groups', ['', ':', '0::', '0::/../x', '4:memory', 'a\nb:c:d:e']
)
@pytest.mark.parametrize(
  'mounts', ['', '- cgroup2', ' - ', 'a b c - cgroup2 x']
)
def test_unknown_formats_are_no_limit(make_tree, groups, mounts):
  root = make_tree({'proc/self/cgroup': groups, 'proc/self/mountinfo': mounts})
  assert machine.num_cpus(root) == PROCESSORS
  assert machine.available_memory(root) == MEMORY


def test_values_of_this_machine():
  assert 1 <= machine.num_cpus() <= len(os.sched_getaffinity(0))
  assert 0 < machine.available_memory() <= psutil.virtual_memory().total
