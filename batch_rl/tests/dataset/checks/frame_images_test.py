import numpy as np
import pytest

from batch_rl.dataset.checks import frame_images
from batch_rl.dataset.shards import replay_log
from batch_rl.dataset.store import frame_reading
from batch_rl.tests import shards
from batch_rl.tests.dataset.checks.run_files import compute


def test_frames_are_those_of_the_rows(tmp_path):
  shards.write_run(tmp_path / 'replay_logs', [30] * 6, 40)
  rows = shards.with_padding(shards.make_episodes([30] * 6), 4)
  chosen = np.array([0, 1, 37, 38, 39, 40, 41, 120, len(rows) - 1])
  frames = frame_reading.read_frames(compute(tmp_path).data, chosen)
  assert frames[:, 0, 0].tolist() == [rows[row].frame for row in chosen]


PLANES = 2 * np.eye(20, 10, dtype=np.uint8).reshape(4, 5, 10)
EYE = np.eye(3, dtype=np.uint8)
RGB = np.full((3, 3, 3), 7, np.uint8)


@pytest.mark.parametrize(
  'frames, expected',
  [
    # Values are scaled to gray levels; binary frames are black and white.
    (np.float32([EYE * -2.0, EYE * 6]), [63 - 63.0 * EYE, 63 + 192.0 * EYE]),
    (np.stack([0 * EYE, EYE]), [0 * EYE, 255 * EYE]),
    (EYE[None] > 0, [255 * EYE]),
    # Gray levels and RGB stay as they are.
    (9 * EYE[None], [9 * EYE]),
    (RGB[None], [RGB]),
    (PLANES[None], None),
  ],
)
def test_frames_as_images(tmp_path, frames, expected):
  with replay_log.ReplayLog(
    str(tmp_path), frames.shape[1:], frames.dtype, 40, stack_size=1
  ) as log:
    for frame in frames:
      log.add(frame, 0, 0.0, False)
  rows = np.arange(len(frames))
  images = frame_images.read_images(compute(tmp_path).data, rows)
  assert images.dtype == np.uint8
  if expected is not None:
    np.testing.assert_array_equal(images, expected)
    return
  # Planes have distinct colours.
  (image,) = images
  assert len(np.unique(image[:2].reshape(-1, 3), axis=0)) == 10
  assert image[:2].max(axis=2).min() > 100 and not image[2:].any()


@pytest.mark.parametrize('shape', [(4,), (), (4, 1), (5, 5, 11), (3, 8, 8, 3)])
def test_other_observations_than_images_are_refused(tmp_path, shape):
  with replay_log.ReplayLog(str(tmp_path), shape, np.float32, 40, 1) as log:
    log.add(np.ones(shape, np.float32), 0, 0.0, False)
  with pytest.raises(ValueError, match='not images') as error:
    frame_images.read_images(compute(tmp_path).data, np.arange(1))
  assert f'float32 {shape} are' in str(error.value)
