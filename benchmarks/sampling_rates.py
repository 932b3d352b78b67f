"""Batches a second by number of threads, and the processors that a GPU needs for them.

  python -um benchmarks.sampling_rates [--stores STORE ...] [--quick]

Threads draw batches for a part of a second each. The first four ways take turns, in rounds,
with all sizes and numbers of threads; so do the others, for each size and layout. Rates are
medians over the rounds.

- `Sampler.batch`: windows of frames, as a GPU gets them;
- `sample_transition_batch`: Dopamine's eight arrays, with states and next states;
- NumPy's gather of such windows from raw frames, those of the first 250,000 rows: the limit;
- `sample_transition_batch` of Dopamine's memory, which holds the same rows;
- the feed: the threads are those of the feed, and a loop of a TensorFlow graph takes the
  batches (`benchmarks/feed.py`), as windows and as stacks (states and next states);
- a plain map of `tf.data` that hands over constant arrays of the same shapes, as
  TensorFlow converts them, and with our faster conversion, which the feed has, too.
"""

import batch_rl.agents  # noqa: F401  isort: skip  (before Dopamine)

import concurrent.futures
import functools
import itertools
import math
import os
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
from absl import logging

from batch_rl.dataset.sampling import sampler
from batch_rl.utils import machine
from benchmarks import feed, measuring, memories

GAMES = ('Pong', 'Seaquest')
SIZES = (32, 256)
ROUNDS = 5
SECONDS = 0.25  # of each measurement
WINDOWS, ARRAYS, GATHER, DOPAMINE = (
  'windows',
  'eight arrays',
  'NumPy gather of raw frames',
  "Dopamine's memory",
)
# Ways into TensorFlow, by the layout of `feed`.
FEED = {layout: f'feed, {layout}' for layout in feed.LAYOUTS}
MAP = {layout: f'constant arrays, {layout}' for layout in feed.LAYOUTS}
OUR_MAP = {layout: f'{way}, our conversion' for layout, way in MAP.items()}
TARGETS = {
  WINDOWS: '0.15 ms, 1.6 x, 20 x Dopamine',
  GATHER: '(the limit)',
  FEED['windows']: '3,500; 80 % of the first map',
  FEED['stacks']: '3,000; 80 % of the first map',
}
FEED_ROUNDS = 3
UPDATES = (200, 500, 1000, 2000)  # a second
if measuring.QUICK:
  GAMES, SIZES, SECONDS = ('Pong',), (32,), 0.02


class Rate(NamedTuple):
  """Rate of some threads.

  Attributes:
    batches: Batches a second.
    processor: Seconds of processor time a batch, of all threads of the process.
  """

  batches: float
  processor: float


def threads() -> list[int]:
  """Returns the numbers of threads to measure."""
  return sorted({1, 2, 4, max(4, machine.num_cpus())})


def rate(function: Callable[[], Any], count: int) -> Rate:
  """Returns the rate at which threads call a function.

  Args:
    function: Function that draws a batch, called by several threads at once.
    count: Number of threads, each of which completes at least one call.
  """
  stop = threading.Event()
  begin = threading.Barrier(count + 1)

  def work():
    done = 0
    begin.wait()
    while True:
      function()
      done += 1
      if stop.is_set():
        return done

  with concurrent.futures.ThreadPoolExecutor(count) as pool:
    working = [pool.submit(work) for _ in range(count)]
    start, processor = time.perf_counter(), time.process_time()
    begin.wait()
    time.sleep(SECONDS)
    stop.set()
    done = sum(one.result() for one in working)
    taken = time.perf_counter() - start
    processor = time.process_time() - processor
  return Rate(done / taken, processor / done)


def medians(
  functions: Mapping[Any, Callable[[], Rate]], rounds: int = ROUNDS
) -> dict[Any, Rate]:
  """Returns the median rates of functions that take turns; the first round is dropped.

  Args:
    functions: Functions that measure a rate, by name.
    rounds: Number of rounds that count.
  """
  taken = measuring.take_turns(functions, rounds, warm_up=1)
  return {
    name: Rate(*np.median(found, axis=0).tolist())
    for name, found in taken.items()
  }


def of_store(directory: str) -> dict[tuple[int, str, int], Rate]:
  """Returns the rates of a store, `{(batch size, way, threads): rate}`."""
  functions: dict[tuple[int, str, int], Callable[[], Rate]] = {}
  ours = memories.our_memory(directory, memories.ROWS)
  source = ours._store
  rows = min(memories.DOPAMINE_ROWS, source.rows)
  theirs = memories.dopamine_memory(source, rows)
  ways = _ways(source, ours, theirs)
  for size, count in itertools.product(SIZES, threads()):
    for way, draw in ways.items():
      functions[size, way, count] = _measured(draw, size, count)
  found = medians(functions)
  for size, layout in itertools.product(SIZES, feed.LAYOUTS):
    found |= _into_tensorflow(directory, size, layout)
  return found


