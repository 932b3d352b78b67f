"""Files of a run on disk: read, changed and verified."""

import contextlib
import gzip
import resource

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
  with gzip.open(path, 'wb', compresslevel=1) as file:
    np.save(file, array)


def change(logs, name, suffix, function):
  """Rewrites a column, and removes the manifest, whose hash no longer matches."""
  (logs / manifests.FILE_NAME).unlink(missing_ok=True)
  path = file_of(logs, name, suffix)
  save(path, function(load(path)))
  return path


def flipped(content, at=None, mask=1):
  """Returns bytes of which one has other bits, that in the middle by default."""
  changed = bytearray(content)
  changed[len(content) // 2 if at is None else at] ^= mask
  return bytes(changed)


def flip_a_bit(path, at=None):
  path.write_bytes(flipped(path.read_bytes(), at))


@contextlib.contextmanager
def limited(kind, limit):
  """Context in which a resource of this process has a limit; yields the former."""
  before = resource.getrlimit(kind)
  resource.setrlimit(kind, (limit, before[1]))
  try:
    yield before
  finally:
    resource.setrlimit(kind, before)


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
  return run_statistics.RunStatistics(run_directories.as_run(str(directory)))
