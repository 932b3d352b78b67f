"""The programs, as typed: results on disk, mistakes in one line, resuming."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time

import gin
import numpy as np
import pytest
import tensorflow as tf
from absl import flags
from absl.testing import flagsaver

from batch_rl.baselines import train as online
from batch_rl.dataset.shards import replay_log, shard_files, shard_reader
from batch_rl.fixed_replay import train as offline
from batch_rl.runs import command_line, run_record
from batch_rl.tests import shards

ONLINE = 'batch_rl/baselines/configs/random.gin'
OFFLINE = 'batch_rl/fixed_replay/configs/rem.gin'


def command(program, **options):
  """The command line of a program; a list gives a flag several times."""
  line = [sys.executable, '-um', f'batch_rl.{program}.train']
  for name, values in options.items():
    for value in values if isinstance(values, list) else [values]:
      line.append(f'--{name}={value}')
  return line


def run(line, cwd):
  return subprocess.run(
    line, cwd=cwd, capture_output=True, text=True, check=False, timeout=300
  )


def main(program, **given):
  """Runs a program in this process as in a new one."""
  gin.clear_config()
  tf.compat.v1.reset_default_graph()
  run_record._locks.clear()
  if not flags.FLAGS.is_parsed():
    flags.FLAGS.mark_as_parsed()
  with flagsaver.flagsaver(**given):
    program.main()


def online_options(base_dir, log_dir, iterations=5):
  return dict(
    base_dir=base_dir,
    replay_log_dir=log_dir,
    gin_files=[ONLINE],
    seed=5,
    gin_bindings=[
      f'LoggedRunner.num_iterations={iterations}',
      'LoggedRunner.training_steps=700',
      'LoggedRunner.evaluation_steps=1',
      'LoggedRunner.max_steps_per_episode=300',
      'RandomAgent.shard_capacity=500',
    ],
  )


def read_columns(log_dir):
  """The columns of a run, stitched."""
  columns = {name: [] for name in shard_files.COLUMNS}
  for suffix in shard_files.list_suffixes(str(log_dir)):
    loaded = shard_reader.read_shard(str(log_dir), suffix)
    cursor = loaded.add_count % loaded.capacity
    rows = ([loaded.capacity - 1] if suffix else []) + list(range(cursor))
    for name, column in loaded.columns.items():
      columns[name].append(column[rows])
  return {name: np.concatenate(parts) for name, parts in columns.items()}


@pytest.mark.waits
def test_killed_and_started_again_the_log_is_that_of_an_unbroken_run(
  tmp_path, monkeypatch, capsys
):
  unbroken = command('baselines', **online_options('whole', 'data/Pong/1'))
  assert run(unbroken, tmp_path).returncode == 0
  broken = command('baselines', **online_options('parts', 'data/Pong/2'))
  partial = tmp_path / 'data/Pong/2/replay_logs/partial'
  for kill_when in (
    partial.exists,  # before there is any checkpoint
    (tmp_path / 'parts/checkpoints/ckpt-0').exists,
    lambda: partial.exists() and time.sleep(0.1) is None,  # just resumed
  ):
    with subprocess.Popen(
      broken, cwd=tmp_path, stderr=subprocess.PIPE
    ) as process:
      # What an earlier start left does not count.
      process.stderr.readline()
      while not kill_when():
        assert process.poll() is None
        time.sleep(0.002)
      process.send_signal(signal.SIGKILL)
  for ask_when, says in (
    ('Devices', 'Stopped while starting'),
    ('rows logged', 'Stopped and saved at'),
  ):
    with subprocess.Popen(
      broken, cwd=tmp_path, stderr=subprocess.PIPE, text=True
    ) as process:
      printed = ''
      for line in process.stderr:
        if ask_when in line:
          process.send_signal(signal.SIGTERM)
        printed += line
    assert process.returncode == 0
    assert says in printed
  assert run(broken, tmp_path).returncode == 0
  whole = read_columns(tmp_path / 'data/Pong/1/replay_logs')
  parts = read_columns(tmp_path / 'data/Pong/2/replay_logs')
  for name in shard_files.COLUMNS:
    np.testing.assert_array_equal(whole[name], parts[name], err_msg=name)
  assert len(whole['terminal']) > 5 * 700
  manifests = [
    json.loads(
      (tmp_path / f'data/Pong/{k}/replay_logs/manifest.json').read_text()
    )
    for k in (1, 2)
  ]
  for key in ('rows', 'episodes', 'shards', 'environment', 'seed', 'versions'):
    assert manifests[0][key] == manifests[1][key], key
  assert manifests[0]['rows'] == len(whole['terminal'])
  assert 'batch_rl.baselines.train' in manifests[0]['command']

  # Another run must not write there.
  monkeypatch.chdir(tmp_path)
  with pytest.raises(SystemExit) as refused:
    main(online, **online_options('other', 'data/Pong/1'))
  assert refused.value.code == 2
  assert 'already holds the log of another run' in capsys.readouterr().err

  # The data is good for training, from any directory.
  trained = run(
    command(
      'fixed_replay',
      base_dir='rem',
      replay_dir='data/Pong/1',
      gin_files=OFFLINE,
      seed=1,
      gin_bindings=[
        'FixedReplayRunner.num_iterations=1',
        'FixedReplayRunner.training_steps=40',
        'FixedReplayRunner.evaluation_steps=10',
        'FixedReplayRunner.max_steps_per_episode=20',
      ],
    ),
    tmp_path,
  )
  assert trained.returncode == 0, trained.stderr
  assert 'Iteration 0: evaluation return' in trained.stderr
  assert 'has no effect' not in trained.stderr
  record = json.loads((tmp_path / 'rem/run.json').read_text())
  assert record['environment']['game'] == 'Pong'
  assert record['environment']['rom_md5'] == '60e0ea3cbe0913d39803477945e9e5ec'
  assert record['seed'] == 1
  assert 'FixedReplayMultiHeadDQNAgent.num_heads = 200' in record['gin_config']
  assert max(map(len, record['gin_config'].split('\n'))) < 200  # no rulers


@pytest.mark.parametrize(
  'program, options, message',
  [
    ('fixed_replay', {}, 'missing --base_dir, --replay_dir'),
    ('fixed_replay', {'base_dri': 'x'}, "Unknown command line flag 'base_dri'"),
    ('baselines', {'base_dir': 'x'}, 'missing --replay_log_dir'),
  ],
)
def test_mistakes_in_flags(tmp_path, program, options, message):
  done = run(command(program, **options), tmp_path)
  assert done.returncode == 2
  assert message in done.stderr
  assert len(done.stderr.splitlines()) == 1


@pytest.fixture
def run_dir(tmp_path):
  """A run with shards of tiny frames."""
  shards.write_run(tmp_path / 'Pong/1/replay_logs', [30], capacity=50)
  return str(tmp_path / 'Pong' / '1')


GAME = 'atari_lib.create_atari_environment.game_name'


@pytest.mark.parametrize(
  'options, message',
  [
    ({'replay_dir': '{run_dir}/replay_logs'}, 'give the run directory above'),
    ({'replay_dir': '{run_dir}/..'}, 'game directory with runs 1'),
    ({'agent_name': 'dqnn'}, "Unknown agent 'dqnn' (did you mean dqn?)"),
    ({'gin_files': []}, 'No agent: name one (dqn, c51, quantile'),
    ({'gin_files': ['batch_rl/fixed_replay/configs/renn.gin']}, 'rem.gin'),
    ({'gin_files': ['/nowhere/a.gin']}, 'There is no gin file /nowhere/a.gin'),
    ({'gin_bindings': ["include 'no/a.gin'"]}, 'There is no gin file no/a.gin'),
    ({'gin_bindings': ['Nonsense.x = 1']}, 'Nonsense'),
    (
      {'gin_bindings': ['FixedReplayMultiHeadDQNAgent.num_haeds = 1']},
      'num_haeds',
    ),
    ({'gin_bindings': [f'{GAME} = "Pnog"']}, 'Pong'),
    ({'gin_bindings': [f'{GAME} = "Breakout"']}, 'holds Pong'),
    ({'gin_bindings': ['make_atari.rom_set = "ancient"']}, 'ancient'),
  ],
)
def test_mistakes_end_in_one_line_before_anything_is_built(
  tmp_path, run_dir, capsys, options, message
):
  base_dir = tmp_path / 'base'
  given = dict(
    base_dir=str(base_dir), replay_dir='{run_dir}', gin_files=[OFFLINE]
  )
  given |= options
  given['replay_dir'] = given['replay_dir'].format(run_dir=run_dir)
  with pytest.raises(SystemExit) as exit_:
    main(offline, **given)
  assert exit_.value.code == 2
  printed = capsys.readouterr().err
  assert message in printed
  assert len(printed.splitlines()) == 1
  assert not (base_dir / 'checkpoints').exists()


def test_choices_name_the_nearest():
  with pytest.raises(ValueError, match='did you mean quantile'):
    command_line.choose('agent', 'quantil', ['dqn', 'quantile'])
  with pytest.raises(ValueError, match='choose a, b'):
    command_line.choose('agent', 'zzzz', ['b', 'a'])


def offline_main(
  base_dir,
  replay_dir,
  bindings,
  seed=1,
  accept_changes=False,
  init_checkpoint_dir=None,
):
  main(
    offline,
    base_dir=str(base_dir),
    replay_dir=str(replay_dir),
    gin_files=['batch_rl/fixed_replay/configs/dqn.gin'],
    gin_bindings=[
      'FixedReplayRunner.training_steps=8',
      'FixedReplayRunner.evaluation_steps=1',
      'FixedReplayRunner.max_steps_per_episode=5',
      'WrappedFixedReplayBuffer.num_buffers=1',
      *bindings,
    ],
    init_checkpoint_dir=init_checkpoint_dir,
    seed=seed,
    accept_changes=accept_changes,
  )


@pytest.fixture
def atari_run(tmp_path):
  """A short run of 84 x 84 frames, as Pong's."""
  log = replay_log.ReplayLog(
    str(tmp_path / 'Pong/1/replay_logs'), (84, 84), np.uint8, 50
  )
  for step in range(40):
    log.add(np.full((84, 84), step + 1), 0, 0.0, step % 20 == 19)
  log.close()
  return tmp_path / 'Pong' / '1'


