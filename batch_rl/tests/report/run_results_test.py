"""Reading of runs, and the errors for damaged ones."""

import json
import os
import pickle
import shutil

import numpy as np
import pytest

from batch_rl.report import run_results
from batch_rl.tests.report import made_up_runs
from batch_rl.tests.utils import safe_pickle_test


@pytest.fixture
def read(tmp_path):
  """Returns a function that writes a run and reads it.

  It takes further entries of `run.json`, further lines of gin, and the arguments of
  `made_up_runs.write`.
  """

  def make(entries=None, gin='', returns=(1.0,), **options):
    path = made_up_runs.write(tmp_path / 'run', returns, **options)
    record = json.loads((path / 'run.json').read_text())
    record['gin_config'] = f'{gin}\n{record["gin_config"]}'
    (path / 'run.json').write_text(json.dumps({**record, **(entries or {})}))
    run = run_results.read_run(str(path))
    shutil.rmtree(path)
    return run

  return make


def test_unused_bindings_make_no_method(read):
  unused = 'RMSPropOptimizer.decay'
  run = read({'unused_bindings': [unused]}, f'{unused} = 1\nMine.decay = 2')
  assert (run.config.get(unused), run.config['Mine.decay']) == (None, '2')


OWN = {'agent': 'mine.CQLAgent'}


def test_two_classes_with_one_name_are_two_methods(read):
  run = read({'display_name': 'CQL'}, data=None, **OWN)
  assert (run.agent, run.data) == ('CQL, online', '')
  run = read(**OWN)
  assert (run.agent, run.data) == ('mine.CQLAgent', 'Pong/1')
  assert run.config['agent'] == 'mine.CQLAgent'


def test_the_facts_of_a_run(read):
  options = {'subset': 'first(0.1)', 'gamma': 0.9, 'epsilon_eval': 0.05}
  options |= {'game': 'pong', 'seed': 7, 'data': 4, 'planned': 5}
  run = read(returns=[-21.0, 3.5], **options)
  assert (run.game, run.seed, run.data) == ('Pong', '7', 'pong/4')
  assert run.returns.tolist() == [-21.0, 3.5]
  assert run.episodes.tolist() == [2, 2]
  assert (run.done, run.planned, run.is_finished) == (2, 5, False)
  expected = {'epsilon': '0.05', 'subset': 'first(0.1)', 'sticky': '0.25'}
  assert (expected | {'frame cap': '108000'}).items() <= run.protocol.items()
  assert run.config == {
    'FixedReplayDQNAgent.optimizer': '@tf.train.AdamOptimizer()',
    'FixedReplayDQNAgent.gamma': '0.9',
  }
  run = read(returns=[1.0, 2.0, 9.0], planned=2)
  assert run.done == 2  # Those beyond the plan are left out.
  protocol = read({'environment': {'game': 'GridWorld'}}).protocol
  assert (protocol['sticky'], protocol['rom']) == ('none', 'none')
  assert protocol['frame cap'] == '27000'


def test_diagnostics_by_iteration(read):
  found = {'srank': [3, 4, 5], 'loss': [0.5, None, 0.25]}
  run = read(returns=[1.0, 2.0, 3.0], diagnostics=found)
  assert run.diagnostics['srank'].tolist() == [3, 4, 5]
  np.testing.assert_equal(run.diagnostics['loss'], [0.5, np.nan, 0.25])
  assert run.first(2).diagnostics['srank'].tolist() == [3, 4]
  assert not read(diagnostics=None).diagnostics


def test_zero_none_and_null_are_values(read):
  """A null in the record counts as missing."""
  nulls = dict.fromkeys(('data', 'versions', 'evaluation_environments', 'seed'))
  options = {'max_steps_per_episode': None, 'epsilon_eval': '0.5'}
  run = read({'epsilon_eval': 0.0, **nulls}, planned='1e999', **options)
  assert run.protocol['epsilon'] == '0.0' and run.protocol['subset'] == 'all'
  assert float(run.protocol['frame cap']) >= 108_000
  assert run.planned == 200 and run.seed == ''
  run = read({'data': {'subset_hash': None}, 'update_period': 3})
  assert run.provenance['subset_hash'] == ''
  assert run.provenance['iteration'] == '83,334 updates'


