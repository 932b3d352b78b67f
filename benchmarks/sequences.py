"""Sequences as the Decision Transformer takes them: batches a second, and its dataset.

  python -um benchmarks.sequences [STORE] [--quick]

The script published with the Decision Transformer calls `sample_transition_batch` of a
replay memory for each step, with one index, and keeps each state as an array of its
own; batches are slices of these arrays. The calls are made to two memories with the same
rows: Dopamine's, whose frames are not compressed, and `FixedReplayBuffer`. All ways take
turns, and give the same sequences of the first rows of a run. They are compared with
each other before.

The script's dataset is made of fewer rows than its 500,000, and scaled.
"""

import batch_rl.agents  # noqa: F401  isort: skip  (before Dopamine)

import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from absl import logging

from batch_rl import dataset
from batch_rl.dataset.sampling import sequences
from batch_rl.fixed_replay.replay_memory import fixed_replay_buffer
from benchmarks import measuring, memories, processes

LENGTH, STACK_SIZE = 30, 4
SIZES = (64, 128)  # sequences in a batch
ROWS = 10_000  # of the run, for all ways
DATASET_ROWS = 500_000
ROUNDS = 5
IN_A_ROW = 10  # batches a round, of the ways that are fast
if measuring.QUICK:
  SIZES, ROWS, IN_A_ROW = (8,), 2000, 1
OURS, WHOLE, SLICES, DOPAMINE, FIXED = (
  'SequenceSampler',
  'SequenceSampler, drawn from the whole run',
  "slices of the script's arrays, once these are made",
  "a call for each step, Dopamine's memory",
  'a call for each step, FixedReplayBuffer',
)
TARGETS = {DOPAMINE: '10 x', FIXED: '10 x'}


class Script:
  """The part of the script that reads a replay memory.

  Args:
    memory: Replay memory.
    rows: Rows of the steps to read.
  """

  def __init__(self, memory: Any, rows: Sequence[int]):
    self.memory = memory
    before = processes.memory('Anonymous')
    start = time.perf_counter()
    self.states, self.actions, self.rewards = map(
      list, zip(*map(self.read, rows), strict=True)
    )
    self.seconds = time.perf_counter() - start
    self.bytes = processes.memory('Anonymous') - before
    self.place = {row: i for i, row in enumerate(rows)}

  def read(self, row: int) -> tuple[np.ndarray, int, float]:
    """Reads a step: its state, (4, 84, 84), action and reward."""
    state, action, reward, *_ = self.memory.sample_transition_batch(
      batch_size=1, indices=[row]
    )
    return state.transpose((0, 3, 1, 2))[0].copy(), action[0], reward[0]

  def by_calls(self, rows: np.ndarray) -> np.ndarray:
    """Returns the states of sequences, (n, length, 4, 84, 84), by a call a step."""
    states = np.zeros((*rows.shape, STACK_SIZE, 84, 84), np.uint8)
    for i, sequence in enumerate(rows.tolist()):
      for t, row in enumerate(sequence):
        if row >= 0:
          states[i, t] = self.read(row)[0]
    return states

  def by_slices(self, rows: np.ndarray) -> np.ndarray:
    """Returns the same from the arrays read before."""
    states = np.zeros((*rows.shape, STACK_SIZE, 84, 84), np.uint8)
    for i, sequence in enumerate(rows):
      last = self.place[int(sequence[-1])] + 1
      count = int((sequence >= 0).sum())
      states[i, len(sequence) - count :] = self.states[last - count : last]
    return states


