"""Names that users import from `batch_rl.dataset`."""

import importlib
import subprocess
import sys

import pytest

LOG_AND_SAMPLE = """
import sys
import numpy as np
import batch_rl
from batch_rl.dataset import ReplayLog, sampler, store
with ReplayLog(sys.argv[1], (4,), np.float64, 100, stack_size=1) as log:
  for step in range(30):
    log.add(np.full(4, step), step % 3, -0.5, step % 10 == 9)
draw = batch_rl.dataset.open(sys.argv[1]).transitions(stack_size=1, seed=0)
batch = draw.batch(0, 8)
assert draw.num_transitions == 30
np.testing.assert_array_equal(batch.state[:, 0, 0] % 3, batch.action % 3)
print([m for m in ('tensorflow', 'gin', 'dopamine', 'jax') if m in sys.modules])
"""


def test_data_are_logged_and_sampled_without_tensorflow_and_gin(tmp_path):
  command = [sys.executable, '-c', LOG_AND_SAMPLE, str(tmp_path)]
  done = subprocess.run(command, capture_output=True, text=True, check=False)
  assert (done.returncode, done.stdout, done.stderr) == (0, '[]\n', '')


def test_pytorch_is_asked_for(monkeypatch):
  monkeypatch.delitem(sys.modules, 'batch_rl.dataset.torch', raising=False)
  monkeypatch.setitem(sys.modules, 'torch', None)  # as if not installed
  with pytest.raises(ImportError, match='needs PyTorch: pip install torch'):
    importlib.import_module('batch_rl.dataset.torch')
