"""Reading of runs, and the errors for damaged ones."""

import json
import pickle

import pytest

from batch_rl.report import run_results
from batch_rl.tests.report import made_up_runs


@pytest.mark.parametrize(
  ('agent', 'bindings', 'name'),
  [
    ('dqn', {'optimizer': 'RMSProp'}, 'DQN (Nature)'),
    ('dqn', {'optimizer': 'Adam'}, 'DQN (Adam)'),
    ('c51', {}, 'C51'),
    ('quantile', {}, 'QR-DQN'),
    ('multi_head_dqn', {}, 'Ensemble-DQN'),
    (
      'multi_head_dqn',
      {'transform_strategy': "'AVERAGE'"},
      'Averaged Ensemble-DQN',
    ),
    ('multi_head_dqn', {'transform_strategy': "'STOCHASTIC'"}, 'REM'),
    ('multi_network_dqn', {}, 'REM (networks)'),
    ('my_agent', {}, 'my_agent'),
  ],
)
def test_names_of_agents(tmp_path, agent, bindings, name):
  made_up_runs.write(tmp_path / 'run', [1.0], agent=agent, **bindings)
  assert run_results.read_run(str(tmp_path / 'run')).agent == name


def change_record(path, **entries):
  record = json.loads((path / 'run.json').read_text())
  (path / 'run.json').write_text(json.dumps({**record, **entries}))


def test_zero_and_none_are_values(tmp_path):
  path = made_up_runs.write(
    tmp_path / 'run', [1.0], max_steps_per_episode=None, epsilon_eval='0.5'
  )
  change_record(path, epsilon_eval=0.0)
  protocol = run_results.read_run(str(path)).protocol
  assert protocol['epsilon'] == '0.0'
  assert float(protocol['frame cap']) >= 108_000


def test_parameters_are_those_of_the_runs_own_classes(tmp_path):
  """Other classes may have parameters of the same names."""
  path = made_up_runs.write(
    tmp_path / 'run', [1.0, 2.0], agent='mine.CQLAgent', optimizer='RMSProp'
  )
  record = json.loads((path / 'run.json').read_text())
  own = {
    'CQLAgent.num_iterations': '1',
    'CQLAgent.max_steps_per_episode': '5',
    'CQLAgent.evaluation_steps': '7',
    'CQLAgent.deterministic': 'True',
    'CQLAgent.subset': "'few'",
    'mine.CQLAgent.preload': '3',
  }
  others = {
    'AAgent.epsilon_eval': '0.5',
    'CQLAgent.epsilon_eval': '0.3',
    'WrappedFixedReplayBuffer.preload': 'True',
  }
  text = '\n'.join(f'{k} = {v}' for k, v in {**own, **others}.items())
  change_record(path, gin_config=f'{text}\n{record["gin_config"]}')
  run = run_results.read_run(str(path))
  assert run.returns.tolist() == [1.0, 2.0] and run.is_finished
  protocol = {k: run.protocol[k] for k in ('epsilon', 'frame cap', 'steps')}
  assert protocol == {
    'epsilon': '0.3',
    'frame cap': '108000',
    'steps': '125000',
  }
  assert own.items() <= run.config.items()
  assert not others.keys() & run.config.keys()


@pytest.mark.parametrize(
  ('binding', 'is_another_method'),
  [
    ('WrappedFixedReplayBuffer.stack_on_device = True', False),
    ('WrappedFixedReplayBuffer.prefetch_threads = 4', False),
    ('FixedReplayDQNAgent.updates_per_run = 7', False),
    ('FixedReplayDQNAgent.epsilon_train = 0.5', False),  # for online agents
    ("FixedReplayDQNAgent.tf_device = '/gpu:1'", False),
    ("FixedReplayBuffer.subset = 'random_trajectories(0.1)'", False),
    ('FixedReplayDQNAgent.jit_compile = True', True),
    ('FixedReplayDQNAgent.mixed_precision = True', True),
    ('MyMemoryNetwork.stack_on_device = True', True),
  ],
)
def test_only_results_make_another_method(tmp_path, binding, is_another_method):
  path = made_up_runs.write(tmp_path / 'run', [1.0], agent='dqn')
  before = run_results.read_run(str(path)).config_hash
  record = json.loads((path / 'run.json').read_text())
  change_record(path, gin_config=f'{binding}\n{record["gin_config"]}')
  after = run_results.read_run(str(path)).config_hash
  assert (after != before) == is_another_method