def rates(run: dataset.LoggedRun) -> Script:
  """Prints the batches a second of all ways; returns the one with the script's arrays.

  Args:
    run: Run with at least `ROWS` rows.
  """
  subset = f'first_transitions({ROWS})'
  ours = run.sequences(LENGTH, STACK_SIZE, subset=subset, seed=0)
  whole = run.sequences(LENGTH, STACK_SIZE, seed=0)
  steps = ours.steps()
  count = int(steps[-1]) + 4  # Dopamine reads the next state, too
  fixed = fixed_replay_buffer.FixedReplayBuffer(
    run.store.data_dir, 0, (84, 84), STACK_SIZE, count, batch_size=1
  )
  dopamine = memories.dopamine_memory(run.store, count, batch_size=1)
  script = Script(dopamine, steps.tolist())
  other = Script(fixed, steps[:1].tolist())
  for sampler in (ours, whole):
    sampler.wait_until_compiled()
  check(ours, script, other)
  lines = []
  for size in SIZES:
    seconds = times(size, ours, whole, script, other)
    fast = np.median(seconds[OURS])
    for way, taken in seconds.items():
      lines.append(
        [
          f'{size}: {way}',
          f'{1 / np.median(taken):,.2f}',
          measuring.ms(taken),
          measuring.times(taken, fast),
          TARGETS.get(way, ''),
        ]
      )
  measuring.table(
    [
      f'batches of sequences: {LENGTH} steps, stacks of {STACK_SIZE}',
      'batches/s',
      'ms a batch',
      f'x the time of {OURS}',
      'target',
    ],
    lines,
  )
  return script


def check(
  ours: sequences.SequenceSampler, script: Script, other: Script
) -> None:
  """Checks that all ways give the same sequences."""
  batch = ours.batch(0, 8)
  for way in (script.by_slices, script.by_calls, other.by_calls):
    np.testing.assert_array_equal(batch.state, way(batch.rows))


def times(size, ours, whole, script, other) -> dict[str, np.ndarray]:
  """Returns the seconds a batch of each way."""
  numbers = iter(range(10**6))

  def some(sampler):
    for _ in range(IN_A_ROW):
      batch = sampler.batch(next(numbers), size)
    return batch

  def sliced():
    for _ in range(IN_A_ROW):
      script.by_slices(drawn())

  def drawn():
    last = ours.draw(next(numbers), size)
    steps = last[:, None] + np.arange(1 - LENGTH, 1)
    first = starts[np.searchsorted(starts, last, side='right') - 1]
    return np.where(steps >= first[:, None], steps, -1)

  # First steps of the trajectories, found once, as the script does.
  steps = ours.steps()
  starts = steps[np.diff(steps, prepend=-2) > 1]
  functions: dict[str, Callable[[], Any]] = {
    OURS: lambda: some(ours),
    WHOLE: lambda: some(whole),
    SLICES: sliced,
    DOPAMINE: lambda: script.by_calls(drawn()),
    FIXED: lambda: other.by_calls(drawn()),
  }
  taken = measuring.interleave(functions, ROUNDS)
  for way in (OURS, WHOLE, SLICES):
    taken[way] /= IN_A_ROW
  return taken


def datasets(directory: str, script: Script) -> None:
  """Prints the time and memory of a dataset of 500,000 transitions."""
  ours = measuring.in_new_process(processes.sequences, directory, LENGTH)
  scale = DATASET_ROWS / len(script.states)
  share = DATASET_ROWS / ours['rows']
  resident = max(ours['anonymous'], 0)
  measuring.table(
    [f'dataset of {DATASET_ROWS:,} transitions', 'seconds', 'GB'],
    [
      [
        f"the script, Dopamine's memory, from {len(script.states):,} (x {scale:.0f}), "
        'without the memory itself',
        f'{script.seconds * scale:,.0f}',
        f'{script.bytes * scale / 1e9:.2f}',
      ],
      [
        f'run opened, from {ours["rows"]:,} rows (x {share:.2g})',
        f'{ours["opened"] * share:.1f}',
        f'{ours["nbytes"] * share / 1e9:.3f}',
      ],
      [
        f'the same, as measured: all of its {ours["rows"]:,} rows; memory of the '
        'process, mapped files excluded',
        f'{ours["seconds"]:.1f}',
        f'{resident / 1e9:.3f}',
      ],
    ],
  )


def main() -> None:
  """Prints both tables."""
  parser = measuring.parser(__doc__)
  parser.add_argument(
    'store', nargs='?', default='data/Pong/1', help='run, or store'
  )
  directory = parser.parse_args().store
  logging.set_verbosity(logging.ERROR)
  script = rates(dataset.open(directory))
  datasets(directory, script)


if __name__ == '__main__':
  main()
