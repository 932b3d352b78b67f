"""The programs as typed: results on disk, one-line errors, resuming."""

import functools
import importlib
import json
import os
import shutil
import signal
import subprocess
import time
import types
from unittest import mock

import gin
import numpy as np
import pytest
import tensorflow as tf

from batch_rl.baselines import run_experiment
from batch_rl.baselines import train as online
from batch_rl.dataset.shards import shard_reader
from batch_rl.fixed_replay import agents, evaluate
from batch_rl.fixed_replay import run_experiment as offline_runs
from batch_rl.fixed_replay import train as offline
from batch_rl.minatar import games as minatar
from batch_rl.report import run_results
from batch_rl.runs import command_line, games, progress, run_record
from batch_rl.tests import (
  gin_files_of_2020,
  known_runs,
  programs,
  results,
  shards,
  user_code,
)
from batch_rl.utils import locks
from batch_rl.utils.user_code import user_modules

ITERATIONS, STEPS = 3, 200
GAME = 'atari_lib.create_atari_environment.game_name'


def online_options(base_dir, log_dir):
  return dict(
    base_dir=str(base_dir),
    replay_log_dir=str(log_dir),
    gin_files=['batch_rl/baselines/configs/random.gin'],
    seed=5,
    gin_bindings=[
      f'LoggedRunner.num_iterations={ITERATIONS}',
      f'LoggedRunner.training_steps={STEPS}',
      'LoggedRunner.evaluation_steps=0',
      'LoggedRunner.max_steps_per_episode=100',
      'RandomAgent.shard_capacity=250',
      'ENVIRONMENT=@atari_lib.create_atari_environment',
      'LoggedRunner.create_environment_fn=%ENVIRONMENT',
      "GAME='Pong'",
      f'{GAME}=%GAME',
    ],
  )


@pytest.fixture(scope='module')
def unbroken(tmp_path_factory):
  """Directory with an online run: its log and its base_dir."""
  directory = tmp_path_factory.mktemp('unbroken')
  options = online_options(directory / 'base', directory / 'Pong/1')
  programs.run_here(online, **options)
  return directory


def test_a_killed_run_resumes_to_the_same_log(unbroken, tmp_path, monkeypatch):
  """By SIGKILL, then by SIGTERM; `resume_test` stops runs at other points."""
  options = online_options('base', 'replay_logs')
  line = programs.command('baselines.train', **options)
  with subprocess.Popen(line, cwd=tmp_path, stderr=subprocess.PIPE) as process:
    while not (tmp_path / 'base/checkpoints/ckpt-0').exists():
      assert process.poll() is None
      time.sleep(0.002)
    process.send_signal(signal.SIGKILL)
  monkeypatch.chdir(tmp_path)

  def stop_once_rows_are_logged(message, *values):
    if 'rows logged' in message:
      assert 'nan' not in message % values
      signal.raise_signal(signal.SIGTERM)

  with monkeypatch.context() as patch:
    patch.setattr(run_experiment.logging, 'info', stop_once_rows_are_logged)
    with pytest.raises(SystemExit) as stopped:
      programs.run_here(online, **options)
  assert stopped.value.code == 143
  programs.run_here(online, **options)
  logs = [unbroken / 'Pong/1/replay_logs', tmp_path / 'replay_logs']
  bases = [unbroken / 'base', tmp_path / 'base']
  whole, parts = map(results.of_run, bases, logs)
  assert parts == whole
  manifests = [json.loads((log / 'manifest.json').read_text()) for log in logs]
  for key in ('rows', 'episodes', 'shards', 'environment', 'seed', 'versions'):
    assert manifests[0][key] == manifests[1][key], key
  assert manifests[0]['rows'] > ITERATIONS * STEPS
  assert progress.read('base')['evaluation'] is None  # not evaluated
  with pytest.raises(ValueError, match='no evaluations'):
    run_results.read_run('base')


def test_logs_of_other_runs_are_refused(unbroken, tmp_path, refusal):
  (tmp_path / 'used').mkdir()
  with locks.try_lock(str(tmp_path / 'used/.log.lock')):
    for log_dir, message in (
      (unbroken / 'Pong/1', 'another run'),
      (tmp_path / 'used/replay_logs/', '--replay_log_dir'),
      ('gs://a/b', 'gs://a/b is remote; give --replay_log_dir'),
    ):
      options = online_options(tmp_path / 'base', log_dir)
      assert message in refusal(programs.run_here, online, **options)


