"""Tests of PNG frames, against OpenCV and a filter-by-filter encoder."""

import concurrent.futures
import struct
import zlib

import cv2
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from batch_rl.dataset.imports import png_frames, png_kernel
from batch_rl.tests import interchange_runs

SIZE = 84
# Compression level, strategy and size of the IDAT chunks of the encoder below.
SETTINGS = st.tuples(
  st.integers(0, 9), st.integers(0, 4), st.sampled_from([1 << 20, 1000])
)


def chunk(kind, data):
  body = kind + data
  return (
    struct.pack('>I', len(data)) + body + struct.pack('>I', zlib.crc32(body))
  )


def header(width=SIZE, height=SIZE, *rest):
  values = width, height, *(rest or (8, 0, 0, 0, 0))
  return chunk(b'IHDR', struct.pack('>IIBBBBB', *values))


def predict(kind, left, up, corner):
  """Returns the prediction of a filter, as in the specification."""
  if kind == 4:
    target = left + up - corner
    return min((left, up, corner), key=lambda value: abs(target - value))
  return (0, left, up, (left + up) // 2)[kind]


def filtered(frame, kinds):
  """Filters each row of a frame in the given way."""
  padded = np.pad(frame.astype(int), ((1, 0), (1, 0)))
  rows = bytearray()
  for y, kind in enumerate(kinds, 1):
    rows.append(kind)
    for x in range(1, len(padded[0])):
      left, up = padded[y, x - 1], padded[y - 1, x]
      value = padded[y, x] - predict(kind, left, up, padded[y - 1, x - 1])
      rows.append(value & 255)
  return bytes(rows)


def encode(rows, level=6, strategy=0, chunk_size=1 << 20, extra=b'', head=None):
  """Returns filtered rows as PNG, with `extra` chunks before the pixels."""
  packer = zlib.compressobj(level, strategy=strategy)
  data = packer.compress(rows) + packer.flush()
  parts = [data[i : i + chunk_size] for i in range(0, len(data), chunk_size)]
  return (
    b'\x89PNG\r\n\x1a\n'
    + (head or header())
    + extra
    + b''.join(chunk(b'IDAT', part) for part in parts)
    + chunk(b'IEND', b'')
  )


def flipped(data, at):
  return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]


def decode(encoded):
  frames = png_frames.PngFrames('an episode', encoded)
  out = np.empty((len(encoded), SIZE, SIZE), np.uint8)
  frames.decode(0, len(encoded), out)
  return out


def with_kernel(encoded):
  """Returns the frame that the compiled decoder makes, or None."""
  out = np.zeros((1, SIZE, SIZE), np.uint8)
  done = png_kernel.decode(
    np.frombuffer(encoded, np.uint8),
    np.array([len(encoded)]),
    0,
    png_kernel.functions(),
    *png_kernel.workspace(),
    out,
  )
  return out[0] if done else None


@st.composite
def made_frames(draw):
  """A frame between flat and noise, and the filters of its rows."""
  rng = np.random.default_rng(draw(st.integers(0, 2**32)))
  noise = draw(st.integers(1, 256))
  frame = rng.integers(0, noise, (SIZE, SIZE)) + np.arange(SIZE)
  kinds = rng.choice(draw(st.lists(st.integers(0, 4), min_size=1)), SIZE)
  return frame.astype(np.uint8), kinds.tolist()


@settings(max_examples=30, deadline=None)
@given(made_frames(), SETTINGS)
def test_every_filter_and_compression(made, how):
  frame, kinds = made
  data = encode(filtered(frame, kinds), *how)
  np.testing.assert_array_equal(decode([data])[0], frame)
  np.testing.assert_array_equal(png_frames.decode_image(data), frame)
  if how[2] > 1000:  # One IDAT.
    np.testing.assert_array_equal(with_kernel(data), frame)


@settings(max_examples=80, deadline=None)
@given(made_frames(), st.data())
def test_damaged_images_are_refused_or_decoded_as_without_damage(made, draw):
  """The decoder skips the checksums of chunks, not that of the pixels."""
  frame, kinds = made
  data = bytearray(encode(filtered(frame, kinds)))
  for _ in range(draw.draw(st.integers(1, 3))):
    at = draw.draw(st.integers(0, len(data) - 1))
    data[at] ^= draw.draw(st.integers(1, 255))
  found = with_kernel(bytes(data[: draw.draw(st.integers(0, len(data)))]))
  assert found is None or (found == frame).all()


