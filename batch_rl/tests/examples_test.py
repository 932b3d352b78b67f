"""The example `examples/own_environment`: its log is an intact run."""

import pathlib
import runpy
import sys

import numpy as np

from batch_rl.dataset import run_directories
from batch_rl.dataset.checks import run_checks, run_statistics

EXAMPLES = pathlib.Path(__file__).parents[2] / 'examples'


def test_random_play_is_logged(tmp_path, monkeypatch):
  monkeypatch.chdir(tmp_path)
  script = EXAMPLES / 'own_environment' / 'own_environment.py'
  monkeypatch.setattr(sys, 'argv', [str(script), '--log_dir=GridWorld/1'])
  runpy.run_path(str(script), run_name='__main__')
  run = run_directories.as_run('GridWorld/1')
  assert not run_checks.verify(run.data_dir).problems
  statistics = run_statistics.compute(run)
  assert statistics.game == 'GridWorld'
  assert statistics.totals()['agent_steps'] == 20_000
  # Each step costs 0.1; the opposite corner is 8 steps away.
  np.testing.assert_allclose(
    statistics.episodes.returns, -0.1 * statistics.lengths, rtol=1e-5
  )
  assert statistics.lengths.min() >= 8 and len(statistics.actions) == 4
