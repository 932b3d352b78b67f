"""Files of a run on disk: read, changed and verified."""

import gzip
import io

import numpy as np

from batch_rl.dataset import run_directories
from batch_rl.dataset.checks import run_checks, run_statistics
from batch_rl.dataset.shards import manifests, shard_files

CAPACITY = 40


def file_of(logs, name, suffix):
  return logs / shard_files.file_name(name, suffix)


def load(path):
  with gzip.open(path) as file:
    return np.load(file)


def save(path, array):
  content = io.BytesIO()
  np.save(content, array)
  path.write_bytes(gzip.compress(content.getvalue(), 1))


def change(logs, name, suffix, function):
  """Rewrites a column, and removes the manifest, whose hash no longer matches."""
  (logs / manifests.FILE_NAME).unlink(missing_ok=True)
  path = file_of(logs, name, suffix)
  save(path, function(load(path)))
  return path


def flip_a_bit(path, at=None):
  content = bytearray(path.read_bytes())
  content[len(content) // 2 if at is None else at] ^= 1
  path.write_bytes(content)


def put(row, value):
  """Returns a function that sets one row of a column."""

  def change_row(array):
    array[row] = value
    return array

  return change_row


def findings(logs, level=None):
  every = run_checks.verify(str(logs)).findings
  return [f for f in every if level is None or f.level == level]


def the_only(logs, level):
  """Returns the only finding that is not a note."""
  (finding,) = run_checks.verify(str(logs)).problems
  assert finding.level == level and '\n' not in finding.message
  return finding


def is_well(logs):
  return not run_checks.verify(str(logs)).problems


def compute(directory):
  """Returns the statistics of the run in a directory."""
  return run_statistics.compute(run_directories.as_run(str(directory)))
