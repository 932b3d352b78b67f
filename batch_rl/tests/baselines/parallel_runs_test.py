"""Several online runs at once."""

import copy
import json
import signal
import sys

import pytest

from batch_rl.baselines import parallel_runs, train
from batch_rl.runs import command_line
from batch_rl.tests import programs

STUB = """
import pathlib, sys, time

options = dict(argument.split('=', 1) for argument in sys.argv[1:])
here = pathlib.Path(options['--base_dir'])
here.mkdir(parents=True)
# Each waits until all of them run.
deadline = time.monotonic() + 60
while len(list(here.parent.iterdir())) < 3:
  assert time.monotonic() < deadline
  time.sleep(0.01)
print('seed', options['--seed'], file=sys.stderr)
sys.exit(2 if here.name == '3' else 0)
"""


def test_runs_are_side_by_side(tmp_path, monkeypatch, capfd):
  """A run that fails does not stop the others."""
  (tmp_path / 'stub.py').write_text(STUB)
  monkeypatch.setenv('PYTHONPATH', str(tmp_path))
  before = signal.getsignal(signal.SIGTERM)
  try:
    code = parallel_runs.run(
      'stub',
      ['--base_dir=runs', '--runs=1-3'],
      [1, 2, 3],
      {'base_dir': str(tmp_path / 'runs')},
      seed=7,
    )
  finally:
    signal.signal(signal.SIGTERM, before)
  assert code == 2
  printed = capfd.readouterr().err
  for number in (1, 2, 3):
    assert f'run {number} | seed {parallel_runs.seed_of(7, number)}' in printed
  assert printed.splitlines()[-1] == 'run 3 failed, exit code 2'


@pytest.mark.parametrize(
  ('end', 'code', 'line'),
  [
    ('sys.exit(143)', 143, ''),  # It has said so itself.
    ('os.abort()', 134, 'run 1 failed, exit code 134'),
  ],
)
def test_a_stopped_or_killed_run_is_not_finished(
  tmp_path, monkeypatch, capfd, end, code, line
):
  (tmp_path / 'stub.py').write_text(f'import os, sys\n{end}')
  monkeypatch.setenv('PYTHONPATH', str(tmp_path))
  before = signal.getsignal(signal.SIGTERM)
  try:
    assert parallel_runs.run('stub', [], [1], {}, None) == code
  finally:
    signal.signal(signal.SIGTERM, before)
  assert capfd.readouterr().err.strip() == line


def command(*arguments):
  return programs.command(
    'baselines.train',
    base_dir='runs',
    replay_log_dir='data/Pong',
    gin_files='batch_rl/baselines/configs/random.gin',
    gin_bindings=[
      'LoggedRunner.num_iterations=1',
      'LoggedRunner.training_steps=100',
      'LoggedRunner.evaluation_steps=1',
      'LoggedRunner.max_steps_per_episode=100',
      'RandomAgent.shard_capacity=500',
    ],
  ) + list(arguments)


def run_flags(arguments):
  """Runs the program in this process with the flags of a command line."""
  parsed = copy.deepcopy(train.FLAGS)
  parsed.unparse_flags()
  parsed(['train', *arguments])
  own = parsed.get_flags_for_module(train.__name__)
  own += parsed.get_flags_for_module(command_line.__name__)
  programs.run_here(train, **{flag.name: flag.value for flag in own})


class RunHere:
  """Stands for the process of a run: it takes seconds to start."""

  def __init__(self, line, **_):
    assert line[:3] == [sys.executable, '-um', train.__name__]
    self.stderr = ['ended\n']
    run_flags(line[3:])

  def wait(self):
    return 0


def test_a_run_has_its_own_seed_and_directories(tmp_path, monkeypatch, capfd):
  monkeypatch.chdir(tmp_path)
  monkeypatch.setattr(parallel_runs.subprocess, 'Popen', RunHere)
  monkeypatch.setattr(parallel_runs, '_forward', lambda *_: None)
  arguments = command('--seed=7', '--runs=2')[3:]
  monkeypatch.setattr(sys, 'argv', ['train', *arguments])
  with pytest.raises(SystemExit) as ended:
    run_flags(arguments)
  assert ended.value.code == 0
  assert 'run 2 | ended' in capfd.readouterr().err
  path = tmp_path / 'data/Pong/2/replay_logs/manifest.json'
  assert json.loads(path.read_text())['rows'] > 100
  record = json.loads((tmp_path / 'runs/2/run.json').read_text())
  assert record['seed'] == parallel_runs.seed_of(7, 2)
  assert record['environment']['game'] == 'Pong'
