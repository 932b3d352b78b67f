"""Several runs at once are runs as any other."""

import json
import subprocess
import sys

import pytest

from batch_rl.baselines import parallel_runs


@pytest.mark.parametrize(
  'text, numbers',
  [('1-3', [1, 2, 3]), ('4', [4]), ('2,5-6, 9', [2, 5, 6, 9])],
)
def test_runs_are_listed(text, numbers):
  assert parallel_runs.parse(text) == numbers


@pytest.mark.parametrize('text', ['a', '3-1', '1-', '1,1', '1-3,2', '-1'])
def test_wrong_lists_are_refused(text):
  with pytest.raises(ValueError, match=f'--runs={text} '):
    parallel_runs.parse(text)


def test_each_has_a_seed_of_its_own():
  seeds = {parallel_runs.seed_of(s, n) for s in range(10) for n in range(10)}
  assert len(seeds) == 100


def run(cwd, *arguments):
  return subprocess.run(
    [
      sys.executable,
      '-um',
      'batch_rl.baselines.train',
      '--base_dir=runs',
      '--replay_log_dir=data/Pong',
      '--gin_files=batch_rl/baselines/configs/random.gin',
      '--gin_bindings=LoggedRunner.num_iterations=1',
      '--gin_bindings=LoggedRunner.training_steps=100',
      '--gin_bindings=LoggedRunner.evaluation_steps=1',
      '--gin_bindings=LoggedRunner.max_steps_per_episode=100',
      '--gin_bindings=RandomAgent.shard_capacity=500',
      *arguments,
    ],
    cwd=cwd,
    capture_output=True,
    text=True,
    check=False,
    timeout=300,
  )


def test_runs_side_by_side(tmp_path):
  """And one that cannot start, which is no obstacle for the others."""
  (tmp_path / 'runs' / '3').mkdir(parents=True)
  (tmp_path / 'runs' / '3' / 'run.json').write_text('nonsense')
  done = run(tmp_path, '--seed=7', '--runs=1-3')
  assert done.returncode == 2
  assert 'run 3 failed, exit code 2' in done.stderr
  manifests = []
  for number in (1, 2):
    assert f'run {number} | ' in done.stderr
    path = tmp_path / f'data/Pong/{number}/replay_logs/manifest.json'
    manifests.append(json.loads(path.read_text()))
    record = json.loads((tmp_path / f'runs/{number}/run.json').read_text())
    assert record['seed'] == parallel_runs.seed_of(7, number)
    assert record['environment']['game'] == 'Pong'
  assert manifests[0]['rows'] > 100 and manifests[1]['rows'] > 100
  assert manifests[0]['run_id'] != manifests[1]['run_id']
  assert manifests[0]['shards'] != manifests[1]['shards']


def test_a_wrong_list_is_one_line(tmp_path):
  done = run(tmp_path, '--runs=two')
  assert done.returncode == 2 and done.stderr.count('\n') == 1
  assert '--runs=two' in done.stderr