def test_a_logged_run_is_used_anywhere(unbroken, tmp_path, monkeypatch):
  """With a gin file of 2020; most tests have those of the package."""
  monkeypatch.setenv('HOME', str(tmp_path))
  text = gin_files_of_2020.FILES['offline dqn'].text()
  (tmp_path / 'old.gin').write_text(text)
  options = dict(
    base_dir='~/dqn',
    replay_dir=os.path.relpath(unbroken / 'Pong/1', tmp_path),
    agent_name='dqn',
    gin_files='old.gin',
    seed=1,
    gin_bindings=[
      *programs.of_runner(num_iterations=1, training_steps=8, probe_size=0),
      *programs.of_runner(evaluation_steps=10, max_steps_per_episode=20),
      *programs.TINY_DQN,
    ],
  )
  line = programs.command('fixed_replay.train', **options)
  trained = programs.run(line, tmp_path)
  assert trained.returncode == 0, trained.stderr
  assert 'no effect' not in trained.stderr
  assert 'Iteration 0: evaluation return' in trained.stderr
  record = json.loads((tmp_path / 'dqn/run.json').read_text())
  assert record['environment']['game'] == 'Pong'
  assert (record['seed'], record['agent']) == (1, 'dqn')
  assert 'FixedReplayDQNAgent.update_period = 4' in record['gin_config']


@pytest.mark.parametrize(
  ('option', 'message'),
  [
    ('--base_dri=x', 'base_dri'),
    ('--gin_bindings=A.b=1 A.c=2', "each value, --gin_bindings='A.c=2'"),
    # Before TensorFlow is imported, which writes lines of its own.
    ('--gin_bindings=A.b=Breakout', 'a text in quotes'),
  ],
)
def test_mistakes_in_flags(tmp_path, option, message):
  line = programs.command('baselines.train', base_dir='x')
  done = programs.run([*line, *option.split()], tmp_path)
  assert done.returncode == 2
  assert message in done.stderr
  assert len(done.stderr.splitlines()) == 1


HEADS = 'FixedReplayMultiHeadDQNAgent'


@pytest.mark.parametrize(
  'options, message',
  [
    ({'replay_dir': '..'}, 'is not a run; choose one in it, e.g. /'),
    ({'agent_name': 'dqnn'}, "Unknown agent 'dqnn' (did you mean dqn?)"),
    ({'agent_name': 'rem'}, 'configs/rem.gin: give --config=rem.'),
    ({'config': 'REN'}, "Unknown config 'REN' (did you mean rem?)"),
    ({'gin_bindings': [f'{HEADS}.batch_size=1']}, 'mean WrappedFixedReplay'),
    ({'gin_bindings': ['AnyAgent.learning_rate=1']}, 'mean AdamOptimizer.lear'),
    ({'gin_files': []}, 'No agent: name one (bc, c51, dqn, iql'),
    ({'gin_bindings': [f'{GAME} = "Pnog"']}, 'Pong'),
    ({'gin_bindings': [f'{GAME} = "Breakout"']}, 'holds Pong'),
    ({'gin_bindings': ['make_atari.rom_set = "ancient"']}, 'ancient'),
    ({'gin_files': ['rem.gin', minatar.ONLINE_CONFIG]}, minatar.OFFLINE_CONFIG),
  ],
)
def test_mistakes_end_in_one_line_before_anything_is_built(
  tmp_path, refusal, options, message
):
  run_dir = tmp_path / 'Pong/1'
  shards.write_run(run_dir / 'replay_logs', [30], capacity=50)
  given = {'gin_files': ['batch_rl/fixed_replay/configs/rem.gin'], **options}
  given['replay_dir'] = str(run_dir / given.get('replay_dir', ''))
  given['base_dir'] = str(tmp_path / 'base')
  assert message in refusal(programs.run_here, offline, **given)
  assert not (tmp_path / 'base/checkpoints').exists()


def test_gin_files_of_the_package_are_found_by_their_names(own_folder):
  (own_folder / 'cql.gin').write_text('run_seed.seed = 4')
  read = []
  programs.run_here(
    mock.Mock(main=lambda: read.extend(command_line.read_gin(agents.REGISTRY))),
    config='rem',
    gin_files=['cql.gin', 'bc.gin', 'protocols/1_percent.gin'],
    gin_bindings=[],
  )
  paths = [statements[-1].location.filename for statements in read[:-1]]
  shipped = f'{os.path.dirname(offline.__file__)}/configs'
  assert paths == [
    f'{shipped}/rem.gin',
    'cql.gin',  # of the current directory
    f'{shipped}/bc.gin',
    f'{shipped}/protocols/1_percent.gin',
  ]


