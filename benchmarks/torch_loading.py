"""The rate of batches in PyTorch, beside that of `Sampler.batch`.

  python -um benchmarks.torch_loading [STORE] [--quick]

All ways take batches of the same run, in turns; rates are medians over the rounds. The
first four have two threads each. Nothing else is done with the batches. Batches prepared
ahead are taken before the clock starts, and a pause lets the way before fill up its own.

- `Sampler.batch`, called by threads, which drop each batch or keep the last eight. A
  thread that drops its batch writes the next one to the same memory, which is still in
  the processor's cache; whoever uses the batches cannot have that;
- `TransitionDataset`, alone and through a `DataLoader` without workers;
- a `DataLoader` with two worker processes of one thread each;
- obvious code: a `Dataset` of single transitions with states and next states, which the
  `DataLoader` stacks, without workers and with two.
"""

import collections
import functools
import itertools
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from absl import logging

from batch_rl import dataset
from batch_rl.dataset.sampling import sampler
from benchmarks import measuring

try:
  import torch
  from torch.utils import data

  from batch_rl.dataset import torch as torch_data
except ImportError:
  measuring.leave_out('PyTorch is not installed.')

BATCHES = 1000  # a round
ROUNDS = 7
SIZES = (32, 256)
# Batches prepared ahead, at most: 8 by a dataset of ours, 2 by a loader, for each worker.
AHEAD = 2 * (8 + 2)
PAUSE = 0.2  # seconds
if measuring.QUICK:
  BATCHES, SIZES = 20, (32,)
KEPT = {'Sampler.batch': 0, 'Sampler.batch, eight kept': 8}  # batches


class Transitions(data.Dataset):
  """Single transitions, as users of PyTorch write them."""

  def __init__(self, drawn: sampler.Sampler):
    self._sampler = drawn
    self._rows = drawn.valid_rows()

  def __len__(self):
    return len(self._rows)

  def __getitem__(self, index):
    batch = self._sampler.gather(self._rows[index : index + 1])
    return (
      batch.state[0],
      int(batch.action[0]),
      float(batch.reward[0]),
      batch.next_state[0],
      bool(batch.terminal[0]),
    )


def by_threads(draw: Callable[[int], Any], count: int, kept: int) -> None:
  """Draws batches by two threads, and keeps the last ones."""
  numbers = itertools.count()
  last: collections.deque = collections.deque(maxlen=kept)

  def work():
    while (number := next(numbers)) < count:
      last.append(draw(number))

  threads = [threading.Thread(target=work) for _ in range(2)]
  for thread in threads:
    thread.start()
  for thread in threads:
    thread.join()


def ways(drawn: sampler.Sampler, size: int) -> dict[str, Iterator]:
  """Returns endless iterators over batches, by name."""

  def loader(source, workers=0, **kwargs):
    while True:
      yield from data.DataLoader(source, num_workers=workers, **kwargs)

  def ours(threads):
    return torch_data.TransitionDataset(drawn, size, threads=threads)

  single = Transitions(drawn)
  obvious = {'batch_size': size, 'shuffle': True}
  return {
    'TransitionDataset': iter(ours(2)),
    'TransitionDataset, DataLoader': loader(ours(2), batch_size=None),
    'TransitionDataset, 2 workers': loader(ours(1), 2, batch_size=None),
    'single transitions, DataLoader': loader(single, **obvious),
    'single transitions, 2 workers': loader(single, 2, **obvious),
  }


def rates(
  drawn: sampler.Sampler, size: int, rounds: int = ROUNDS
) -> dict[str, np.ndarray]:
  """Returns the batches/s of each round, by way: `{name: (rounds,)}`."""
  iterators = ways(drawn, size)
  count = max(1, BATCHES * SIZES[0] // size)

  def rate(name):
    # Ways that take long are measured by fewer batches.
    wanted = max(1, count // 10) if 'single' in name else count
    time.sleep(PAUSE)
    if name in KEPT:
      start = time.perf_counter()
      by_threads(lambda number: drawn.batch(number, size), wanted, KEPT[name])
    else:
      _take(iterators[name], AHEAD)
      start = time.perf_counter()
      _take(iterators[name], wanted)
    return wanted / (time.perf_counter() - start)

  ways_to_take = {
    name: functools.partial(rate, name) for name in [*KEPT, *iterators]
  }
  taken = measuring.take_turns(ways_to_take, rounds, warm_up=1)
  return {name: np.array(found) for name, found in taken.items()}


def _take(iterator: Iterator, count: int) -> None:
  for _ in itertools.islice(iterator, count):
    pass


def table(drawn: sampler.Sampler) -> None:
  """Prints the rates of a run."""
  rows = []
  for size in SIZES:
    found = rates(drawn, size)
    for name, rate in found.items():
      shares = [f'{np.median(rate / found[other]):.2f} x' for other in KEPT]
      rows.append([f'{size}: {name}', f'{np.median(rate):,.0f}', *shares])
  measuring.table(
    ['batch size: way', 'batches/s', 'of Sampler.batch', 'of eight kept'], rows
  )
  print('Target: 0.8 x of Sampler.batch for TransitionDataset.')


def main() -> None:
  """Prints the table of a run, the sample unless another one is given."""
  parser = measuring.parser(__doc__)
  parser.add_argument('directory', nargs='?', default='data/Pong/1')
  arguments = parser.parse_args()
  logging.set_verbosity(logging.ERROR)
  torch.set_num_threads(1)
  drawn = dataset.open(arguments.directory).transitions(seed=1)
  drawn.wait_until_compiled()
  table(drawn)


if __name__ == '__main__':
  main()
