"""The choice of the store's compression: candidates on real frames, one thread.

  python -um benchmarks.codecs          # two minutes

The frames come from the logs of `benchmarks/logs.py`, where a scripted player stands
for a trained agent, and from `data/Pong/1`, the experience of a learning DQN. Each
candidate compresses 30,000 frames spread over a log: bytes a frame and speed. Then all
candidates in turn draw the same random batches of 32 windows of 5 frames: ms, median and
10th percentile. Dictionaries are trained like the store's, on the first 1,000 frames of
each shard. "lz4 package" is LZ4 through the package's Python interface with the store's
dictionary; "ours" is `batch_rl.dataset.store.lz4_blocks`.
"""

import collections
import functools
import os
import time
from collections.abc import Callable

import numpy as np
import tqdm.auto as tqdm
import zstandard

from batch_rl.dataset.shards import shard_files, shard_reader, stitching
from batch_rl.dataset.store import compression_dictionary, lz4_blocks
from benchmarks import logs, measuring

try:
  import blosc2
except ImportError:
  blosc2 = None
import lz4.block

BATCH, WINDOW, FRAME = 32, 5, 84 * 84
ROWS, STRETCH = 30_000, 1000
ROUNDS = 100
DRAWN = ROWS - 100  # windows and their blocks end before the last row
SAMPLE = os.path.join('data', 'Pong', '1', 'replay_logs')

Windows = Callable[[np.ndarray], np.ndarray]


class Blocks:
  """Frames compressed in blocks of a fixed number of rows.

  Attributes:
    parts: Compressed blocks.
    bytes_a_frame: Mean compressed size of a frame in bytes.
    speed: Compression speed in MB/s of raw frames.
  """

  def __init__(self, frames: np.ndarray, rows: int, compress) -> None:
    self.rows = rows
    size = rows * FRAME
    data = memoryview(frames.reshape(-1))
    start = time.perf_counter()
    self.parts = [
      bytes(compress(data[at : at + size])) for at in range(0, len(data), size)
    ]
    self.speed = len(data) / 1e6 / (time.perf_counter() - start)
    self.bytes_a_frame = sum(map(len, self.parts)) / len(frames)
    self.offsets = np.cumsum([0, *map(len, self.parts)])
    self.joined = b''.join(self.parts)

  def loop(self, decompress, rows: np.ndarray) -> np.ndarray:
    """Returns windows, decoded block by block."""
    found = []
    for row in rows.tolist():
      block, skip = divmod(row, self.rows)
      needed = skip + WINDOW
      while needed > 0:
        data = memoryview(decompress(self.parts[block]))
        found.append(data[skip * FRAME : needed * FRAME])
        block, skip, needed = block + 1, 0, needed - self.rows
    return _frames(b''.join(found))

  def at_once(self, decompressor, rows: np.ndarray) -> np.ndarray:
    """Returns windows, decoded by zstd's function for many blocks."""
    first, skip = np.divmod(rows, self.rows)
    most = (WINDOW + self.rows - 2) // self.rows + 1
    blocks = (first[:, None] + np.arange(most)).ravel()
    spans = np.stack(
      [self.offsets[blocks], self.offsets[blocks + 1] - self.offsets[blocks]], 1
    )
    out = decompressor.multi_decompress_to_buffer(
      zstandard.BufferWithSegments(self.joined, spans.astype('<u8').tobytes()),
      decompressed_sizes=np.full(len(blocks), self.rows * FRAME, '<u8'),
    )
    frames = np.frombuffer(b''.join(list(out)), np.uint8)
    at = np.arange(len(rows)) * most * self.rows + skip
    return frames.reshape(-1, FRAME)[at[:, None] + np.arange(WINDOW)]

  def in_place(self, decode, rows: np.ndarray) -> np.ndarray:
    """Returns windows, decoded in place as in `Store.windows`."""
    size, wanted = self.rows * FRAME, WINDOW * FRAME
    before = size - FRAME
    out = np.empty(before + len(rows) * wanted, np.uint8)
    target = out.ctypes.data + len(out)
    source = np.frombuffer(self.joined, np.uint8).ctypes.data
    first, skip = np.divmod(rows[::-1], self.rows)
    table = self.offsets[first[:, None] + np.arange(3)].tolist()
    for (a, b, c), begin in zip(table, (skip * FRAME).tolist(), strict=True):
      target -= wanted
      end = begin + wanted
      part = min(end, size)
      decode(source + a, b - a, target - begin, part)
      if end > size:
        decode(source + b, c - b, target - begin + part, end - size)
    return _frames(out[before:])


def _frames(data) -> np.ndarray:
  return np.frombuffer(data, np.uint8).reshape(BATCH, WINDOW, FRAME)


