"""Trajectories made by hand, and the steps selected from them."""

import numpy as np

from batch_rl.dataset.sampling import subsets

PADDING = 3


def make(lengths, returns=None, shard=None, num_shards=4, padding=PADDING):
  """Returns consecutive trajectories with these numbers of steps after padding."""
  rows = np.array(lengths, np.int64) + padding
  begin = np.cumsum(rows) - rows
  if shard is None:
    shard = np.arange(len(lengths)) * num_shards // max(len(lengths), 1)
  shard = np.asarray(shard, np.int64)
  bounds = [
    int(begin[np.searchsorted(shard, number)])
    if number <= shard[-1]
    else int(rows.sum())
    for number in range(num_shards)
  ] + [int(rows.sum())]
  return subsets.Trajectories(
    begin=begin,
    steps_begin=begin + padding,
    at_reset=np.ones(len(begin), bool),
    start=begin,
    stop=begin + rows,
    returns=np.array(
      np.zeros(len(lengths)) if returns is None else returns, np.float64
    ),
    shard=shard,
    shard_rows={i: (bounds[i], bounds[i + 1]) for i in range(num_shards)},
  )


def steps(data):
  """Returns the selected steps: a list of rows for each trajectory."""
  return [
    list(range(max(int(start), int(first)), max(int(start), int(stop))))
    for start, first, stop in zip(
      data.start, data.steps_begin, data.stop, strict=True
    )
  ]