def test_a_corrected_mistake_does_not_poison_the_base_dir(
  tmp_path, atari_run, capsys
):
  base_dir = tmp_path / 'base'
  with pytest.raises(SystemExit):
    offline_main(base_dir, atari_run, [f'{GAME}="Breakout"'])
  assert 'bind it to "Pong"' in capsys.readouterr().err
  offline_main(base_dir, atari_run, ['FixedReplayRunner.num_iterations=1'])


def test_a_run_with_checkpoints_keeps_its_settings(tmp_path, atari_run, capsys):
  base_dir = tmp_path / 'base'
  once = ['FixedReplayRunner.num_iterations=1']
  offline_main(base_dir, atari_run, once)
  long_name = 'FixedReplayRunner.logging_file_prefix="' + 'x' * 90 + '"'
  copy = shutil.copytree(atari_run, tmp_path / 'Pong' / '2')
  for run_dir, bindings, seed, message in (
    (atari_run, ['FixedReplayDQNAgent.gamma=0.5'], 1, 'gamma = 0.5'),
    (atari_run, [long_name], 1, 'x' * 90),  # gin would wrap the line
    (
      atari_run,
      ['FixedReplayBuffer.subset="first_transitions(99)"'],
      1,
      'first_transitions(99)',
    ),
    (copy, [], 1, 'Pong/2'),
    (atari_run, [], 2, '- seed = 1; + seed = 2'),
  ):
    with pytest.raises(SystemExit):
      offline_main(base_dir, run_dir, once + bindings, seed)
    printed = capsys.readouterr().err
    assert 'holds a run with other settings' in printed
    assert len(printed) < 2000  # what changed, not gin's rulers
    assert message in printed
  # It may be prolonged, and saved as one likes.
  longer = ['FixedReplayRunner.num_iterations=2', 'Checkpoints.keep=9']
  offline_main(base_dir, atari_run, longer)
  assert (base_dir / 'checkpoints/ckpt-1').exists()
  # It may change, if that is meant.
  changed = [
    'FixedReplayRunner.num_iterations=3',
    'FixedReplayDQNAgent.gamma=0.5',
  ]
  changed += ['FixedReplayBuffer.subset="first_transitions(30)"']
  offline_main(base_dir, atari_run, changed, accept_changes=True)
  assert (base_dir / 'checkpoints/ckpt-2').exists()
  record = json.loads((base_dir / 'run.json').read_text())
  settings, data = record['changes']
  assert any('gamma = 0.5' in line for line in settings)
  assert 'first_transitions(30)' in data[1]
  assert 'gamma = 0.5' in record['gin_config']


