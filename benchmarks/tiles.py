"""Runs of any size, made from the repeated, modified episodes of a log.

Row n of such a run is a function of the log and n. So several processes can write shards
in any order, without holding a whole shard in memory.
"""

import concurrent.futures
import functools
import gzip
import multiprocessing
import os
from collections.abc import Iterator

import numpy as np
import tqdm
from isal import igzip

from batch_rl.dataset.shards import shard_files
from batch_rl.utils import files
from benchmarks import logs

_CHUNK_ROWS = 1000
_DTYPES = {
  'observation': np.dtype(np.uint8),
  'action': np.dtype(np.int32),
  'reward': np.dtype(np.float32),
  'terminal': np.dtype(np.uint8),
}


class Tiles:
  """An endless run that repeats the complete episodes of a log.

  Each repetition (tile) starts with a random episode and modifies two small squares of
  its frames. Padding stays zero.
  """

  def __init__(self, game: str):
    log = logs.columns(game)
    ends = np.flatnonzero(log['terminal'])
    self.rows = int(ends[-1]) + 1
    self._log = {name: log[name][: self.rows] for name in shard_files.COLUMNS}
    self._starts = np.concatenate([[0], ends[:-1] + 1])
    self._padding = np.zeros(self.rows, bool)
    self._padding[self._starts[:, None] + np.arange(3)] = True

  def read(self, name: str, first: int, stop: int) -> Iterator[np.ndarray]:
    """Yields rows [first, stop) of a column; rows before 0 are zeros."""
    if first < 0:
      yield np.zeros_like(self._log[name][first:])
      first = 0
    while first < stop:
      tile, at = divmod(first, self.rows)
      count = min(_CHUNK_ROWS, stop - first, self.rows - at)
      random = np.random.default_rng(tile)
      rows = random.choice(self._starts) + at + np.arange(count)
      rows %= self.rows
      chunk = self._log[name][rows]
      if name == 'observation':
        real = ~self._padding[rows]
        for y, x, value in random.integers(1, 82, (2, 3)):
          chunk[real, y : y + 3, x : x + 3] += np.uint8(value)
      yield chunk
      first += count


def make(
  directory: str, game: str, shards: int, rows: int, slow: int = 0
) -> str:
  """Writes a run, two shards at a time; keeps existing shards.

  The last of several shards is half full.

  Args:
    directory: Directory of the run.
    game: Game of the log.
    shards: Number of shards.
    rows: Capacity of each shard's ring.
    slow: Number of shards to compress with zlib's level 6, as an agent's log is. The
      others use a level that is twenty times as fast.

  Returns:
    Directory of the shards.

  Raises:
    ValueError: If the directory holds another run.
  """
  about = {'game': game, 'shards': shards, 'rows': rows, 'slow': slow}
  path = os.path.join(directory, 'tiles.json')
  if (files.read_json(path) or about) != about:
    raise ValueError(f'{directory} holds a run other than {about}; delete it.')
  data_dir = os.path.join(directory, 'replay_logs')
  os.makedirs(data_dir, exist_ok=True)
  files.write_json(path, about)
  missing = [
    suffix
    for suffix in range(shards)
    if not os.path.exists(_path(data_dir, 'add_count', suffix))
  ]
  if not missing:
    return data_dir
  logs.make(game)
  with concurrent.futures.ProcessPoolExecutor(
    2, multiprocessing.get_context('spawn')
  ) as pool:
    waiting = [
      pool.submit(
        _write,
        data_dir,
        game,
        suffix,
        rows,
        rows // 2 if 0 < suffix == shards - 1 else rows - 1,
        suffix < slow,
      )
      for suffix in missing
    ]
    done = concurrent.futures.as_completed(waiting)
    for future in tqdm.tqdm(done, f'making {directory}', len(waiting)):
      future.result()
  return data_dir


_tiles = functools.cache(Tiles)


def _path(data_dir: str, name: str, suffix: int) -> str:
  return os.path.join(data_dir, shard_files.file_name(name, suffix))


def _write(
  data_dir: str, game: str, suffix: int, rows: int, cursor: int, slow: bool
) -> None:
  """Writes a shard whose ring was dumped at a cursor.

  Rows at or after the cursor belong to the previous lap.
  """
  tiles, first = _tiles(game), suffix * rows
  spans = (first, first + cursor), (first - rows + cursor, first)
  for name in shard_files.COLUMNS:
    path = _path(data_dir, name, suffix)
    frame = (84, 84) if name == 'observation' else ()
    with _open(path + '.tmp', slow) as file:
      np.lib.format.write_array_header_1_0(
        file,
        {
          'descr': _DTYPES[name].str,
          'fortran_order': False,
          'shape': (rows, *frame),
        },
      )
      for span in spans:
        for chunk in tiles.read(name, *span):
          file.write(np.ascontiguousarray(chunk, _DTYPES[name]))
    os.replace(path + '.tmp', path)
  full = cursor == rows - 1
  for name, value in (
    ('invalid_range', np.arange(cursor - 1, cursor + 4) % rows),
    ('add_count', np.array(first + cursor if full else cursor)),
  ):
    path = _path(data_dir, name, suffix)
    with gzip.open(path + '.tmp', 'wb') as file:
      np.save(file, value)
    os.replace(path + '.tmp', path)


def _open(path: str, slow: bool):
  return gzip.open(path, 'wb', 6) if slow else igzip.open(path, 'wb', 1)
