"""An interrupted fetch resumes, unless the file has changed."""

import gzip
import json
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

from batch_rl.dataset.checks import run_checks
from batch_rl.dataset.shards import shard_files, shard_reader
from batch_rl.tests import interchange_runs
from batch_rl.tests.dataset.fetch import web_server
from batch_rl.tests.dataset.fetch.fetched_files import (
  FRAMES,
  RUN,
  assert_complete,
  contents,
)


def test_server_without_ranges(root, server, run, data_dir):
  server.ranges, server.drop_after = False, 30_000
  out = run.output(server.url, '--retries=2', code=1)
  assert '3 files were not fetched (Pong/1 $store$_obs' in out
  assert 'after 2 retries' in out and FRAMES not in contents(data_dir)
  server.drop_after = None
  assert '3 files fetched' in run.output(server.url)
  assert_complete(root, data_dir)


@pytest.mark.parametrize(
  ('etags', 'same_size', 'if_range'),
  [(False, False, True), (True, True, True), (True, True, False)],
)
def test_versions_of_a_file_are_not_spliced(
  root, server, run, data_dir, etags, same_size, if_range
):
  server.etags, server.if_range, server.drop_after = etags, if_range, 30_000
  path = root / RUN / FRAMES
  run.output(server.url, '--shards=1', '--retries=0', code=1)
  assert (data_dir / 'partial' / FRAMES).stat().st_size == 30_000
  rows = shard_reader.read_array(str(path))
  rows = rows[:, ::-1] if same_size else np.zeros_like(rows)
  with gzip.GzipFile(path, 'wb', 0 if same_size else 9, mtime=0) as file:
    np.save(file, rows)
  os.utime(path, (0, 1_000_000_000))
  server.drop_after = None
  server.requests.clear()
  run.output(server.url, '--shards=1')
  assert_complete(root, data_dir, (1,))


@pytest.mark.parametrize('version', ['"old"', None])
def test_other_partial_files_are_neither_used_nor_written_to(
  root, server, run, data_dir, tmp_path, version
):
  """A killed import leaves links to the user's files in `partial`."""
  mine = tmp_path / 'mine'
  content = (root / RUN / FRAMES).read_bytes()
  mine.write_bytes(content)
  (data_dir / 'partial').mkdir(parents=True)
  name = shard_files.file_name('observation', 0)
  os.link(mine, data_dir / 'partial' / name)
  if version:
    note = {'bytes': len(content), 'version': version}
    (data_dir / 'partial' / f'{name}.json').write_text(json.dumps(note))
  assert run(server.url, '--shards=0')[0] == 0
  assert_complete(root, data_dir, (0,))
  assert mine.read_bytes() == content


@pytest.mark.waits
def test_killed_fetch_resumes(run, data_dir, tmp_path):
  """A process is killed twice while bytes arrive."""
  sample = interchange_runs.SAMPLE.parents[1]
  frames = shard_files.file_name('observation', 2)
  partial = data_dir / 'partial' / frames
  with web_server.WebServer(sample) as server:
    server.bytes_per_second = 2_000_000
    command = [
      *(sys.executable, '-m', 'batch_rl.dataset', 'fetch', server.url),
      *('--game=Pong', '--run=1', '--shards=1-2'),
      f'--data_dir={tmp_path / "data"}',
    ]
    for least in (100_000, 1_000_000):
      process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
      deadline = time.monotonic() + 60
      while not partial.exists() or partial.stat().st_size < least:
        assert process.poll() is None and time.monotonic() < deadline
        time.sleep(0.01)
      process.send_signal(signal.SIGKILL)
      process.wait()
    server.bytes_per_second = None
    run.output(server.url, '--shards=1-2')
  assert contents(data_dir) == contents(sample / RUN, (1, 2))
  assert not run_checks.verify(str(data_dir)).problems
  starts = server.gets(frames)
  assert len(starts) == 3 and starts == sorted(starts)
  assert starts[2] >= 1_000_000
  # Complete files were not requested again.
  assert server.gets(shard_files.file_name('action', 1)) == [0]
