"""Suspicious shards: outlying returns, frames of another game, repeated frames."""

import shutil

import numpy as np
import pytest

from batch_rl.dataset.shards import manifests, shard_files, shard_reader
from batch_rl.tests import shards
from batch_rl.tests.dataset.checks.run_files import (
  SAMPLE,
  file_of,
  findings,
  is_well,
  load,
  save,
  the_only,
)


def write_returns(logs, means, capacity=200, spread=2, with_manifest=False):
  """Writes a run; each shard has episodes of 20 steps around a mean return."""
  random = np.random.default_rng(0)
  log = shards.make_log(logs, capacity)
  row = 0
  while row < len(means) * capacity - 30:
    mean = means[row // capacity]
    aim = np.clip(round(mean + spread * random.normal()), -20, 20)
    for step in range(20):
      reward = np.sign(aim) if step < abs(aim) else 0
      frame = 1 + (row + step) % 250
      shards.add_row(log, shards.Row(frame, 1, reward, int(step == 19)))
    row += 23
  log.close()
  if not with_manifest:
    (logs / manifests.FILE_NAME).unlink()


LEARNING = [-20, -20, -19, -12, 5, 14, 16, 17, 12, 15, 17, 17]


def test_learning_is_not_suspicious(tmp_path):
  write_returns(tmp_path, LEARNING)
  assert is_well(tmp_path)


def test_unlearning_is_not_suspicious(tmp_path):
  write_returns(tmp_path, LEARNING[::-1])
  assert is_well(tmp_path)


def test_an_outlying_mean_return_is_suspicious(tmp_path):
  write_returns(tmp_path, [*LEARNING[:8], 17, 17, -20, 17, 17])
  finding = the_only(tmp_path, 'suspicious')
  assert finding.file == str(file_of(tmp_path, 'reward', 10))
  assert 'mean return' in finding.message


def test_an_outlying_mean_return_of_another_environment_is_a_note(tmp_path):
  """One's own log may mix policies."""
  means = [*LEARNING[:8], 17, 17, -20, 17, 17]
  write_returns(tmp_path, means, with_manifest=True)
  assert is_well(tmp_path)
  assert any('mean return' in f.message for f in findings(tmp_path, 'note'))


@pytest.fixture(scope='module')
def small_sample(tmp_path_factory):
  """Three shards of the sample without a manifest, their frames 21 x 21."""
  logs = tmp_path_factory.mktemp('small')
  for suffix in range(3):
    for name in shard_files.FILES:
      path = file_of(SAMPLE / 'replay_logs', name, suffix)
      if name != 'observation':
        shutil.copy(path, logs)
        continue
      chunks = shard_reader.iterate_rows(str(path))
      frames = np.concatenate([rows[:, ::4, ::4] for _, rows in chunks])
      save(logs / path.name, frames)
  return logs


@pytest.mark.parametrize('position', [0, 1, 2])
def test_another_game_is_suspicious(small_sample, position, tmp_path):
  logs = shutil.copytree(small_sample, tmp_path / 'replay_logs')
  assert position or is_well(logs)
  path = file_of(logs, 'observation', position)
  frames = load(path)
  # Another game has another background; its padding is the same.
  save(path, np.where(frames == 87, np.uint8(20), frames))
  finding = the_only(logs, 'suspicious')
  assert finding.file == str(path) and 'another game' in finding.message


def test_repeated_frames_of_a_shard_are_suspicious(tmp_path):
  write_returns(tmp_path, [0, 0, 0])
  shutil.copy(
    file_of(tmp_path, 'observation', 1), file_of(tmp_path, 'observation', 2)
  )
  found = [f for f in findings(tmp_path) if 'same frames' in f.message]
  assert [f.file for f in found] == [str(file_of(tmp_path, 'observation', 2))]
