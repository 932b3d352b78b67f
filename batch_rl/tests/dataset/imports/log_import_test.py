"""Tests for the import of episodes as shards, without TensorFlow."""

import json
import os
import signal
import subprocess
import sys

import pytest

from batch_rl.dataset.imports import log_import
from batch_rl.dataset.store import store
from batch_rl.tests import interchange_runs as runs
from batch_rl.tests.dataset.imports import list_reader

KINDS = {1: 'truncated', 2: 'truncated'}
# Runs `import_until_killed` in a process of its own.
_PROGRAM = """
import sys
from batch_rl.tests.dataset.imports import log_import_test
log_import_test.import_until_killed(sys.argv[1])
"""


def make_reader():
  """Returns a reader of four episodes of the sample, split in three and one."""
  logged = runs.make_episodes(*runs.LENGTHS)
  return list_reader.ListReader(
    {0: logged[:3], 1: logged[3:]}, {(0, n): kind for n, kind in KINDS.items()}
  )


def import_until_killed(destination):
  """Kills the process at the fourth episode."""
  log_import._ROWS_BETWEEN_CHECKPOINTS = 50
  left = 4

  def progress(stage, count, total):
    nonlocal left
    left -= stage == 'episodes'
    if not left:
      os.kill(os.getpid(), signal.SIGKILL)

  log_import.import_run(make_reader(), destination, progress=progress)


def test_a_killed_import_continues(tmp_path):
  target = tmp_path / 'store'
  command = [sys.executable, '-c', _PROGRAM, str(target)]
  killed = subprocess.run(command, capture_output=True, check=False)
  assert killed.returncode == -signal.SIGKILL, killed.stderr
  assert os.listdir(tmp_path) == ['store.unfinished']
  path = tmp_path / 'store.unfinished/state.json'
  written = path.read_text()
  state = json.loads(written)
  assert (
    state['done'] == {'part 0': {'episodes': 3, 'position': 3}}
    and state['log']['rows'] == 194
  )

  def stop(stage, count, total):
    if stage == 'packing':
      raise ValueError('stopped')  # raised through the packer's thread

  for damage in ('[]', '{"options": {}}', written.replace('194', '193', 1)):
    path.write_text(damage)
    with pytest.raises(ValueError, match='state.json is damaged'):
      log_import.import_run(make_reader(), str(target))
  path.write_text(written)
  with pytest.raises(ValueError, match='store.unfinished'):  # other options
    log_import.import_run(make_reader(), str(target), shard_rows=200)
  reader = make_reader()
  with pytest.raises(ValueError, match='stopped'):
    log_import.import_run(reader, str(target), progress=stop)
  assert reader.reads == ['part 1']  # the first split was logged
  assert not target.exists()
  reader = make_reader()
  summary = log_import.import_run(reader, str(target))
  assert not reader.reads  # all episodes were logged
  assert summary['episodes'] == 4 and summary['truncated'] == 2
  assert summary['format'] == 'list' and summary['order'] == 'time'
  assert os.listdir(tmp_path) == ['store']
  runs.assert_same(
    runs.transitions(target),
    runs.expected_transitions(runs.make_episodes(*runs.LENGTHS), KINDS),
  )


def test_a_damaged_store_is_imported_anew(tmp_path):
  """Unlike other imports, this one refuses a store that is there."""
  log_import.import_run(make_reader(), str(tmp_path / 'store'), shard_rows=100)
  (tmp_path / 'store/shard-1.json').unlink()
  with pytest.raises(
    ValueError, match='shards 1 are missing; run the same import again'
  ):
    store.Store(str(tmp_path / 'store'))
