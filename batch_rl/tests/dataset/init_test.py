"""Names that users import from `batch_rl.dataset`."""

import importlib
import sys

import pytest


def test_pytorch_is_asked_for(monkeypatch):
  monkeypatch.delitem(sys.modules, 'batch_rl.dataset.torch', raising=False)
  monkeypatch.setitem(sys.modules, 'torch', None)  # as if not installed
  with pytest.raises(ImportError, match='needs PyTorch: pip install torch'):
    importlib.import_module('batch_rl.dataset.torch')