def test_the_strategy_is_that_of_the_runs_agent(tmp_path):
  path = made_up_runs.write(tmp_path / 'run', [1.0], agent='multi_network_dqn')
  record = json.loads((path / 'run.json').read_text())
  other = "FixedReplayMultiHeadDQNAgent.transform_strategy = 'AVERAGE'"
  change_record(path, gin_config=f'{other}\n{record["gin_config"]}')
  assert run_results.read_run(str(path)).agent == 'REM (networks)'


@pytest.mark.parametrize(
  ('data', 'display_name', 'name'),
  [
    (1, 'CQL', 'CQL'),
    (None, 'CQL', 'CQL, online'),
    (1, None, 'mine.CQLAgent'),
  ],
)
def test_names_of_a_users_agent(tmp_path, data, display_name, name):
  path = made_up_runs.write(
    tmp_path / 'run', [1.0], agent='mine.CQLAgent', data=data
  )
  change_record(path, display_name=display_name)
  run = run_results.read_run(str(path))
  assert run.agent == name
  # Two classes with one display name are two methods.
  assert run.config['agent'] == 'mine.CQLAgent'


def test_arguments_of_a_users_function_define_the_method(tmp_path):
  path = made_up_runs.write(tmp_path / 'run', [1.0], agent='mine.CQLAgent')
  create_agent = {
    'name': '/home/me/train.py:create',
    'args': [3],
    'kwargs': {'weight': 2.0, 'data_dir': '/data/Pong/1'},
  }
  change_record(path, create_agent=create_agent, epsilon_eval=0.05)
  run = run_results.read_run(str(path))
  own = {k: v for k, v in run.config.items() if k.startswith('create_agent')}
  assert own == {
    'create_agent': 'create',
    'create_agent.0': '3',
    'create_agent.weight': '2.0',
  }
  assert run.protocol['epsilon'] == '0.05'
  shipped = {
    'name': 'batch_rl.a:create',
    'kwargs': {'init_checkpoint_dir': 'b'},
  }
  change_record(path, create_agent=shipped)
  run = run_results.read_run(str(path))
  assert not [key for key in run.config if key.startswith('create_agent')]


def test_the_facts_of_a_run(tmp_path):
  made_up_runs.write(
    tmp_path / 'run',
    [-21.0, 3.5],
    seed=7,
    data=4,
    planned=5,
    subset='first(0.1)',
    gamma=0.9,
    epsilon_eval=0.05,
  )
  run = run_results.read_run(str(tmp_path / 'run'))
  assert (run.game, run.seed, run.data) == ('Pong', '7', 'Pong/4')
  assert run.returns.tolist() == [-21.0, 3.5]
  assert run.episodes.tolist() == [2, 2]
  assert (run.done, run.planned, run.is_finished) == (2, 5, False)
  assert run.protocol['epsilon'] == '0.05'
  assert run.protocol['subset'] == 'first(0.1)'
  assert run.protocol['sticky'] == '0.25'
  assert run.protocol['frame cap'] == '108000'
  assert run.config == {
    'FixedReplayDQNAgent.optimizer': '@tf.train.AdamOptimizer()',
    'FixedReplayDQNAgent.gamma': '0.9',
  }


def test_macros_are_resolved(tmp_path):
  path = made_up_runs.write(
    tmp_path / 'run', [1.0], epsilon_eval='%exploration', gamma='%unknown.GAMMA'
  )
  record = json.loads((path / 'run.json').read_text())
  record['gin_config'] = f'exploration = \\\n    0.07\n{record["gin_config"]}'
  (path / 'run.json').write_text(json.dumps(record))
  run = run_results.read_run(str(path))
  assert run.protocol['epsilon'] == '0.07'
  assert run.config['FixedReplayDQNAgent.gamma'] == '%unknown.GAMMA'


