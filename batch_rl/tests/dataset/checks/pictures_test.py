"""Plots and videos show the frames that are logged."""

import pathlib

import cv2
import numpy as np
import pytest
from PIL import Image

from batch_rl.dataset import run_directories
from batch_rl.dataset.checks import inspection, pictures
from batch_rl.tests import shards

SAMPLE = pathlib.Path(__file__).parents[4] / 'data' / 'Pong' / '1'


@pytest.fixture
def found(tmp_path):
  """Six episodes of 30 steps over several shards; frame i is filled with i."""
  shards.write_run(tmp_path / 'replay_logs', [30] * 6, 40)
  return inspect(tmp_path)


def inspect(directory):
  return inspection.inspect(run_directories.as_run(str(directory)))


def test_frames_are_those_of_the_rows(found):
  rows = shards.with_padding(shards.make_episodes([30] * 6), 4)
  frames = pictures.read_frames(found, np.arange(len(rows)))
  assert frames[:, 0, 0].tolist() == [row.frame for row in rows]
  some = np.array([0, 38, 39, 40, 41, 120, len(rows) - 1])
  np.testing.assert_array_equal(pictures.read_frames(found, some), frames[some])


def test_the_sheet_has_frames_of_all_the_run_and_no_padding(found):
  rows = pictures.choose_sheet_rows(found)
  assert len(rows) == 24 and (np.diff(rows) > 0).all()
  assert rows[0] < 12 and rows[-1] >= found.starts[-1] - 12
  assert pictures.read_frames(found, rows).all()  # padding is all zero


@pytest.mark.parametrize('ending', ['.gif', '.mp4'])
def test_a_video_has_the_frames_of_its_episode(tmp_path, ending):
  found = inspect(SAMPLE)
  shortest = int(np.argmin(found.lengths))
  path = str(tmp_path / f'episode{ending}')
  pictures.write_video(found, shortest, path)
  row = found.episodes.first[shortest] + 3
  # The players appear later than the field.
  frames = pictures.read_frames(found, row + np.arange(200))
  expected = frames[199].repeat(3, axis=0).repeat(3, axis=1)
  if ending == '.gif':
    video = Image.open(path)
    shown = 0
    for frame in range(video.n_frames):  # frames that last are written once
      video.seek(frame)
      shown += video.info['duration'] / 70
      if shown > 199:
        break
    image = np.asarray(video.convert('L'))
    np.testing.assert_array_equal(image, expected)
    return
  video = cv2.VideoCapture(path)
  assert video.get(cv2.CAP_PROP_FRAME_COUNT) == found.lengths[shortest]
  for _ in range(200):
    _, image = video.read()
  assert image.shape == (252, 252, 3)
  difference = np.abs(image.mean(axis=2) - expected).mean()
  assert difference < 5


def test_the_best_episode_of_the_last_shard_is_the_default(found):
  number = pictures.choose_episode(found, None)
  last = found.episodes.suffix == found.episodes.suffix[-1]
  assert last[number]
  assert found.episodes.returns[number] == found.episodes.returns[last].max()
  assert pictures.choose_episode(found, 2) == 2
  for wrong in (-1, 6):
    with pytest.raises(ValueError, match=f'no episode {wrong}: .* 0 to 5'):
      pictures.choose_episode(found, wrong)


def test_wrong_outputs_are_refused_at_once(tmp_path):
  with pytest.raises(ValueError, match=r'avi does not end in \.gif or \.mp4'):
    pictures.check_output('a.avi', pictures.VIDEO_ENDINGS)
  with pytest.raises(ValueError, match='there is no folder'):
    pictures.check_output(f'{tmp_path}/no/a.gif', pictures.VIDEO_ENDINGS)
  assert '.png' in pictures.plot_endings()


def test_a_plot_is_drawn_of_any_run(found, tmp_path):
  path = tmp_path / 'plot.png'
  pictures.plot(found, str(path))
  assert Image.open(path).size == (1320, 1155)
  log = shards.make_log(tmp_path / 'short', 40)
  shards.add_row(log, shards.Row(1, 0, 0.0, 0))
  log.close()
  pictures.plot(inspect(tmp_path / 'short'), str(path))


def test_what_is_no_picture_is_refused(tmp_path):
  from batch_rl.dataset.shards import replay_log

  log = replay_log.ReplayLog(str(tmp_path), (4,), np.float32, 40)
  log.add(np.ones(4), 1, 1.0, True)
  log.close()
  found = inspect(tmp_path)
  with pytest.raises(ValueError, match=r'float32 \(4,\) are no pictures'):
    pictures.write_video(found, 0, str(tmp_path / 'a.gif'))
