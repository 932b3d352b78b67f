"""What every test starts from."""

import sys

import gin
import pytest


@pytest.fixture(autouse=True)
def _nothing_left_behind():
  """Each test finds gin without bindings and the default graph empty."""
  yield
  gin.clear_config()
  # Many tests do without TensorFlow, which takes seconds to import.
  if 'tensorflow' in sys.modules:
    sys.modules['tensorflow'].compat.v1.reset_default_graph()