def test_an_online_run_is_named_online(tmp_path):
  made_up_runs.write(tmp_path / 'run', [1.0], data=None)
  run = run_results.read_run(str(tmp_path / 'run'))
  assert (run.agent, run.data) == ('DQN (Adam), online', '')


def test_dopamine_logs(tmp_path):
  base_dir = tmp_path / 'Breakout' / 'run'
  made_up_runs.write_dopamine_log(base_dir, [1.0, 2.0, 5.0])
  with pytest.raises(run_results.NoResultsError, match='AGENT/GAME'):
    run_results.read_run(str(base_dir))
  run = run_results.read_run(str(base_dir), 'Rainbow')
  assert (run.agent, run.game) == ('Rainbow', 'Breakout')
  assert run.returns.tolist() == [1.0, 2.0, 5.0]
  assert run.episodes.tolist() == [2, 2, 2]
  assert run.is_finished and run.protocol['rom'] == '?'


def test_the_last_log_counts(tmp_path):
  made_up_runs.write_dopamine_log(tmp_path / 'run', [1.0, 2.0])
  old = pickle.dumps({'iteration_0': {'eval_average_return': [9.0]}})
  (tmp_path / 'run' / 'logs' / 'log_0').write_bytes(old)
  run = run_results.read_run(str(tmp_path / 'run'), 'DQN', 'Pong')
  assert run.returns.tolist() == [1.0, 2.0]


def test_logs_that_would_run_code_are_rejected(tmp_path):
  class Evil:
    def __reduce__(self):
      return (open, (str(tmp_path / 'stolen'), 'w'))

  (tmp_path / 'run' / 'logs').mkdir(parents=True)
  path = tmp_path / 'run' / 'logs' / 'log_0'
  path.write_bytes(pickle.dumps({'iteration_0': Evil()}))
  with pytest.raises(run_results.NoResultsError):
    run_results.read_run(str(tmp_path / 'run'), 'DQN', 'Pong')
  assert not (tmp_path / 'stolen').exists()


@pytest.mark.parametrize(
  ('damage', 'message'),
  [
    (lambda d: [p.unlink() for p in d.glob('evaluations/*')], 'no evaluations'),
    (lambda d: (d / 'evaluations' / '1.json').unlink(), 'iteration 1'),
    (lambda d: (d / 'evaluations' / '1.json').write_text('{"a'), 'not JSON'),
    (
      lambda d: (d / 'evaluations' / '1.json').write_text('{}'),
      'it has no episodes',
    ),
    (
      lambda d: (d / 'evaluations' / '1.json').write_text(
        json.dumps({'mean_return': float('nan'), 'episodes': []})
      ),
      'iteration 1 is nan',
    ),
    (lambda d: (d / 'run.json').write_text('[]'), 'run.json'),
    (lambda d: (d / 'run.json').write_text('[' * 100_000), 'run.json is'),
    (lambda d: (d / 'run.json').write_bytes(b'\xff'), 'run.json is'),
    (lambda d: (d / 'run.json').write_text('{"seed": 1e999}'), 'seed is inf'),
    (
      lambda d: (d / 'evaluations' / '1.json').write_text('[' * 100_000),
      '1.json is damaged',
    ),
    (
      lambda d: (d / 'evaluations' / '1.json').write_text(
        '{"mean_return": 1' + '0' * 400 + '}'
      ),
      '1.json is damaged: mean_return is 1',
    ),
    (
      # A range up to this number would take all memory.
      lambda d: (d / 'evaluations' / '2.json').rename(
        d / 'evaluations' / '99999999999999.json'
      ),
      'iteration 2',
    ),
    (lambda d: (d / 'run.json').write_text('{}'), 'its agent'),
    (lambda d: (d / 'run.json').write_text('{"agent": "x"}'), 'its game'),
  ],
)
def test_damaged_or_incomplete_runs(tmp_path, damage, message):
  run = made_up_runs.write(tmp_path / 'run', [1.0, 2.0, 3.0])
  damage(run)
  with pytest.raises(run_results.NoResultsError, match=message):
    run_results.read_run(str(run))