def test_parameters_are_those_of_the_runs_own_classes(read):
  """Other classes may have parameters of the same names."""
  values = dict(num_iterations='1', max_steps_per_episode='5')
  values |= dict(evaluation_steps='7', deterministic='True', subset="'few'")
  own = {f'CQLAgent.{name}': value for name, value in values.items()}
  own['mine.CQLAgent.preload'] = '3'
  others = {
    'CQLAgent.epsilon_eval': '0.3',
    'WrappedFixedReplayBuffer.preload': 'True',
    'LoggedRunner.num_iterations': '1',
  }
  gin = '\n'.join(f'{k} = {v}' for k, v in {**own, **others}.items())
  run = read(gin=gin, returns=[1.0, 2.0], optimizer='RMSProp', **OWN)
  assert run.returns.tolist() == [1.0, 2.0] and run.is_finished
  expected = {'epsilon': '0.001', 'frame cap': '108000', 'steps': '125000'}
  assert expected.items() <= run.protocol.items()
  assert own.items() <= run.config.items()
  assert not others.keys() & run.config.keys()


@pytest.mark.parametrize(
  ('binding', 'is_another_method'),
  [
    ('WrappedFixedReplayBuffer.stack_on_device = True', False),
    ('FixedReplayDQNAgent.updates_per_run = 7', False),
    ('FixedReplayDQNAgent.epsilon_train = 0.5', False),  # for online agents
    ("FixedReplayBuffer.subset = 'random_trajectories(0.1)'", False),
    ('FixedReplayDQNAgent.update_period = 8', True),
    ('MyMemoryNetwork.stack_on_device = True', True),
  ],
)
def test_only_results_make_another_method(read, binding, is_another_method):
  before, after = read().config, read(gin=binding).config
  assert (after != before) == is_another_method


def test_arguments_of_a_users_function_define_the_method(read):
  kwargs = {'weight': 2.0, 'data_dir': '/data/Pong/1', 'task': 'cartpole/up'}
  paths = ['/a', 'b'], '/a', '../b', 'c/d/e', '~/d', 'e/f.npy'
  kwargs |= {f'path {i}': path for i, path in enumerate(paths)}
  kwargs['head'] = {'repr': '<Head object at 0x7f5e>'}
  create = {'name': '/home/me/a.py:create', 'args': [3], 'kwargs': kwargs}
  run = read({'create_agent': create, 'epsilon_eval': 0.05}, **OWN)
  own = {k: v for k, v in run.config.items() if k.startswith('create_agent')}
  assert own == {
    'create_agent': 'a.py:create',
    'create_agent.0': '3',
    'create_agent.head': "{'repr': '<Head object>'}",
    'create_agent.weight': '2.0',
    'create_agent.task': 'cartpole/up',
  }
  assert run.protocol['epsilon'] == '0.05'
  shipped = {'name': 'batch_rl.a:create', 'kwargs': {'weight': 2.0}}
  run = read({'create_agent': shipped}, **OWN)
  assert not [key for key in run.config if key.startswith('create_agent')]


def test_macros_are_resolved(read):
  gin = 'Runner.evaluation_steps = %steps\nsteps = \\\n    70'
  run = read(gin=gin, gamma='%unknown.GAMMA')
  assert run.protocol['steps'] == '70'
  assert run.config['FixedReplayDQNAgent.gamma'] == '%unknown.GAMMA'


def test_dopamine_logs(tmp_path):
  """The last one counts. None of them runs code."""
  base_dir = tmp_path / 'Breakout' / 'run'
  made_up_runs.write_dopamine_log(base_dir, [1.0, 2.0, 5.0])
  old = pickle.dumps({'iteration_0': {'eval_average_return': [9.0]}})
  (base_dir / 'logs' / 'log_0').write_bytes(old)
  with pytest.raises(run_results.NoResultsError, match='AGENT/GAME'):
    run_results.read_run(str(base_dir))
  run = run_results.read_run(str(base_dir), 'Rainbow')
  assert (run.agent, run.game) == ('Rainbow', 'Breakout')
  assert run.returns.tolist() == [1.0, 2.0, 5.0]
  assert run.episodes.tolist() == [2, 2, 2]
  assert run.is_finished and run.protocol['rom'] == '?'
  exploit = safe_pickle_test.Exploit(os.mkdir, str(tmp_path / 'stolen'))
  evil = pickle.dumps({'iteration_0': exploit})
  (base_dir / 'logs' / 'log_3').write_bytes(evil)
  with pytest.raises(run_results.NoResultsError):
    run_results.read_run(str(base_dir), 'Rainbow')
  (base_dir / 'logs' / 'log_4').write_bytes(b'')
  with pytest.raises(run_results.NoResultsError, match=r'damaged \(EOFError'):
    run_results.read_run(str(base_dir), 'Rainbow')
  whole = {'eval_episode_returns': [9.0], 'eval_average_return': [9.0]}
  for one in whole:
    content = {'iteration_0': whole, 'iteration_1': {**whole, one: []}}
    (base_dir / 'logs' / 'log_4').write_bytes(pickle.dumps(content))
    with pytest.raises(run_results.NoResultsError, match='iteration_1 .* one'):
      run_results.read_run(str(base_dir), 'Rainbow')
  assert not (tmp_path / 'stolen').exists()


