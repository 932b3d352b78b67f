"""The record of a run that is resumed: compared, or refused."""

import json
import shlex
import sys

import pytest

from batch_rl.runs import checkpoints, run_record
from batch_rl.tests.runs import checkpoints_test

SETTINGS = {'agent': 'dqn', 'gin_config': 'A.b = 1', 'replay_dir': '/job/1'}


@pytest.fixture
def base_dir(tmp_path):
  """A run with two checkpoints."""
  record = run_record.start(str(tmp_path), seed=1, **SETTINGS)
  run_record.write(str(tmp_path), record)
  kept = checkpoints.Checkpoints(str(tmp_path))
  for iteration in (1, 2):
    checkpoints_test.save(kept, checkpoints.Position(iteration), record=record)
  return tmp_path


def resume(base_dir, **settings):
  return run_record.start(str(base_dir), **{**SETTINGS, **settings})


RUNNER = 'FixedReplayRunner'
DEVICE = 'FixedReplayBuffer.stack_on_device'
PERIOD = 'FixedReplayDQNAgent.update_period'


@pytest.mark.parametrize(
  ('before', 'now', 'may_change'),
  [
    (f'{RUNNER}.num_iterations = 1', f'{RUNNER}.num_iterations = 2', True),
    (f'mine/x.{DEVICE} = 1', f'mine/x.{DEVICE} = 2', True),
    (f'{PERIOD} = 1', f'{PERIOD} = 2', False),
    # It is compared as an entry of the record.
    ('run_seed.seed = 1', 'run_seed.seed = 2', True),
    ('my.run_seed_of_mine.seed = 1', 'my.run_seed_of_mine.seed = 2', False),
    ('MyAgent.num_iterations = 1', 'MyAgent.num_iterations = 2', False),
    ("MyAgent.name = 'B.preload'  # = 1", "MyAgent.name = 'B.x'", False),
    # Macros count as their values.
    (f'{RUNNER}.num_iterations = %n\nn = 1', 'n = 2', True),
    (f'{RUNNER}.num_iterations = 1', 'unused = 2', True),
    ('A.c = %m\nm = %n\nn = 1', 'm = 1', True),  # the same value
    ('A.c = %m\nm = %n\nn = 1', 'n = 2', False),
    ('A.c = %m\nm = %m', 'm = 2', False),
    ('LoggedRunner.max_steps_per_episode = 999', None, False),
  ],
)
def test_only_some_settings_may_change(base_dir, before, now, may_change):
  """`now` replaces the line of the same name; None removes the first line."""
  first = f'A.b = 1\n{before}'
  start = run_record.start(str(base_dir), gin_config=first, accept_changes=True)
  run_record.write(str(base_dir), start)
  name = (now or before).split(' = ')[0]
  lines = [line for line in first.splitlines() if line.split(' = ')[0] != name]
  second = '\n'.join([*lines, *([now] if now else []), '# a comment'])
  if may_change:
    assert resume(base_dir, gin_config=second)['gin_config'] == second
  else:
    with pytest.raises(ValueError, match='different settings'):
      resume(base_dir, gin_config=second)


def test_an_intact_record_stays_and_has_a_seed_if_one_is_given(base_dir):
  before = json.loads((base_dir / 'run.json').read_text())
  assert resume(base_dir) == before
  assert before['seed'] == 1
  assert 'seed' not in run_record.start(str(base_dir / 'unseeded'))


def test_only_data_that_are_compared_may_move(base_dir):
  with pytest.raises(ValueError, match='replay_dir = /job/2'):
    resume(base_dir, replay_dir='/job/2')
  path = base_dir / 'run.json'
  record = json.loads(path.read_text()) | {'data': {'subset_hash': 'a'}}
  path.write_text(json.dumps(record))
  assert resume(base_dir, replay_dir='/job/2')['replay_dir'] == '/job/2'


def test_other_versions_are_noted(base_dir):
  path = base_dir / 'run.json'
  record = json.loads(path.read_text())
  now, record['versions']['numpy'] = record['versions']['numpy'], '1.0'
  path.write_text(json.dumps(record))
  resumed = resume(base_dir)
  assert resumed['versions']['numpy'] == now
  assert resumed['changes'] == [['- numpy = 1.0', f'+ numpy = {now}']]
  resumed = {'code': {'mine': 'a', 'only_then': 'b'}}
  run_record.note_new(resumed, 'code', now := {'mine': 'c', 'only_now': 'd'})
  assert resumed == {'code': now, 'changes': [['- mine = a', '+ mine = c']]}


@pytest.mark.parametrize(
  ('content', 'message'),
  [
    (None, 'run.json has no run_id'),
    ('{"run_id": null}', 'run.json has no run_id'),
    ('{"run_id": "b"}', 'run_id = b'),
  ],
)
def test_a_run_without_its_record_is_refused(base_dir, content, message):
  path = base_dir / 'run.json'
  path.unlink()
  if content:
    path.write_text(content)
  with pytest.raises(ValueError, match=message) as error:
    resume(base_dir)
  assert '\n' not in str(error.value)
  accepted = resume(base_dir, accept_changes=True)
  assert accepted['run_id'] and len(accepted['changes']) == 1


def test_records_of_older_versions_resume(base_dir):
  """They had fewer entries."""
  old = {'run_id': 'a', 'agent': 'dqn', 'seed': 5, 'command': 'python x.py'}
  for path in base_dir.glob('checkpoints/*/checkpoint.json'):
    path.write_text('{}')
  (base_dir / 'run.json').write_text(json.dumps({**old, 'unknown': [1e999]}))
  assert resume(base_dir)['seed'] == 5


def test_the_command_can_be_typed_again(tmp_path, monkeypatch):
  typed = ['my runs/run.py', '--base_dir=my runs']
  monkeypatch.setattr(sys, 'argv', typed)
  monkeypatch.setattr(sys.modules['__main__'], '__spec__', None)
  record = run_record.start(str(tmp_path), seed=1, **SETTINGS)
  assert shlex.split(record['command']) == ['python', *typed]


@pytest.mark.parametrize('text', ['[]', '{"run_id": "a", "seed": "5"}', '{"'])
def test_a_damaged_record_is_an_error(base_dir, text):
  (base_dir / 'run.json').write_text(text)
  with pytest.raises(ValueError, match='run.json is damaged'):
    resume(base_dir, accept_changes=True)