@pytest.mark.parametrize(
  ('name', 'content'),
  [
    ('run.json', '{"agent": ["x"], "environment": {"game": "Pong"}}'),
    ('run.json', '{"agent": "dqn", "environment": {"game": 3}}'),
    ('run.json', '{"agent": "dqn", "environment": "Pong"}'),
    ('evaluations/0.json', '[]'),
    ('evaluations/0.json', '{"mean_return": [1]}'),
    ('evaluations/0.json', '{"mean_return": 1, "episodes": 3}'),
  ],
)
def test_files_with_another_structure(tmp_path, name, content):
  run = made_up_runs.write(tmp_path / 'run', [1.0])
  (run / name).write_text(content)
  with pytest.raises(run_results.NoResultsError):
    run_results.read_run(str(run))


def test_an_infinite_plan_is_read(tmp_path):
  made_up_runs.write(tmp_path / 'run', [1.0], planned='1e999')
  assert run_results.read_run(str(tmp_path / 'run')).planned == 200


def test_nulls_count_as_missing(tmp_path):
  run = made_up_runs.write(tmp_path / 'run', [1.0])
  record = json.loads((run / 'run.json').read_text())
  record |= dict.fromkeys(('data', 'versions', 'evaluation_environments'))
  (run / 'run.json').write_text(json.dumps(record))
  assert run_results.read_run(str(run)).protocol['subset'] == 'all'


def test_names_of_games_are_in_camel_case(tmp_path):
  made_up_runs.write(tmp_path / 'run', [1.0])
  path = tmp_path / 'run' / 'run.json'
  path.write_text(path.read_text().replace('"Pong"', '"pong"'))
  assert run_results.read_run(str(tmp_path / 'run')).game == 'Pong'


def test_the_record_precedes_the_given_names(tmp_path):
  made_up_runs.write(tmp_path / 'run', [1.0])
  run = run_results.read_run(str(tmp_path / 'run'), 'Rainbow', 'Breakout')
  assert (run.agent, run.game) == ('DQN (Adam)', 'Pong')


def test_evaluations_beyond_the_plan_do_not_count(tmp_path):
  made_up_runs.write(tmp_path / 'run', [1.0, 2.0, 9.0], planned=2)
  assert run_results.read_run(str(tmp_path / 'run')).returns.tolist() == [
    1.0,
    2.0,
  ]


def test_find_runs(tmp_path):
  made_up_runs.write(tmp_path / 'b' / 'Pong' / '1', [1.0])
  made_up_runs.write(tmp_path / 'a' / 'logs' / '2', [1.0])
  made_up_runs.write_dopamine_log(tmp_path / 'a' / 'dopamine', [1.0])
  (tmp_path / 'a' / 'nothing').mkdir()
  (tmp_path / 'a' / 'round').symlink_to(tmp_path)
  found, unread = run_results.find_runs([str(tmp_path / 'b'), str(tmp_path)])
  assert [path.removeprefix(f'{tmp_path}/') for path in found] == [
    'b/Pong/1',
    'a/dopamine',
    'a/logs/2',
  ]
  assert not unread
  with pytest.raises(ValueError, match='no_such'):
    run_results.find_runs([str(tmp_path / 'no_such')])


def test_find_runs_follows_links(tmp_path):
  made_up_runs.write(tmp_path / 'elsewhere' / 'run', [1.0])
  (tmp_path / 'runs').mkdir()
  (tmp_path / 'runs' / 'link').symlink_to(tmp_path / 'elsewhere')
  found, _ = run_results.find_runs([str(tmp_path / 'runs')])
  assert len(found) == 1
