"""Runs on disk that the tests of checks share."""

import shutil

import pytest

from batch_rl.tests import shards
from batch_rl.tests.dataset.checks import run_files


@pytest.fixture(scope='session')
def intact_logs(tmp_path_factory):
  """Three episodes of 30 steps in shards 0, 1 and the partial 2, with a manifest."""
  directory = tmp_path_factory.mktemp('intact') / 'replay_logs'
  shards.write_run(directory, [30, 30, 30], run_files.CAPACITY)
  return directory


@pytest.fixture
def logs(intact_logs, tmp_path):
  """A copy of `intact_logs` that a test may damage."""
  return shutil.copytree(intact_logs, tmp_path / 'replay_logs')


@pytest.fixture(scope='session')
def sample():
  """Statistics of the sample of Pong."""
  return run_files.compute(run_files.SAMPLE)
