import os
import resource

import cv2
import numpy as np
import pytest
from PIL import Image

from batch_rl.dataset.checks import videos
from batch_rl.dataset.store import frame_reading
from batch_rl.tests import shards
from batch_rl.tests.dataset.checks.run_files import compute, limited
from batch_rl.tests.interchange_runs import SAMPLE


def test_a_video_has_the_frames_of_its_episode(tmp_path):
  sample = compute(SAMPLE)
  shortest = int(np.argmin(sample.lengths))
  paths = [str(tmp_path / f'episode{ending}') for ending in ('.gif', '.mp4')]
  for path in paths:
    videos.write_episode(sample, shortest, path)
  # The players appear later than the field.
  row = sample.first[shortest] + 199
  (frame,) = frame_reading.read_frames(sample.data, np.array([row]))
  expected = frame.repeat(3, axis=0).repeat(3, axis=1)
  video, shown = Image.open(paths[0]), 0
  while shown <= 199:  # equal frames are written once
    shown += video.info['duration'] / 70
    image = np.asarray(video.convert('L'))
    video.seek(video.tell() + 1)
  np.testing.assert_array_equal(image, expected)
  video = cv2.VideoCapture(paths[1])
  assert video.get(cv2.CAP_PROP_FRAME_COUNT) == sample.lengths[shortest]
  for _ in range(200):
    _, image = video.read()
  assert image.shape == (252, 252, 3)
  assert np.abs(image.mean(axis=2) - expected).mean() < 5


def test_the_default_is_the_best_episode_of_the_last_shard(tmp_path):
  shards.write_run(tmp_path / 'replay_logs', [30] * 6, 40)
  statistics = compute(tmp_path)
  last = statistics.ends_in == statistics.ends_in[-1]
  number = videos.choose_episode(statistics, None)
  assert last[number]
  assert statistics.returns[number] == statistics.returns[last].max()
  for wrong in (-1, 6):
    with pytest.raises(ValueError, match=f'{wrong}: .* 0 to 5'):
      videos.choose_episode(statistics, wrong)
  statistics.lengths[2] = 0
  with pytest.raises(ValueError, match='Episode 2 .* no steps'):
    videos.choose_episode(statistics, 2)


@pytest.mark.parametrize('ending', ['.gif', '.mp4', os.fsdecode(b'\xff.mp4')])
def test_a_video_that_fails_leaves_the_file_as_it_was(tmp_path, ending):
  path = tmp_path / f'a{ending}'
  path.write_text('before')
  images = np.random.default_rng(0).integers(0, 256, (20, 84, 84), np.uint8)
  with limited(resource.RLIMIT_FSIZE, 10_000):
    with pytest.raises((ValueError, OSError)):
      videos.write_images(images, str(path))
  assert path.read_text() == 'before' and len(list(tmp_path.iterdir())) == 1
