"""`python -m batch_rl.dataset verify` finds what is wrong."""

import gzip
import os

import numpy as np
import pytest

from batch_rl.dataset import __main__ as tools
from batch_rl.dataset import shard
from batch_rl.tests import shards


@pytest.fixture
def run_dir(tmp_path):
  shards.write_run(tmp_path / 'replay_logs', [30, 30], capacity=40)
  return tmp_path


def test_a_good_run_is_well(run_dir, monkeypatch, capsys):
  monkeypatch.setattr('sys.argv', ['x', 'verify', str(run_dir)])
  with pytest.raises(SystemExit) as exit_:
    tools.main()
  assert exit_.value.code == 0
  printed = capsys.readouterr().out
  assert 'shard 0: 39 rows, 1 episodes end' in printed
  assert printed.endswith('all is well\n')


def test_damage_is_found(run_dir):
  path = run_dir / 'replay_logs' / shard.file_name('reward', 1)
  content = bytearray(path.read_bytes())
  content[len(content) // 2] ^= 1
  path.write_bytes(content)
  (line,) = tools.verify(str(run_dir))
  assert str(path) in line and 'damaged' in line


def test_a_file_of_another_run_is_found(run_dir, tmp_path):
  shards.write_run(tmp_path / 'other', [29, 31], capacity=40)
  name = shard.file_name('terminal', 0)
  os.replace(tmp_path / 'other' / name, run_dir / 'replay_logs' / name)
  (line,) = tools.verify(str(run_dir))
  assert 'not the file that the manifest describes' in line


def test_a_lost_shard_is_found(run_dir):
  for name in shard.FILES:
    os.remove(run_dir / 'replay_logs' / shard.file_name(name, 1))
  (line,) = tools.verify(str(run_dir))
  assert line.startswith('Shard 1 is in the manifest')


def test_rows_lost_between_shards_are_found(tmp_path):
  """As the original logger lost them; there is no manifest to tell."""
  logs = tmp_path / 'replay_logs'
  shards.write_run(logs, [50, 50, 40], capacity=40)
  os.remove(logs / shard.MANIFEST)
  assert not tools.verify(str(tmp_path))
  path = str(logs / shard.file_name('add_count', 2))
  with gzip.open(path, 'wb') as file:
    np.save(file, np.array(159))
  (line,) = tools.verify(str(tmp_path))
  assert 'add_count is 79 in shard 1 and 159 in shard 2' in line
  for name in shard.FILES:
    os.remove(logs / shard.file_name(name, 2))
  (line,) = tools.verify(str(tmp_path))
  assert 'no shard between 1 and 3' in line


def test_no_run_at_all_is_an_error(tmp_path, monkeypatch, capsys):
  monkeypatch.setattr('sys.argv', ['x', 'verify', str(tmp_path)])
  with pytest.raises(SystemExit) as exit_:
    tools.main()
  assert exit_.value.code == 2
  assert 'has no replay_logs folder' in capsys.readouterr().err
