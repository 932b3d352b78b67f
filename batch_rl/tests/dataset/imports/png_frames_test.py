import struct
import zlib

import cv2
import numpy as np
import pytest

from batch_rl.dataset.imports import png_frames
from batch_rl.tests import interchange_runs
from batch_rl.tests.dataset.checks.run_files import flipped


@pytest.fixture(scope='module')
def sample():
  return interchange_runs.sample_rows(10)[0]


def test_any_part_is_decoded(sample):
  images = [png_frames.encode_png(frame) for frame in sample]
  frames = png_frames.PngFrames('an episode', images)
  assert len(frames) == 10
  found = [frames[number] for number in range(3, 8)]
  np.testing.assert_array_equal(found, sample[3:8])


def test_other_images_are_refused_by_their_number(sample, capfd):
  good = png_frames.encode_png(sample[0])
  at = good.index(b'IDAT')
  lines = zlib.decompress(good[at + 4 : -16])
  packed = zlib.compress(lines)

  def image(*header, pixels=packed):
    """Returns an image whose chunks have their checksums."""
    header = struct.pack('>IIBBBBB', *header or (84, 84, 8, 0, 0, 0, 0))
    chunks = b'IHDR' + header, b'IDAT' + pixels, b'IEND'
    return good[:8] + b''.join(
      struct.pack('>I', len(c) - 4) + c + struct.pack('>I', zlib.crc32(c))
      for c in chunks
    )

  assert png_frames.PngFrames('an episode', [image()])[0].any()  # is well
  jpeg = cv2.imencode('.jpg', sample[0])[1].tobytes()
  color = cv2.imencode('.png', np.zeros((84, 84, 3), np.uint8))[1].tobytes()
  sizes = (1 << 30, 1 << 30), (40, 84), (84, 40)
  # Of 16 bits, of 4, and interlaced.
  kinds = (16, 0, 0, 0, 0), (4, 0, 0, 0, 0), (8, 0, 0, 0, 1)
  wrong_lines = lines[:-1], lines + b'0', b'\5' + lines[1:]
  damaged = packed[:-4], flipped(packed, -1), *map(zlib.compress, wrong_lines)
  cases = {
    'not a PNG': [b'', jpeg],
    'a PNG of another kind': [color]
    + [image(*size, 8, 0, 0, 0, 0) for size in sizes]
    + [image(84, 84, *kind) for kind in kinds],
    'a damaged PNG': [good[:-30]]
    + [flipped(good, place) for place in (20, at + 9, -17)]
    + [image(pixels=pixels) for pixels in damaged],
  }
  for message, bad in ((m, bad) for m in cases for bad in cases[m]):
    frames = png_frames.PngFrames('an episode', [good, bad, good])
    with pytest.raises(ValueError, match=f'frame 1 of an episode is {message}'):
      list(frames)
  assert capfd.readouterr() == ('', '')  # libpng prints, too
