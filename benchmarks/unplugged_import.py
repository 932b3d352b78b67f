"""Import of RL Unplugged's files, beside TFDS and beside the decoding alone.

  python -um benchmarks.unplugged_import [--game Pong] [--files 4] [--processors 2] [--quick]

The files are made from a log of a random player (`benchmarks/tiles.py`), some 60,000 rows
each, and kept. The first time takes a minute or two more. In turns, and in processes of
their own on the same processors:

- the limit: files are inflated by isal, and their frames, whose places are known, decoded
  by OpenCV in as many threads as there are processors. Nothing is checked or kept;
- import: `python -m batch_rl.dataset import` to a store;
- TFDS: `download_and_prepare` of `rlu_atari_checkpoints_ordered` for the first file, from
  disk. It needs no Beam for that. The frames stay PNGs;
- TFDS, one pass: reading what TFDS has prepared, with the frames decoded.

The rates are medians of the rounds, without the start of the programs. The column CPU is
processor time, which other programs on the machine disturb less. Peak memory is that of the
process, libraries included; bytes are those of its read and write calls. The last column is
the time of a run of 50 million rows.
"""

import concurrent.futures
import functools
import itertools
import multiprocessing
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import tqdm

from benchmarks import logs, measuring, processes, tiles

DIRECTORY = os.path.join(logs.DIRECTORY, 'unplugged')
_RUN_ROWS = 50_000_000
_RUN = 1
_FRAMES_PER_TASK = 128
_PADDING = 3  # Rows of padding before each episode of a log.


def make(game: str, count: int) -> list[str]:
  """Returns the paths of a run's first files; makes those that are missing."""
  from batch_rl.dataset.unplugged import file_names

  folder = os.path.join(DIRECTORY, game)
  names = [
    file_names.format(_RUN, number, file_names.count_of(game))
    for number in range(count)
  ]
  paths = [os.path.join(folder, name) for name in names]
  missing = [i for i in range(count) if not os.path.exists(paths[i])]
  if missing:
    logs.make(game)
    context = multiprocessing.get_context('spawn')
    with concurrent.futures.ProcessPoolExecutor(2, context) as pool:
      waiting = [pool.submit(_write, game, i, paths[i]) for i in missing]
      done = concurrent.futures.as_completed(waiting)
      for future in tqdm.tqdm(done, f'making {folder}', len(waiting)):
        future.result()
  return paths


def _write(game: str, number: int, path: str) -> None:
  from batch_rl.tests.dataset.unplugged import unplugged_files

  unplugged_files.write_file(path + '.tmp', _episodes(game, number), number)
  os.replace(path + '.tmp', path)


def _episodes(game: str, number: int) -> Iterator[tuple[np.ndarray, ...]]:
  """Yields the episodes of a tile: frames, actions and rewards."""
  made = tiles.Tiles(game)
  columns = {}
  for name in ('observation', 'action', 'reward', 'terminal'):
    parts = made.read(name, number * made.rows, (number + 1) * made.rows)
    first = next(parts)
    column = np.empty((made.rows, *first.shape[1:]), first.dtype)
    filled = 0
    for part in itertools.chain([first], parts):
      column[filled : filled + len(part)] = part
      filled += len(part)
    columns[name] = column
  ends = np.flatnonzero(columns['terminal']) + 1
  for begin, end in zip([0, *ends[:-1]], ends, strict=True):
    rows = slice(begin + _PADDING, end)
    yield tuple(columns[n][rows] for n in ('observation', 'action', 'reward'))


# --- in processes of their own ------------------------------------------------


def _start(
  name: str, processors: int, paths: list[str], scratch: str
) -> Callable[[], dict]:
  """Prepares a measurement; returns the function that measures once."""
  os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:processors])
  return functools.partial(_measure, _MEASUREMENTS[name](paths, scratch))


def _measure(turn: Callable[[], int]) -> dict[str, float]:
  before, start, cpu = _io(), time.perf_counter(), time.process_time()
  rows = turn()
  seconds, cpu = time.perf_counter() - start, time.process_time() - cpu
  read, written = (_io() - before).tolist()
  return {
    'rows': rows,
    'seconds': seconds,
    'cpu': cpu,
    'read': read,
    'written': written,
    'peak': processes.memory('VmHWM'),
  }


def _io() -> np.ndarray:
  """Returns the bytes that this process has read and written so far."""
  with open('/proc/self/io', encoding='ascii') as file:
    fields = dict(line.split(':') for line in file)
  return np.array([int(fields['rchar']), int(fields['wchar'])])


def _limit(paths: list[str], scratch: str) -> Callable[[], int]:
  """Inflates and decodes, and does nothing else."""
  import cv2
  from isal import igzip

  places = [_places(path) for path in paths]

  def decode(data, part):
    for start, stop in part:
      image = np.frombuffer(data, np.uint8, stop - start, start)
      cv2.imdecode(image, cv2.IMREAD_UNCHANGED)

  def turn():
    threads = len(os.sched_getaffinity(0))
    with concurrent.futures.ThreadPoolExecutor(threads) as pool:
      waiting = []
      for path, found in zip(paths, places, strict=True):
        with open(path, 'rb') as file:
          data = igzip.decompress(file.read())
        waiting += [
          pool.submit(decode, data, found[i : i + _FRAMES_PER_TASK])
          for i in range(0, len(found), _FRAMES_PER_TASK)
        ]
      for future in waiting:
        future.result()
    return sum(map(len, places))

  return turn


