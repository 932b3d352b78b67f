"""Runs on MinAtar by the programs: made, verified, drawn, trained on, reported."""

import json

import numpy as np
import pytest

from batch_rl.baselines import train as online_program
from batch_rl.dataset import run_directories
from batch_rl.dataset.checks import frame_images, run_checks, run_statistics
from batch_rl.fixed_replay import train as offline_program
from batch_rl.minatar import games
from batch_rl.report import run_results
from batch_rl.tests import configs_test, programs

GAME = 'MinAtarEnvironment.game_name = "MinAtar/Freeway"'


@pytest.fixture(scope='module')
def logged(tmp_path_factory):
  """The directory of a logged run of random actions, `MinAtar-Freeway/1`."""
  root = tmp_path_factory.mktemp('data')
  directory = root / 'MinAtar-Freeway' / '1'
  programs.run_here(
    online_program,
    base_dir=str(root / 'run'),
    replay_log_dir=str(directory),
    seed=1,
    gin_files=[
      configs_test.config_file('baselines', 'random'),
      games.ONLINE_CONFIG,
    ],
    gin_bindings=[
      GAME,
      'LoggedRunner.num_iterations = 1',
      'LoggedRunner.training_steps = 80',
      'LoggedRunner.evaluation_steps = 20',
      'LoggedRunner.max_steps_per_episode = 40',
    ],
  )
  return directory


def train(logged, base_dir, *bindings, config=games.OFFLINE_CONFIG):
  programs.run_here(
    offline_program,
    base_dir=str(base_dir),
    replay_dir=str(logged),
    seed=1,
    gin_files=[
      configs_test.config_file('fixed_replay', 'dqn_adam'),
      *([config] if config else []),
    ],
    gin_bindings=[
      'FixedReplayRunner.num_iterations = 1',
      'FixedReplayRunner.training_steps = 40',
      'FixedReplayRunner.evaluation_steps = 60',
      'FixedReplayRunner.max_steps_per_episode = 20',
      *bindings,
    ],
  )


def test_a_log_is_verified_drawn_trained_on_and_reported(
  logged, tmp_path, caplog
):
  run = run_directories.as_run(str(logged))
  assert run_checks.verify(run.data_dir).problems == []
  statistics = run_statistics.compute(run)
  images = frame_images.read_images(statistics, np.array([0, 50]))
  assert images.shape == (2, 10, 10, 3) and images.any()
  train(logged, tmp_path, GAME)
  record = json.loads((tmp_path / 'run.json').read_text())
  assert record['environment']['game'] == 'MinAtar-Freeway'
  assert record['evaluation_environments'] == 10
  assert 'has no effect' not in caplog.text
  found = run_results.read_run(str(tmp_path))
  assert (found.agent, found.game) == ('DQN (Adam)', 'MinAtar-Freeway')
  assert found.data == 'MinAtar-Freeway/1'
  assert found.protocol['sticky'] == '0.1'
  assert found.protocol['frame cap'] == '20'  # a step is a frame


@pytest.mark.parametrize(
  ('bindings', 'config', 'advice'),
  [
    ([], games.OFFLINE_CONFIG, '"MinAtar-Freeway"'),
    (["make_atari.rom_set = 'current'"], None, 'batch_rl/minatar/'),
  ],
)
def test_the_data_of_another_game_is_refused(
  bindings, config, advice, logged, tmp_path, capsys
):
  with pytest.raises(SystemExit):
    train(logged, tmp_path, *bindings, config=config)
  printed = capsys.readouterr().err
  assert advice in printed
  assert printed.count('\n') == 1