def test_weights_to_start_from_are_needed_once(tmp_path, atari_run, capsys):
  start = tmp_path / 'start'
  once = ['FixedReplayRunner.num_iterations=1']
  offline_main(start, atari_run, once)
  given = dict(init_checkpoint_dir=str(start / 'checkpoints'))
  offline_main(tmp_path / 'base', atari_run, once, **given)
  with pytest.raises(SystemExit):
    offline_main(
      tmp_path / 'base', atari_run, once, init_checkpoint_dir=str(tmp_path)
    )
  assert 'init_checkpoint_dir = ' in capsys.readouterr().err
  shutil.rmtree(start)
  offline_main(
    tmp_path / 'base',
    atari_run,
    ['FixedReplayRunner.num_iterations=2'],
    **given,
  )
  assert (tmp_path / 'base/checkpoints/ckpt-1').exists()


def test_a_base_dir_in_use_says_by_whom(tmp_path):
  run_record.lock(str(tmp_path))
  code = (
    f'from batch_rl.runs import run_record; run_record.lock({str(tmp_path)!r})'
  )
  done = run([sys.executable, '-c', code], tmp_path)
  assert f'is in use by process {os.getpid()} on' in done.stderr
  run_record._locks.clear()
  assert run([sys.executable, '-c', code], tmp_path).returncode == 0


def test_a_checkpoint_that_cannot_be_restored_is_an_error(
  tmp_path, atari_run, capsys
):
  """Rather than a silent start from nothing."""
  base_dir = tmp_path / 'base'
  offline_main(base_dir, atari_run, ['FixedReplayRunner.num_iterations=1'])
  os.remove(base_dir / 'checkpoints/ckpt-0/state.pickle')
  with pytest.raises(SystemExit):
    offline_main(base_dir, atari_run, ['FixedReplayRunner.num_iterations=1'])
  assert 'Checkpoint ckpt-0 in' in capsys.readouterr().err