def _places(path: str) -> list[tuple[int, int]]:
  """Returns the start and end of each PNG in the inflated file."""
  from isal import igzip

  with open(path, 'rb') as file:
    data = igzip.decompress(file.read())
  found, at = [], 0
  while (start := data.find(b'\x89PNG\r\n\x1a\n', at)) >= 0:
    at = data.index(b'IEND', start) + 8
    found.append((start, at))
  return found


def _import(paths: list[str], scratch: str) -> Callable[[], int]:
  from batch_rl.dataset.imports import store_import
  from batch_rl.dataset.unplugged import reader

  opened = reader.UnpluggedReader(
    os.path.dirname(paths[0]), checkpoints=f'0-{len(paths) - 1}'
  )
  frames: Any = next(opened.read(opened.parts[0])).frames
  next(iter(frames))  # loads OpenCV
  directory = os.path.join(scratch, 'store')
  return lambda: store_import.import_parts(opened, directory)['steps']


def _tfds(paths: list[str], scratch: str) -> Callable[[], int]:
  """Prepares the first file as TFDS does."""
  rows = len(_places(paths[0]))
  builder = _builder(paths[0], scratch)

  def turn():
    builder.download_and_prepare()
    return rows

  return turn


def _tfds_pass(paths: list[str], scratch: str) -> Callable[[], int]:
  """Reads what TFDS has prepared."""
  builder = _builder(paths[0], scratch)
  builder.download_and_prepare()

  def turn():
    rows = 0
    for episode in builder.as_dataset(split='checkpoint_00'):
      for steps in episode['steps'].batch(_FRAMES_PER_TASK):
        rows += len(steps['action'])
    return rows

  return turn


def _builder(path: str, scratch: str) -> Any:
  """Returns TFDS's builder for one local file."""
  import tensorflow as tf  # noqa: F401  (TFDS would, while the time is taken)
  import tensorflow_datasets as tfds
  from tensorflow_datasets.rl_unplugged.rlu_atari_checkpoints_ordered import (
    rlu_atari_checkpoints_ordered as rlu,
  )

  class LocalFiles(rlu.RluAtariCheckpointsOrdered, skip_registration=True):
    name = 'rlu_atari_checkpoints_ordered'
    pkg_dir_path = None

    def get_splits(self):
      return {'checkpoint_00': self._generate_examples({'file_paths': path})}

  tfds.disable_progress_bar()
  game = os.path.basename(os.path.dirname(path))
  return LocalFiles(data_dir=scratch, config=f'{game}_run_{_RUN}')


_MEASUREMENTS = {
  'limit: gunzip and OpenCV': _limit,
  'import to a store': _import,
  'TFDS: download_and_prepare': _tfds,
  'TFDS, one pass: frames decoded': _tfds_pass,
}


# --- the table ------------------------------------------------------------------


def _row(what: str, turns: list[dict], limit: float) -> list[str]:
  rate = _rate(turns)
  last = turns[-1]
  return [
    what,
    f'{last["rows"]:,}',
    f'{rate:,.0f}',
    f'{rate / limit:.0%}',
    f'{np.median([turn["cpu"] for turn in turns]) / last["rows"] * 1e6:.0f} us',
    f'{max(turn["peak"] for turn in turns) / 1e6:,.0f}',
    f'{last["read"] / 1e6:,.0f}',
    f'{last["written"] / 1e6:,.0f}',
    f'{_RUN_ROWS / rate / 3600:.2f} h',
  ]


def _rate(turns: list[dict]) -> float:
  return float(np.median([turn['rows'] / turn['seconds'] for turn in turns]))


def main() -> None:
  """Makes the files and prints the table."""
  parser = measuring.parser(__doc__)
  parser.add_argument('--game', default='Pong')
  parser.add_argument('--files', type=int, default=1 if measuring.QUICK else 4)
  parser.add_argument('--processors', type=int, default=2)
  parser.add_argument('--rounds', type=int, default=1 if measuring.QUICK else 3)
  options = parser.parse_args()
  paths = make(options.game, options.files)
  size = sum(map(os.path.getsize, paths))
  print(
    f'{len(paths)} files of {options.game}, {size / 1e6:,.0f} MB', flush=True
  )
  turns: dict[str, list[dict]] = {name: [] for name in _MEASUREMENTS}
  for _ in range(options.rounds):
    for name, taken in turns.items():
      # A new process each time, because of its peak of memory.
      with (
        tempfile.TemporaryDirectory(dir=DIRECTORY) as scratch,
        measuring.apart(
          *(_start, name, options.processors, paths, scratch),
          TF_CPP_MIN_LOG_LEVEL='3',
        ) as measure,
      ):
        taken.append(measure())
  limit = _rate(turns['limit: gunzip and OpenCV'])
  measuring.table(
    [
      '',
      'rows',
      'rows/s',
      'of limit',
      'CPU',
      'peak MB',
      'MB read',
      'written',
      '50 M',
    ],
    [_row(name, taken, limit) for name, taken in turns.items()],
  )


if __name__ == '__main__':
  main()