def test_missing_flags_are_named(refusal):
  main = programs.run_here
  printed = refusal(main, offline, base_dir=None)
  assert printed.endswith('error: missing --base_dir, --replay_dir\n')
  given = types.SimpleNamespace(base_dir=None)
  lines = refusal(main, online, base_dir=None), refusal(evaluate.main, given)
  assert all(line.endswith('error: missing --base_dir\n') for line in lines)


def test_the_game_of_the_data_is_known_from_its_manifest_or_path(tmp_path):
  logs, store = tmp_path / 'Pong/1/replay_logs', tmp_path / 'stores/any'
  shards.write_run(logs, [30], capacity=50)
  known_runs.open_store(logs, directory=str(store))
  bare = shutil.copytree(logs, tmp_path / 'Pong/2')
  unknown = shutil.copytree(logs, tmp_path / 'somewhere/else/replay_logs')
  known = dict.fromkeys((logs, store, bare), 'Pong') | {unknown: None}
  for folder, game in known.items():
    assert games.logged_game(str(folder)) == game
    games.check_game(str(folder), 'pong')
    games.check_game(str(folder), None)
    if game:
      with pytest.raises(ValueError, match="holds Pong, .*'breakout'"):
        games.check_game(str(folder), 'breakout')
  content = {'manifest_version': 1, 'environment': {'game': 'Dice'}}
  (logs / 'manifest.json').write_text(json.dumps(content))
  assert games.logged_game(str(logs)) == 'Dice'
  with pytest.raises(ValueError, match='holds Dice, .*environment_fn to that'):
    games.check_game(str(logs), 'Pong')
  content['environment']['game'] = 'pong'  # a log of one's own
  (logs / 'manifest.json').write_text(json.dumps(content))
  games.check_game(str(logs), 'Pong')


SHORT = [
  *programs.of_runner(training_steps=8, evaluation_steps=0, probe_size=0),
  'WrappedFixedReplayBuffer.num_buffers=1',
  *programs.TINY_DQN,
]


def offline_main(base_dir, data, bindings, **options):
  given = dict(base_dir=str(base_dir), replay_dir=str(data / 'Pong/1'), seed=1)
  given |= dict(gin_files=['batch_rl/fixed_replay/configs/dqn.gin']) | options
  programs.run_here(offline, gin_bindings=[*SHORT, *bindings], **given)


ONCE = ['FixedReplayRunner.num_iterations=1']
TWICE = ['FixedReplayRunner.num_iterations=2']


@pytest.fixture(scope='module')
def data(tmp_path_factory):
  """Directory with so few frames that none are needed to compress others."""
  directory = tmp_path_factory.mktemp('data')
  shards.write_images(directory / 'Pong/1/replay_logs')
  return directory


@pytest.fixture(scope='module')
def trained(data, tmp_path_factory):
  """The base_dir of a run of one iteration."""
  base_dir = tmp_path_factory.mktemp('trained') / 'base'
  offline_main(base_dir, data, ONCE)
  return base_dir


@pytest.fixture
def base_dir(trained, tmp_path):
  """A copy of the base_dir of a run of one iteration."""
  return shutil.copytree(trained, tmp_path / 'base')


def own_program(base_dir, data, bindings):
  """Runs as a user's own program does that has the settings of `offline_main`."""
  gin.clear_config()
  tf.compat.v1.reset_default_graph()
  gin.bind_parameter('run_seed.seed', np.int64(1))
  gin.parse_config_files_and_bindings(
    ['batch_rl/fixed_replay/configs/dqn.gin'], [*SHORT, *bindings]
  )
  create_agent = functools.partial(
    offline_runs.create_offline_agent,
    replay_data_dir=str(data / 'Pong/1/replay_logs'),
    agent_name='dqn',
  )
  offline_runs.FixedReplayRunner(str(base_dir), create_agent).run_experiment()