FIRST = 'evaluations/1.json'
HUGE = f'{{"mean_return": 1{"0" * 400}}}'
WITH_TEXT = '{"mean_return": 1, "episodes": [], "diagnostics": {"srank": "x"}}'


@pytest.mark.parametrize(
  ('name', 'content', 'message'),
  [
    (FIRST, None, 'iteration 1'),
    (FIRST, '{"a', 'not JSON'),
    (FIRST, '{}', 'no episodes'),
    (FIRST, '{"mean_return": NaN, "episodes": []}', '1 is not finite'),
    (FIRST, HUGE, 'mean_return'),
    (FIRST, '{"mean_return": 1, "episodes": 3}', 'episodes'),
    (FIRST, WITH_TEXT, 'srank'),
    ('run.json', '[' * 100_000, 'run.json'),
    ('run.json', b'\xff', 'run.json'),
    ('run.json', '{"seed": 1e999}', 'seed is inf'),
    ('run.json', '{}', 'its agent'),
    ('run.json', '{"agent": "x"}', 'its game'),
    ('run.json', '{"agent": "dqn", "environment": "Pong"}', 'environment'),
  ],
)
def test_damaged_or_incomplete_runs(tmp_path, name, content, message):
  path = made_up_runs.write(tmp_path / 'run', [1.0, 2.0, 3.0]) / name
  if content is None:
    # A range up to this number would take all memory.
    path.rename(path.with_name('99999999999999.json'))
  else:
    path.write_bytes(content if type(content) is bytes else content.encode())
  with pytest.raises(run_results.NoResultsError, match=message):
    run_results.read_run(str(tmp_path / 'run'))


def test_the_record_precedes_the_given_names(tmp_path):
  path = made_up_runs.write(tmp_path / 'run', [1.0])
  run = run_results.read_run(str(path), 'Rainbow', 'Breakout')
  assert (run.agent, run.game) == ('DQN (Adam)', 'Pong')
  (path / 'evaluations' / '0.json').unlink()
  for wrong, reason in (path, 'it has no eval'), ('/no', 'there is no such'):
    with pytest.raises(run_results.NoResultsError, match=f'{wrong}: {reason}'):
      run_results.read_run(str(wrong))


def test_find_runs(tmp_path):
  """Links are followed, and each run is found once."""
  made_up_runs.write(tmp_path / 'b' / 'Pong' / '1', [1.0])
  made_up_runs.write(tmp_path / 'a' / 'logs' / '2', [1.0])
  made_up_runs.write_dopamine_log(tmp_path / 'a' / 'dopamine', [1.0])
  (tmp_path / 'a' / 'nothing').mkdir()
  for name in ('round', 'again'):  # Without an end if links are followed twice.
    (tmp_path / 'a' / name).symlink_to(tmp_path / 'a')
  (tmp_path / 'a' / 'link').symlink_to(tmp_path / 'b')
  names = [str(tmp_path / 'b'), str(tmp_path / 'a'), str(tmp_path / 'a/link')]
  found, unread = run_results.find_runs(names)
  expected = ('b/Pong/1', 'a/dopamine', 'a/logs/2')
  assert found == [f'{tmp_path}/{path}' for path in expected]
  for one in names[2:], names[2], tmp_path / 'a/link':
    assert run_results.find_runs(one)[0] == [f'{names[2]}/Pong/1']
  assert run_results.read_run(tmp_path / 'a/link/Pong/1').done == 1
  assert not unread
  with pytest.raises(ValueError, match='no_such'):
    run_results.find_runs([str(tmp_path / 'no_such')])
