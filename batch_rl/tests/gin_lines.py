"""gin's settings without a training program, for tests and benchmarks."""

import gin

from batch_rl.runs import gin_files


def load(paths, bindings):
  """Loads gin files and bindings as programs do; returns the bindings."""
  gin.parse_config('CollectorDispatcher.collectors = ()')
  return gin_files.apply(gin_files.read(paths, bindings))
