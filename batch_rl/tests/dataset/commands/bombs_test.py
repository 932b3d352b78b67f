"""A small file that claims or holds gigabytes is refused within little memory."""

import os
import tracemalloc

import pytest

from batch_rl.dataset.shards import shard_files
from batch_rl.tests import shards
from batch_rl.tests.dataset.conftest import is_one_line

ROWS = 40
GB = 1 << 30
BOMBS = {
  'rows of 4 GB': ('observation', '|u1', (ROWS, 4 * GB), 4 * GB),
  'values of 1 GB': ('observation', '|V1073741824', (ROWS,), GB),
  'endless empty rows': ('observation', '|u1', (10**15, 0), 0),
  'rows that are not there': ('reward', '<f4', (1 << 24,), 0),
  'counters': ('invalid_range', '<i8', (1 << 24,), GB >> 3),
  'terminals': ('terminal', '|u1', (4 * GB,), 4 * GB),
}


def write(root, column, *array):
  """Writes the run Pong/1 without a manifest, zeros as a column; returns its path."""
  logs = root / 'Pong' / '1' / 'replay_logs'
  shards.write_run(logs, [30], ROWS)
  os.remove(logs / 'manifest.json')
  path = logs / shard_files.file_name(column, 0)
  shards.write_zeros(path, *array)
  return path


@pytest.fixture(scope='module', params=BOMBS)
def source(request, tmp_path_factory):
  """A dataset of one run with a bomb, and the name of its file."""
  directory = tmp_path_factory.mktemp('bomb')
  path = write(directory, *BOMBS[request.param])
  assert path.stat().st_size < 5 << 20
  return directory, path.name


def measured(run, *arguments):
  """Returns what `run` returns, and the most memory that Python held."""
  tracemalloc.start()
  try:
    return *run(*arguments), tracemalloc.get_traced_memory()[1]
  finally:
    tracemalloc.stop()


@pytest.mark.parametrize(
  'command', ['verify', 'inspect', 'convert', 'import', 'fetch']
)
def test_a_bomb_is_one_line(run, source, tmp_path, command):
  directory, name = source
  target = tmp_path / 'new'
  arguments = [directory / 'Pong' / '1']
  if command in ('convert', 'import'):
    arguments.append(target)
  elif command == 'fetch':
    options = '--game', 'Pong', '--run', '1', '--data_dir', target
    arguments = [directory, *options]
  code, out, err, peak = measured(run, command, *arguments)
  assert peak < 50e6
  if command in ('verify', 'fetch'):
    assert code == 1 and any(name in line for line in out.splitlines())
  else:
    assert code == 2 and str(directory) in err
    assert is_one_line(err.split('\r')[-1])
    assert not (target / 'shard-0.bin').exists()


def test_the_largest_rows_take_little_memory(run, tmp_path):
  write(tmp_path, 'observation', '|u1', (ROWS, 1 << 22), ROWS << 22)
  arguments = tmp_path / 'Pong' / '1', tmp_path / 'new'
  code, out, _, peak = measured(run, 'convert', *arguments)
  assert code == 0 and '33 rows' in out and peak < 250e6, peak
