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


def test_other_observations_than_images_are_refused(tmp_path):
  log = replay_log.ReplayLog(str(tmp_path), (4,), np.float32, 40)
  log.add(np.ones(4), 1, 1.0, True)
  log.close()
  with pytest.raises(ValueError, match=r'float32 \(4,\) are not images'):
    frame_images.read_images(compute(tmp_path), np.array([3]))