@settings(max_examples=20, deadline=None)
@given(made_frames(), st.sampled_from([b'IHDR', b'IDAT', b'IEND']))
def test_damaged_checksums_of_chunks_are_passed_over(made, kind):
  frame, kinds = made
  data = bytearray(encode(filtered(frame, kinds)))
  at = data.index(kind)
  data[at + 4 + int.from_bytes(data[at - 4 : at], 'big')] ^= 1
  np.testing.assert_array_equal(with_kernel(bytes(data)), frame)


@pytest.fixture(scope='module')
def sample():
  return interchange_runs.sample_rows(40)[0]


def test_any_part_and_views_of_bytes(sample):
  data = [png_frames.encode_png(f) for f in sample]
  assert with_kernel(data[0]) is not None  # not the slow way
  frames = png_frames.PngFrames('an episode', [memoryview(d) for d in data])
  assert len(frames) == 40
  out = np.empty((40, SIZE, SIZE), np.uint8)

  def part(start):
    frames.decode(start, start + 5, out[start : start + 5])

  with concurrent.futures.ThreadPoolExecutor(4) as pool:
    list(pool.map(part, range(0, 40, 5)))
  np.testing.assert_array_equal(out, sample)
  frames.decode(7, 7, out[:0])
  for wrong in (out[:9], out[:, :40], out[::2], np.empty((8, SIZE, SIZE))):
    with pytest.raises(ValueError, match='frames do not fit into'):
      frames.decode(0, 8, wrong)


def test_optional_chunks_are_skipped(sample):
  extra = chunk(b'gAMA', struct.pack('>I', 45455)) + chunk(b'sBIT', b'\x08')
  data = encode(filtered(sample[0], [1] * SIZE), extra=extra)
  np.testing.assert_array_equal(with_kernel(data), sample[0])


def test_frames_of_another_kind_are_left_to_opencv(sample):
  rows = filtered(sample[0], [0] * SIZE)
  palette = chunk(b'PLTE', b'\x10\x20\x30')
  for data in (
    encode(rows, chunk_size=50),
    encode(rows, extra=palette),
    png_frames.encode_png(sample[1][:40]),
  ):
    assert with_kernel(data) is None
  mixed = [
    png_frames.encode_png(sample[0]),
    encode(rows, chunk_size=50),
    png_frames.encode_png(sample[1]),
    encode(rows, chunk_size=50),
  ]
  np.testing.assert_array_equal(decode(mixed), sample[[0, 0, 1, 0]])


def test_other_images_are_refused_by_their_number(sample):
  good = png_frames.encode_png(sample[0])
  rows = filtered(sample[0], [0] * SIZE)
  color = cv2.imencode('.png', np.zeros((SIZE, SIZE, 3), np.uint8))[1].tobytes()
  deep = cv2.imencode('.png', np.zeros((SIZE, SIZE), np.uint16))[1].tobytes()
  for bad in (
    color,
    deep,
    png_frames.encode_png(sample[0][:, :40]),
    good[:-30],
    flipped(good, good.index(b'IDAT') + 9),
    flipped(good, len(good) - 17),  # the checksum of the pixels
    b'',
    encode(rows[:-85]),
    encode(rows[:85] + b'\x05' + rows[86:]),
    encode(rows, head=header(1 << 30, 1 << 30)),
    cv2.imencode('.jpg', sample[0])[1].tobytes(),
  ):
    with pytest.raises(
      ValueError, match='frame 1 of an episode is not an 84 x 84'
    ):
      decode([good, bad, good])


def test_without_the_compiled_decoder(sample, monkeypatch):
  monkeypatch.setattr(png_frames, '_addresses', lambda: None)
  encoded = [png_frames.encode_png(f) for f in sample[:5]]
  np.testing.assert_array_equal(decode(encoded), sample[:5])
  with pytest.raises(ValueError, match='frame 2 of an episode'):
    decode([*encoded[:2], b'no image'])
