"""Tests of frames stored as PNG."""

import cv2
import numpy as np
import pytest

from batch_rl.dataset.imports import png_frames
from batch_rl.tests import interchange_runs


@pytest.fixture(scope='module')
def sample():
  return interchange_runs.sample_rows(10)[0]


def test_any_part_is_decoded(sample):
  frames = png_frames.PngFrames(
    'an episode', [png_frames.encode_png(frame) for frame in sample]
  )
  assert len(frames) == 10
  out = np.empty((5, 84, 84), np.uint8)
  frames.decode(3, 8, out)
  np.testing.assert_array_equal(out, sample[3:8])


def flipped(data, at):
  return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]


def test_other_images_are_refused_by_their_number(sample):
  good = png_frames.encode_png(sample[0])
  color = cv2.imencode('.png', np.zeros((84, 84, 3), np.uint8))[1].tobytes()
  deep = cv2.imencode('.png', np.zeros((84, 84), np.uint16))[1].tobytes()
  huge = (1 << 30).to_bytes(4, 'big')
  for bad in (
    b'',
    color,
    deep,
    png_frames.encode_png(sample[0][:, :40]),
    png_frames.encode_png(sample[0][:40]),
    good[:-30],
    flipped(good, good.index(b'IDAT') + 9),
    flipped(good, len(good) - 17),  # the checksum of the pixels
    good[:16] + huge + huge + good[24:],
    cv2.imencode('.jpg', sample[0])[1].tobytes(),
  ):
    frames = png_frames.PngFrames('an episode', [good, bad, good])
    with pytest.raises(ValueError, match='frame 1 of an episode'):
      frames.decode(0, 3, np.empty((3, 84, 84), np.uint8))