def test_a_run_is_prolonged_and_changed_on_request(base_dir, data, refusal):
  """The seed is a flag of the command, and a binding of the program."""
  own_program(base_dir, data, TWICE)
  changed = ['FixedReplayDQNAgent.gamma=0.5']
  with pytest.raises(ValueError, match='gamma'):
    own_program(base_dir, data, changed)
  offline_main(base_dir, data, [*ONCE, 'Checkpoints.keep=9'])
  path = base_dir / 'run.json'
  intact = accepted = path.read_text()
  record = json.loads(intact)
  assert (record['seed'], record['agent']) == (1, 'dqn')
  assert 'changes' not in record
  settings = [*ONCE, *changed, f'FixedReplayBuffer.subset="{"x" * 90}"']
  printed = refusal(offline_main, base_dir, data, settings, seed=2)
  assert len(printed) < 2000  # only the changes, without gin's rulers
  for change in ('gamma = 0.5', 'x' * 90, '- seed = 1; + seed = 2'):
    assert change in printed
  digest = record['environment']['rom_md5']
  for now, before, line in (
    (digest, 'f' * 32, f'- rom_md5 = {"f" * 32}; + rom_md5 = {digest}'),
    ('_float_32": false', '_float_32": true', '- tensor_float_32 = True; +'),
  ):
    path.write_text(intact.replace(now, before))
    accepted = accepted.replace(now, before)
    assert line in refusal(offline_main, base_dir, data, ONCE)
  path.write_text(accepted)
  offline_main(base_dir, data, ONCE, accept_changes=True)
  assert path.read_text() == accepted  # nothing was trained
  changed.append('FixedReplayRunner.num_iterations=3')
  changed.append('FixedReplayBuffer.subset="first_transitions(30)"')
  offline_main(base_dir, data, changed, accept_changes=True)
  assert (base_dir / 'checkpoints/ckpt-2').exists()
  record = json.loads(path.read_text())
  assert record['tensor_float_32'] is False
  assert record['environment']['rom_md5'] == digest
  settings, rows, *environment = record['changes']
  assert any('gamma = 0.5' in line for line in settings)
  assert 'first_transitions(30)' in rows[1] and len(environment) == 2
  assert 'gamma = 0.5' in record['gin_config']


def test_weights_are_needed_only_at_the_start(trained, tmp_path, data, refusal):
  start = shutil.copytree(trained, tmp_path / 'start')
  run = tmp_path / 'base', data
  given = dict(init_checkpoint_dir=str(start / 'checkpoints'))
  offline_main(*run, ONCE, **given)
  checkpoint = run_record.read(str(run[0]))['init_checkpoint']
  assert checkpoint == str(start / 'checkpoints/ckpt-0/tf_ckpt-0')
  for base_dir, other, line in (
    ('base', str(tmp_path), 'init_checkpoint_dir = /'),
    ('start', str(tmp_path), '- init_checkpoint_dir = ; +'),  # had random ones
    ('new', '', '--init_checkpoint_dir is empty'),
  ):
    options = tmp_path / base_dir, data, ONCE
    assert line in refusal(offline_main, *options, init_checkpoint_dir=other)
  shutil.rmtree(start)
  offline_main(*run, TWICE, **given)
  assert (tmp_path / 'base/checkpoints/ckpt-1').exists()


def test_a_call_in_a_scope_reads_bindings_outside_of_it(caplog):
  gin.parse_config("""
    run_seed.seed = 1
    run_seed.deterministic_ops = True
    mine/run_seed.seed = 2
    other/run_seed.seed = 3
    other/run_seed.deterministic_ops = True
  """)
  with gin.config_scope('mine/inner'):
    assert offline_runs.seeding.run_seed() == 2
  command_line.warn_of_unused_bindings()
  assert caplog.messages == [
    'The gin bindings other/run_seed.deterministic_ops, .seed have no effect on this run.',
    'The gin binding run_seed.seed has no effect on this run.',
  ]


def test_a_failure_ends_in_one_line_except_in_users_code(own_folder, refusal):
  runner = mock.Mock()
  for error in (FloatingPointError, MemoryError, shard_reader.DataError):
    runner.run_experiment.side_effect = error('The loss is nan\nat update 7.')
    printed = refusal(command_line.finish, runner)
    assert printed.endswith(' The loss is nan at update 7.\n')
  runner.run_experiment.side_effect = MemoryError  # without a message
  refusal(command_line.user_errors()(runner.run_experiment))  # as it starts
  runner.run_experiment.side_effect = ValueError('shape')
  with pytest.raises(ValueError, match='shape'):
    command_line.finish(runner)
  user_code.write(own_folder / 'mine.py', "def run_experiment(): open('/gone')")
  user_modules.add_folder('')
  with pytest.raises(FileNotFoundError):
    command_line.finish(importlib.import_module('mine'))


def test_a_base_dir_in_use_names_the_process(tmp_path):
  owners = [types.ModuleType('owner') for _ in range(2)]
  for owner in owners:  # of one process
    with run_record.locked_for(owner, str(tmp_path)):
      pass
  with pytest.raises(ValueError, match=f'by process {os.getpid()} on'):
    run_record.lock(str(tmp_path))
  del owners, owner
  with pytest.raises(ZeroDivisionError):
    with run_record.locked_for(types.ModuleType('owner'), str(tmp_path)):
      raise ZeroDivisionError
  run_record.lock(str(tmp_path))
