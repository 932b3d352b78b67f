import subprocess
import sys

from batch_rl.dataset.shards import shard_files
from batch_rl.tests.dataset.checks.run_files import flip_a_bit
from batch_rl.tests.interchange_runs import SAMPLE


def test_all_runs_are_verified(root, run):
  assert run.output('verify', '--all', root).endswith('2 runs: ok\n')
  one, two = root / 'Pong' / '1', root / 'Pong' / '2'
  flip_a_bit(two / 'replay_logs' / shard_files.file_name('reward', 1))
  (root / 'Pong' / '3' / 'replay_logs').mkdir(parents=True)
  out = run.output('verify', two, code=1)
  (line,) = [line for line in out.splitlines() if line.startswith('error:')]
  assert 'reward_ckpt.1.gz' in line
  assert 'PROBLEMS FOUND (2 shards' in out and 'error: 1' in out
  out = run.output('verify', '--all', root, code=1)
  assert out.endswith(f'3 runs: PROBLEMS FOUND: {two}, {root}/Pong/3\n')
  document = run.document('verify', '--all', root, code=1)
  assert not document['ok']
  assert [entry['ok'] for entry in document['runs']] == [True, False, False]
  document = run.document('verify', one)
  assert document['ok']
  assert [entry['rows'] for entry in document['shards']] == [39, 27]
  sizes = [path.stat().st_size for path in one.glob('replay_logs/*.gz')]
  assert document['bytes'] == sum(sizes)
  assert 'No shards in' in run.error('verify', root / 'Pong' / '3')


def test_the_report_of_a_damaged_store_has_all_shards(root, run):
  directory = root / 'store'
  run.output('convert', root / 'Pong' / '1', directory)
  flip_a_bit(directory / 'shard-0.bin')
  document = run.document('verify', directory, code=1)
  assert [entry['shard'] for entry in document['shards']] == [0, 1]
  sizes = [path.stat().st_size for path in directory.glob('shard-*')]
  assert document['bytes'] == sum(sizes)
  assert 'shard-0.json; delete both' in document['findings'][0]['message']


def test_the_program_verifies_the_sample():
  """One process for the whole program; all other tests call `main`."""
  command = [sys.executable, '-m', 'batch_rl.dataset', 'verify', str(SAMPLE)]
  done = subprocess.run(command, capture_output=True, text=True, check=False)
  assert done.returncode == 0 and not done.stderr
  out = done.stdout
  assert out.startswith('shard 0: 29,999 rows, 31 episodes end\n')
  assert out.endswith('ok (11 shards, 16.9 MB)\n')