def candidates(
  frames: np.ndarray, runs: list[np.ndarray]
) -> dict[str, tuple[float, float, Windows | None]]:
  """Compresses frames, uint8 (n, 7056), with every candidate.

  Returns:
    By name: bytes a frame, compression speed in MB/s (0 without compression), and a
    function from rows to windows.
  """
  found: dict[str, tuple[float, float, Windows | None]] = {
    'raw NumPy gather': (
      FRAME,
      0,
      lambda rows: frames[rows[:, None] + np.arange(WINDOW)],
    )
  }

  def add(name, blocks, method=None, decode=None):
    windows = method and functools.partial(method, blocks, decode)
    found[name] = blocks.bytes_a_frame, blocks.speed, windows

  # Training on single frames works better than on blocks, for any block size.
  samples = [frame.tobytes() for run in runs for frame in run]
  dictionary = zstandard.train_dictionary(112 << 10, samples)
  dictionary.precompute_compress(level=3)
  compressor = zstandard.ZstdCompressor(
    level=3, dict_data=dictionary, write_dict_id=False
  )
  decompressor = zstandard.ZstdDecompressor(dict_data=dictionary)
  for rows in (8, 4, 2, 1):
    blocks = Blocks(frames, rows, compressor.compress)
    name = f'zstd 3, dictionary, blocks of {rows}'
    add(name, blocks, Blocks.loop, decompressor.decompress)
    if rows == 4:
      add(f'{name}, at once', blocks, Blocks.at_once, decompressor)
  blocks = Blocks(frames, 8, zstandard.ZstdCompressor(level=3).compress)
  decompress = zstandard.ZstdDecompressor().decompress
  add('zstd 3, no dictionary, blocks of 8', blocks, Blocks.loop, decompress)
  found['blosc2, zstd 3, blocks of 8'] = _blosc2(frames)

  shared = compression_dictionary.train(runs)
  for rows in (4, 8, 12):
    compress = functools.partial(
      lz4.block.compress,
      mode='high_compression',
      compression=5,
      store_size=False,
      dict=shared,
    )
    decompress = functools.partial(
      lz4.block.decompress, uncompressed_size=rows * FRAME, dict=shared
    )
    blocks = Blocks(frames, rows, compress)
    add(
      f'lz4 package, level 5, blocks of {rows}', blocks, Blocks.loop, decompress
    )
  for rows, level in ((8, 5), (12, 5), (16, 5), (12, 4), (12, 6), (12, 9)):
    blocks = Blocks(frames, rows, lz4_blocks.compressor(shared, level))
    decode = lz4_blocks.decoder(shared, rows * FRAME)
    add(
      f'ours, level {level}, blocks of {rows}', blocks, Blocks.in_place, decode
    )
  return found


def _blosc2(frames: np.ndarray) -> tuple[float, float, Windows | None]:
  if blosc2 is None:
    return 0, 0, None
  start = time.perf_counter()
  array = blosc2.asarray(
    frames,
    chunks=(1024, FRAME),
    blocks=(8, FRAME),
    # Blosc's level 2 is zstd's level 3.
    cparams={
      'codec': blosc2.Codec.ZSTD,
      'clevel': 2,
      'filters': [blosc2.Filter.NOFILTER],
      'nthreads': 1,
    },
    dparams={'nthreads': 1},
  )
  speed = frames.nbytes / 1e6 / (time.perf_counter() - start)

  def windows(rows):
    return np.stack([array[row : row + WINDOW] for row in rows.tolist()])

  return array.schunk.cbytes / len(frames), speed, windows


def read(data_dir: str) -> tuple[np.ndarray, list[np.ndarray]]:
  """Returns 30,000 frames of a run, (30,000, 7056), and the dictionary's frames."""
  parts = []
  for place in stitching.place(data_dir, shard_files.list_suffixes(data_dir))[
    0
  ]:
    frames = shard_reader.read_shard(data_dir, place.suffix).columns[
      'observation'
    ]
    order = (place.start + np.arange(place.rows)) % place.capacity
    parts.append(frames.reshape(-1, FRAME)[order])
  runs = [part[:STRETCH] for part in parts]
  frames = np.concatenate(parts)
  starts = np.linspace(0, len(frames) - STRETCH, ROWS // STRETCH).astype(int)
  return frames[(starts[:, None] + np.arange(STRETCH)).ravel()], runs


def main() -> None:
  """Prints three tables with a column for each log."""
  sources = {
    f'{game}, {player}': (game, player) for game, player in logs.LOGS
  } | {'Pong, learning DQN': None}
  sizes, drawing, packing = (collections.defaultdict(list) for _ in range(3))
  for log in tqdm.tqdm(sources.values()):
    found = candidates(*read(SAMPLE if log is None else logs.make(*log)))
    random = np.random.default_rng(0)
    times = measuring.interleave(
      {name: windows for name, (_, _, windows) in found.items() if windows},
      ROUNDS,
      arguments=lambda random=random: [random.integers(DRAWN, size=BATCH)],
    )
    for name, (size, speed, windows) in found.items():
      sizes[name].append(f'{size:.1f}' if size else '-')
      drawing[name].append(measuring.ms(times[name]) if windows else '-')
      packing[name].append(f'{speed:.0f}' if speed else '-')
  for what, cells in (
    ('Bytes a frame', sizes),
    ('ms for a batch of 32 windows: median (10th percentile)', drawing),
    ('Compression, MB/s of frames', packing),
  ):
    print(f'{what}:\n')
    measuring.table(
      ['', *sources], [[name, *texts] for name, texts in cells.items()]
    )
  if blosc2 is None:
    print('blosc2 is not installed (pip install blosc2); its row is empty.')


if __name__ == '__main__':
  main()
