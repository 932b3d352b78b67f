"""A run shared by the tests of resuming."""

import pytest


@pytest.fixture(scope='session')
def whole_offline_run(tmp_path_factory):
  """The function of `resume_test.offline_run`, and a base_dir run to its end."""
  from batch_rl.tests.runs import resume_test

  directory = tmp_path_factory.mktemp('whole')
  start = resume_test.offline_run(directory / 'log')
  assert start(directory / 'run')
  return start, directory / 'run'
