"""The record of a run that is resumed: intact, restored, or refused."""

import json
import pathlib

import pytest

from batch_rl.baselines import run_experiment as _online  # noqa: F401
from batch_rl.runs import checkpoints, run_record

SETTINGS = {
  'agent': 'dqn',
  'gin_config': 'A.b = 1',
  'replay_dir': '/data/Pong/1',
}


@pytest.fixture
def base_dir(tmp_path):
  """A run with two checkpoints."""
  record = run_record.start(str(tmp_path), seed=1, **SETTINGS)
  run_record.write(str(tmp_path), record)
  kept = checkpoints.Checkpoints(str(tmp_path))
  for iteration in (1, 2):
    kept.save(
      checkpoints.Position(iteration),
      lambda folder, _: (pathlib.Path(folder) / 'tf_ckpt.index').touch(),
      {'logs': {}},
      record,
    )
  return tmp_path


def resume(base_dir, accept_changes=False, **settings):
  return run_record.start(
    str(base_dir), accept_changes=accept_changes, **{**SETTINGS, **settings}
  )


DAMAGE = {
  'missing': None,
  'empty': b'',
  'list': b'[]',
  'null': b'null',
  'bare': b'{}',
  'truncated': b'{"run_id": "0", "se',
  'bytes': b'\xff\xfe',
  'nested': b'[' * 100_000,
  'types': b'{"run_id": "0", "seed": 1e999}',
}


@pytest.fixture(params=DAMAGE)
def damaged(request, base_dir):
  """A run whose `run.json` is damaged or missing."""
  path = base_dir / 'run.json'
  if (content := DAMAGE[request.param]) is None:
    path.unlink()
  else:
    path.write_bytes(content)
  return base_dir


def test_a_lost_record_is_restored_from_a_checkpoint(damaged, caplog):
  saved = json.loads(
    (damaged / 'checkpoints/ckpt-1/checkpoint.json').read_text()
  )['run']
  assert resume(damaged) == saved
  assert f'{damaged}/run.json is restored from a checkpoint' in caplog.text
  assert len(caplog.records) == 1


def test_a_restored_record_is_compared_with_the_settings(damaged):
  with pytest.raises(ValueError, match=r'\+ gin_config = A.b = 2'):
    resume(damaged, gin_config='A.b = 2')
  changed = resume(damaged, accept_changes=True, gin_config='A.b = 2')
  assert changed['gin_config'] == 'A.b = 2' and len(changed['changes']) == 1


@pytest.mark.parametrize(
  ('line', 'may_change'),
  [
    ('FixedReplayRunner.num_iterations', True),
    ('Checkpoints.keep', True),
    ('a.b.Checkpoints.keep', True),
    ('WrappedFixedReplayBuffer.cache_dir', True),
    ('WrappedFixedReplayBuffer.prefetch_threads', True),
    ('eval/batch_rl.x.FixedReplayBuffer.stack_on_device', True),
    ('FixedReplayDQNAgent.updates_per_run', True),
    ('FixedReplayDQNAgent.jit_compile', False),
    ('FixedReplayDQNAgent.tf_device', False),
    ('FixedReplayDQNAgent.epsilon_eval', False),
    ('FixedReplayBuffer.start_early', False),
    ('FixedReplayBuffer.subset', False),
    ('FixedReplayRunner.evaluation_steps', False),
    ('run_seed.seed', True),  # it is compared as an entry of the record
    ('mine.run_seed_of_mine.seed', False),
    ('MyAgent.num_iterations', False),
    ('MyAgent.preload', False),
    ('MyAgent.num_iterations_of_warmup', False),
    ('MyAgent.preload_weights', False),
    ('MyCheckpoints.keep', False),
    ("MyAgent.name = 'B.preload'  # or", False),
  ],
)
def test_only_some_settings_may_change(base_dir, line, may_change):
  start = run_record.start(
    str(base_dir), gin_config=f'A.b = 1\n{line} = 1', accept_changes=True
  )
  run_record.write(str(base_dir), start)
  now = f'A.b = 1\n{line} = 2'
  if may_change:
    assert resume(base_dir, gin_config=now)['gin_config'] == now
  else:
    with pytest.raises(ValueError, match='other settings'):
      resume(base_dir, gin_config=now)


