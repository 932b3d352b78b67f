"""Frames are read from the right rows, and only images are accepted."""

import numpy as np
import pytest

from batch_rl.dataset.checks import frame_images
from batch_rl.dataset.shards import replay_log
from batch_rl.tests import shards
from batch_rl.tests.dataset.checks.run_files import compute


def test_frames_are_those_of_the_rows(tmp_path):
  shards.write_run(tmp_path / 'replay_logs', [30] * 6, 40)
  statistics = compute(tmp_path)
  rows = shards.with_padding(shards.make_episodes([30] * 6), 4)
  frames = frame_images.read_frames(statistics, np.arange(len(rows)))
  assert frames[:, 0, 0].tolist() == [row.frame for row in rows]
  some = np.array([0, 38, 39, 40, 41, 120, len(rows) - 1])
  np.testing.assert_array_equal(
    frame_images.read_frames(statistics, some), frames[some]
  )


def read_images(directory, dtype, *frames):
  """Logs frames and reads them as images."""
  shape = np.shape(frames[0])
  with replay_log.ReplayLog(
    str(directory), shape, dtype, 40, stack_size=1
  ) as log:
    for frame in frames:
      log.add(np.asarray(frame, dtype), 0, 0.0, False)
  rows = np.arange(len(frames))
  return frame_images.read_images(compute(directory), rows)


def test_values_are_scaled_to_gray_levels(tmp_path):
  images = read_images(tmp_path, np.float32, np.eye(3) * -2, np.eye(3) * 6)
  assert images.dtype == np.uint8
  assert images[:, 0, 0].tolist() == [0, 255]
  assert images[:, 0, 1].tolist() == [63, 63]


@pytest.mark.parametrize('dtype', [np.uint8, np.bool_])
def test_binary_frames_are_black_and_white(tmp_path, dtype):
  images = read_images(tmp_path, dtype, np.zeros((3, 3)), np.eye(3))
  assert np.unique(images[0]).tolist() == [0]
  np.testing.assert_array_equal(images[1], np.eye(3) * 255)


def test_gray_levels_and_rgb_stay_as_they_are(tmp_path):
  gray, rgb = np.eye(3, dtype=np.uint8) * 9, np.full((3, 3, 3), 7, np.uint8)
  for name, frame in (('gray', gray), ('rgb', rgb)):
    (image,) = read_images(tmp_path / name, np.uint8, frame)
    np.testing.assert_array_equal(image, frame)


def test_planes_have_distinct_colors(tmp_path):
  planes = np.zeros((4, 5, 10), np.uint8)
  for plane in range(10):
    planes[plane // 5, plane % 5, plane] = 2
  (image,) = read_images(tmp_path, np.uint8, planes)
  assert len(np.unique(image[:2].reshape(-1, 3), axis=0)) == 10
  assert image[:2].max(axis=2).min() > 100 and not image[2:].any()


def test_other_observations_than_images_are_refused(tmp_path):
  for number, shape in enumerate(((4,), (), (4, 1), (5, 5, 11), (3, 8, 8, 3))):
    with pytest.raises(ValueError, match='float32 .* are not images') as error:
      read_images(tmp_path / str(number), np.float32, np.ones(shape))
    assert f'float32 {shape} are' in str(error.value)
