"""Runs on MinAtar by the programs: made, verified, drawn, trained on, reported."""

import json
import os

import numpy as np
import tensorflow as tf

from batch_rl.baselines import train as online
from batch_rl.dataset import run_directories
from batch_rl.dataset.checks import frame_images, run_checks, run_statistics
from batch_rl.fixed_replay import train as offline
from batch_rl.minatar import games
from batch_rl.report import run_results
from batch_rl.runs import progress
from batch_rl.tests import configs_test, programs
from batch_rl.tests.fixed_replay import evaluate_test

GAME = 'MinAtarEnvironment.game_name = "MinAtar/Freeway"'

PROGRAMS = {
  online: ('LoggedRunner', 'baselines', games.ONLINE_CONFIG),
  offline: ('FixedReplayRunner', 'fixed_replay', games.OFFLINE_CONFIG),
}


def run(program, agent, *bindings, **flags):
  runner, folder, config = PROGRAMS[program]
  files = [configs_test.config_file(folder, agent), config]
  settings = dict(num_iterations=1, training_steps=80, evaluation_steps=60)
  settings |= dict(max_steps_per_episode=20)
  if program is offline:
    settings |= dict(probe_size=0)
  bound = [*programs.of_runner(runner, **settings), *bindings]
  flags = dict(gin_files=files, seed=1) | flags
  programs.run_here(program, gin_bindings=bound, **flags)


def test_a_log_is_made_and_trained_on(tmp_path, caplog, refusal, monkeypatch):
  name, session, threads = 'TF_NUM_INTRAOP_THREADS', tf.compat.v1.Session, set()
  monkeypatch.setattr(
    *(tf.compat.v1, 'Session'),
    lambda *a, **k: threads.add(os.environ[name]) or session(*a, **k),
  )
  monkeypatch.setenv(name, '2')
  logged = tmp_path / 'MinAtar-Freeway/1'
  flags = dict(base_dir=str(tmp_path / 'online'), replay_log_dir=str(logged))
  run(online, 'random', GAME, **flags)
  assert threads == {'1'} and os.environ[name] == '2'
  directory = run_directories.as_run(str(logged))
  assert run_checks.verify(directory.data_dir).problems == []
  statistics = run_statistics.RunStatistics(directory)
  images = frame_images.read_images(statistics.data, np.array([0, 50]))
  assert images.shape == (2, 10, 10, 3) and images.any()

  flags = dict(base_dir=str(tmp_path / 'offline'), replay_dir=str(logged))
  caplog.clear()
  run(offline, 'dqn_adam', GAME, **flags)
  record = json.loads((tmp_path / 'offline/run.json').read_text())
  assert record['environment']['game'] == 'MinAtar-Freeway'
  assert record['evaluation_environments'] == 10
  evaluate_test.evaluate_here(base_dir=flags['base_dir'])
  assert threads == {'1'}
  assert progress.read(flags['base_dir'])['rates'].keys() == {'train', 'eval'}
  assert 'no effect' not in caplog.text
  found = run_results.read_run(flags['base_dir'])
  assert (found.agent, found.game) == ('DQN (Adam)', 'MinAtar-Freeway')
  assert found.data == 'MinAtar-Freeway/1'
  assert found.protocol['sticky'] == '0.1'
  assert found.protocol['frame cap'] == '20'  # a step is a frame

  # The data of another game.
  flags['base_dir'] = str(tmp_path / 'other')
  printed = refusal(run, offline, 'dqn_adam', **flags)
  assert 'game_name to "MinAtar-Freeway"' in printed
  flags['gin_files'] = [configs_test.config_file('fixed_replay', 'dqn_adam')]
  current = "make_atari.rom_set = 'current'"
  printed = refusal(run, offline, 'dqn_adam', current, **flags)
  assert 'batch_rl/minatar/' in printed