@pytest.mark.parametrize(
  ('before', 'now', 'may_change'),
  [
    ('FixedReplayRunner.num_iterations = %n\nn = 1', 'n = 2', True),
    ('FixedReplayRunner.num_iterations = 1', 'unused = 2', True),
    ('A.c = %m\nm = %n\nn = 1', 'm = 1', True),  # the same value
    ('A.c = %m\nm = %n\nn = 1', 'n = 2', False),
    ('A.c = %m\nm = %m', 'm = 2', False),
    ('FixedReplayRunner.evaluation_steps = 3', 'x = 1', True),
    ('LoggedRunner.max_steps_per_episode = 27000', None, True),
    ('LoggedRunner.max_steps_per_episode = 999', None, False),
    ('RandomAgent.epsilon_eval = 0.001', None, False),
  ],
)
def test_macros_and_defaults_count_as_their_values(
  base_dir, before, now, may_change
):
  """`now` replaces the line of the same name; None removes the first line."""
  first = f'A.b = 1\n{before}'.split('\n')
  start = run_record.start(
    str(base_dir), gin_config='\n'.join(first), accept_changes=True
  )
  run_record.write(str(base_dir), start)
  name = now.split(' = ')[0] if now else before.split(' = ')[0]
  lines = [line for line in first if line.split(' = ')[0] != name]
  second = '\n'.join([*lines, *([now] if now else []), '# a comment'])
  if may_change:
    resume(base_dir, gin_config=second)
  else:
    with pytest.raises(ValueError, match='other settings'):
      resume(base_dir, gin_config=second)


def test_a_seed_is_recorded_only_if_the_run_has_one(tmp_path):
  assert 'seed' not in run_record.start(str(tmp_path))
  record = run_record.start(str(tmp_path), seed=4)
  assert (record['seed'], record['seed_drawn']) == (4, False)


def test_a_lost_setting_is_restored(base_dir, caplog):
  path = base_dir / 'run.json'
  record = json.loads(path.read_text())
  del record['gin_config']
  path.write_text(json.dumps({**record, 'seed': None, 'note': 'mine'}))
  with pytest.raises(ValueError, match=r'\+ gin_config = A.b = 2'):
    resume(base_dir, gin_config='A.b = 2')
  assert 'it lacks gin_config, seed' in caplog.text
  restored = resume(base_dir)
  assert restored['seed'] == 1 and restored['note'] == 'mine'


def test_a_run_without_any_record_is_refused(damaged):
  for path in damaged.glob('checkpoints/*/checkpoint.json'):
    path.write_text('{}')
  with pytest.raises(ValueError, match='no record of the run') as error:
    resume(damaged)
  assert 'run.json' in str(error.value) and '\n' not in str(error.value)
  accepted = resume(damaged, accept_changes=True)
  assert accepted['run_id'] and len(accepted['changes']) == 1


def test_a_record_of_another_run_is_refused(base_dir):
  path = base_dir / 'run.json'
  record = json.loads(path.read_text())
  path.write_text(json.dumps({**record, 'run_id': 'another'}))
  with pytest.raises(ValueError, match='is not of the run that wrote') as error:
    resume(base_dir)
  assert f'- run_id = another; + run_id = {record["run_id"]}' in str(
    error.value
  )
  assert resume(base_dir, accept_changes=True)['run_id'] == 'another'


def test_an_intact_record_is_not_restored(base_dir, caplog):
  before = json.loads((base_dir / 'run.json').read_text())
  assert resume(base_dir) == before
  assert not caplog.records


def test_records_of_older_versions_resume(base_dir):
  """They had fewer entries, and checkpoints of Dopamine's checkpointer."""
  for path in sorted(base_dir.glob('checkpoints/*/*'), reverse=True):
    path.unlink()
  for folder in base_dir.glob('checkpoints/*'):
    folder.rmdir()
  (base_dir / 'checkpoints' / 'sentinel_checkpoint_complete.0').touch()
  old = {'run_id': 'a', 'agent': 'dqn', 'seed': 5, 'command': 'python x.py'}
  (base_dir / 'run.json').write_text(json.dumps({**old, 'unknown': [1e999]}))
  assert resume(base_dir)['seed'] == 5
  (base_dir / 'run.json').write_text('[]')
  with pytest.raises(ValueError, match='no record of the run'):
    resume(base_dir)
  # A run of Dopamine's own never had a record.
  (base_dir / 'run.json').unlink()
  assert resume(base_dir)['run_id'] != 'a'


def test_a_damaged_record_without_checkpoints_is_an_error(tmp_path):
  (tmp_path / 'run.json').write_text('{"run_id": "a", "seed": "5"}')
  with pytest.raises(ValueError, match="run.json is damaged: seed is '5'"):
    run_record.start(str(tmp_path))