def _into_tensorflow(
  directory, size, layout
) -> dict[tuple[int, str, int], Rate]:
  """Returns the rates of the feed and, as one thread, of constant arrays."""
  loops = {
    (size, FEED[layout], count): feed.through_feed(
      directory, layout, count, size
    )
    for count in threads()
  }
  loop = feed.constant_map(directory, layout, size)
  loops[size, OUR_MAP[layout], 1] = loop
  loops[size, MAP[layout], 1] = feed.as_without_this_package(loop)
  functions = {
    name: functools.partial(_rate_of_loop, loop) for name, loop in loops.items()
  }
  return medians(functions, FEED_ROUNDS)


def _rate_of_loop(loop: Callable[[], None]) -> Rate:
  seconds, processor = measuring.cost(loop, feed.BATCHES)
  return Rate(1 / seconds, processor)


def _ways(source, ours, theirs) -> dict[str, Callable[[int], Any]]:
  """Returns the functions that draw a batch of a size, by name."""
  drawn = sampler.Sampler(source, 4, seed=0)
  drawn.wait_until_compiled()
  ours.sampler.wait_until_compiled()
  frames, local = theirs._store['observation'], threading.local()

  def gather(size):
    if not hasattr(local, 'random'):
      local.random = np.random.default_rng()
    rows = local.random.integers(len(frames) - 5, size=size)
    return frames[rows[:, None] + np.arange(5)]

  return {
    WINDOWS: lambda size: drawn.batch(drawn.next_number(), size),
    ARRAYS: ours.sample_transition_batch,
    GATHER: gather,
    DOPAMINE: theirs.sample_transition_batch,
  }


def _measured(draw, size, count):
  return lambda: rate(lambda: draw(size), count)


def stores() -> dict[str, str]:
  """Returns the directories of the stores by game; makes missing ones."""
  return {game: memories.make(game)[1] for game in GAMES}


def table(stores: Mapping[str, str]) -> None:
  """Prints the rates and the projection.

  Args:
    stores: Directories of the stores by the names of their games.
  """
  found = {game: of_store(directory) for game, directory in stores.items()}
  lines = [
    _line(game, rates, size, way)
    for game, rates in found.items()
    for size in SIZES
    for way in (
      WINDOWS,
      ARRAYS,
      GATHER,
      DOPAMINE,
      *FEED.values(),
      *MAP.values(),
      *OUR_MAP.values(),
    )
  ]
  measuring.table(
    [
      'batches/s, threads:',
      *map(str, threads()),
      '1 thread, ms',
      '2 : 1 threads',
      'x Dopamine',
      'best, of the maps',
      'target',
    ],
    lines,
  )
  for what, way in (
    ('the sampler alone', WINDOWS),
    ('through the feed', FEED['windows']),
  ):
    project(
      {
        (game, size): rates[size, way, 2].processor
        for game, rates in found.items()
        for size in SIZES
      },
      f'windows, {what}',
    )


def _line(game, rates, size, way) -> list[str]:
  batches = {
    count: rates[size, way, count].batches
    for count in threads()
    if (size, way, count) in rates
  }
  shares = []
  for layout, through in FEED.items():
    if way == through:
      shares = [
        f'{max(batches.values()) / rates[size, name, 1].batches:.0%}'
        for name in (MAP[layout], OUR_MAP[layout])
      ]
  return [
    f'{game}, {size}: {way}',
    *(
      f'{batches[count]:,.0f}' if count in batches else ''
      for count in threads()
    ),
    f'{1e3 / batches[1]:.3f}',
    f'{batches[2] / batches[1]:.2f} x' if 2 in batches else '',
    # Ways that take turns with Dopamine's memory.
    f'{batches[1] / rates[size, DOPAMINE, 1].batches:.1f} x'
    if way in (WINDOWS, ARRAYS, GATHER, DOPAMINE)
    else '',
    ', '.join(shares),
    TARGETS.get(way, '') if size == 32 else '',
  ]


def project(processor: Mapping[tuple[str, int], float], what: str) -> None:
  """Prints the processors that rates of updates need for their batches.

  An update takes one batch. The processors are those of the batches only: the thread
  that sends updates to the GPU needs one more.

  Args:
    processor: Seconds of processor time a batch, by game and batch size.
    what: Description of the batches.
  """
  measuring.table(
    [
      f'processors for batches ({what})',
      'batches/s a processor',
      *(f'{updates:,} updates/s' for updates in UPDATES),
    ],
    [
      [
        f'{game}, {size}',
        f'{1 / seconds:,.0f}',
        *(str(math.ceil(updates * seconds)) for updates in UPDATES),
      ]
      for (game, size), seconds in processor.items()
    ],
  )


def _name(directory: str) -> str:
  """Returns the last two parts of a path, such as `Pong-tiled/store`."""
  return os.sep.join(os.path.abspath(directory).split(os.sep)[-2:])


def main() -> None:
  """Makes the stores, unless some are given, and prints the tables."""
  parser = measuring.parser(__doc__)
  parser.add_argument(
    '--stores', nargs='+', help='stores to draw from, of Atari frames'
  )
  arguments = parser.parse_args()
  logging.set_verbosity(logging.ERROR)
  if arguments.stores:
    table({_name(path): path for path in arguments.stores})
  else:
    table(stores())


if __name__ == '__main__':
  main()
