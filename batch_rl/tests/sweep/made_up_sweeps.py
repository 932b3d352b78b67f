"""Sweeps for tests, built without a file."""

from batch_rl.sweep import plan


def make(*cells, base_dir='out', **needs):
  """Returns a sweep of cells that need one processor each, unless `needs` differ."""
  fields = dict(
    job='offline',
    cpus=1,
    gpus=0,
    memory_gb=None,
    retries=0,
    rates={},
    slurm={},
  )
  return plan.Sweep(base_dir=str(base_dir), cells=cells, **{**fields, **needs})
