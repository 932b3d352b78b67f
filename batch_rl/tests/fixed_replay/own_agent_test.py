"""Agents of a user, outside the package: trained, evaluated and reported."""

import functools
import json
import shutil

import gin
import pytest
import tensorflow as tf

from batch_rl.fixed_replay import run_experiment, train
from batch_rl.report import run_results
from batch_rl.runs import command_line, run_record
from batch_rl.tests import cartpole, programs, user_code
from batch_rl.tests.fixed_replay import evaluate_test
from batch_rl.utils.user_code import user_modules

LIBRARY = """
import gin
from dopamine.discrete_domains import gym_lib
from batch_rl.fixed_replay.agents import dqn_agent
from batch_rl.tests import cartpole

@gin.configurable
class MyAgent(dqn_agent.FixedReplayDQNAgent):
  pass

def create(sess, environment, summary_writer, data_dir, gamma=0.9):
  settings = {**cartpole.OBSERVATION, **cartpole.SMALL['dqn'], 'seed': 1}
  settings |= {'gamma': gamma, 'summary_writer': summary_writer}
  return MyAgent(sess, environment.action_space.n, data_dir, **settings)

def make_environment():
  return gym_lib.create_gym_environment('CartPole', 'v1')

gin.parse_config_files_and_bindings([], ['DQNAgent.gamma = 0.1'])
"""


@pytest.fixture
def data_dir(tmp_path):
  cartpole.write_log(tmp_path / 'data/CartPole/1/replay_logs')
  return tmp_path / 'data/CartPole/1'


@pytest.fixture
def own_code(own_folder):
  """The folder of a user's agent `mine.MyAgent` and its gin file, and of another."""
  user_code.write(own_folder / 'folder' / 'elsewhere.py', user_code.AGENT)
  user_code.write(own_folder / 'mine.py', user_code.AGENT)
  user_code.write(own_folder / 'mine.gin', user_code.CONFIG)
  return own_folder


def evaluate(base_dir):
  evaluate_test.evaluate_here(base_dir=str(base_dir), evaluation_steps=20)
  path = base_dir / 'evaluations' / 'evaluate-0.json'
  return json.loads(path.read_text())['episodes']


def test_a_users_agent_is_reported(data_dir, own_code, tmp_path, monkeypatch):
  base_dir = tmp_path / 'base'
  before = user_modules.loaded_folders()  # of tests
  monkeypatch.chdir(own_code.parent)
  with user_code.forgotten():
    bound = ['MyAgent.gamma = 0.5', 'MyAgent.epsilon_eval = 0.25']
    files = ['own/mine.gin']  # The module is found beside it.
    start(data_dir, base_dir, gin_files=files, gin_bindings=bound, seed=1)
    assert command_line.unused_bindings() == []
  record = run_record.read(base_dir)
  assert record['agent'] == 'mine.MyAgent'
  assert record['modules'] == [*before, str(own_code)]
  assert len(record['code']['mine']) == 12
  shutil.rmtree(data_dir)
  monkeypatch.chdir(tmp_path)
  assert evaluate(base_dir)
  assert gin.query_parameter('mine.MyAgent.gamma') == 0.5
  run = run_results.read_run(str(base_dir))
  assert (run.agent, run.is_finished) == ('Mine', True)
  assert run.config['MyAgent.weight'] == '2.0'
  assert record['epsilon_eval'] == 0.25 == float(run.protocol['epsilon'])


def train_as_library(base_dir, data_dir):
  """Trains with `LIBRARY` in `mine.py`, which is forgotten afterwards."""
  with user_code.forgotten():
    user_modules.add_folder('')
    mine = __import__('mine')
    logs = f'{data_dir}/replay_logs'
    create = functools.partial(mine.create, data_dir=logs, gamma=0.5)
    tf.compat.v1.reset_default_graph()
    run_experiment.FixedReplayRunner(
      str(base_dir), create, mine.make_environment, num_iterations=1,
      training_steps=8, evaluation_steps=20, max_steps_per_episode=30,
    ).run_experiment()  # fmt: skip


def test_a_run_as_library(data_dir, own_folder, tmp_path, monkeypatch, refusal):
  user_code.write(own_folder / 'mine.py', LIBRARY)
  base_dir = tmp_path / 'base'
  train_as_library(base_dir, data_dir)
  record = run_record.read(base_dir)
  assert record['agent'] == 'mine.MyAgent'
  assert record['replay_dir'] == f'{data_dir}/replay_logs'
  shutil.rmtree(data_dir)
  monkeypatch.chdir(tmp_path)
  lengths = [episode['length'] for episode in evaluate(base_dir)]
  assert 20 <= sum(lengths) and max(lengths) <= 30
  run = run_results.read_run(str(base_dir), game='CartPole')
  assert (run.agent, run.is_finished, run.data) == ('My', True, 'CartPole/1')
  assert run.protocol['steps'] == '20'
  assert run.config['create_agent.gamma'] == '0.5'
  assert 'create_agent.data_dir' not in run.config
  record['create_agent']['name'] = 'mine:main.<locals>.<lambda>'
  (base_dir / 'run.json').write_text(json.dumps(record))
  printed = refusal(evaluate, base_dir)
  assert 'main.<locals>.<lambda> of mine cannot be imported' in printed


def start(data_dir, base_dir, **flags):
  """Starts the program with `mine.gin`, up to the end of the run."""
  given = {'gin_files': ['mine.gin'], 'base_dir': str(base_dir), **flags}
  programs.run_here(train, replay_dir=str(data_dir), **given)


def test_a_mistake_is_one_line(data_dir, own_code, tmp_path, refusal):
  scheme = 'FixedReplayDQNAgent.replay_scheme = 1'
  given = dict(agent_name='elsewhere.MyAgent', module_dirs=['folder'])
  given |= dict(gin_files=[], gin_bindings=[scheme])
  assert 'replay_scheme' in refusal(start, data_dir, tmp_path / 'base', **given)
  text = user_code.AGENT.replace('super().__init__', '"".format')
  user_code.write(own_code / 'short.py', text.replace('MyAgent', 'Short'))
  given |= dict(agent_name='short.Short', gin_bindings=[])
  given |= dict(gin_files=['batch_rl/tests/sweep/configs/cartpole.gin'])
  printed = refusal(start, data_dir, tmp_path / 'base', **given)
  assert 'let its __init__ call super().__init__(*args, **kwargs)' in printed


@pytest.mark.parametrize(
  ('definition', 'message'),
  [
    (
      'def unbundle(self, *args): super().unbundle(*args)',
      'unbundle returns N',
    ),
    ('def bundle_and_checkpoint(self, *_): pass', 'nd_checkpoint returns None'),
    (
      'weight = property(None, lambda *_: tf.Variable(1.0))',
      'Variable:0 after',
    ),
  ],
)
def test_checkpoints_need_all(data_dir, own_code, capsys, definition, message):
  text = f'import tensorflow as tf\n{user_code.AGENT}\n'
  text = text.replace("display_name = 'Mine'", definition)
  user_code.write(own_code / 'mine.py', text)
  with pytest.raises(SystemExit):
    for n in 1, 2:
      bound = programs.of_runner(num_iterations=n)
      start(data_dir, own_code / 'base', seed=1, gin_bindings=bound)
  assert message in capsys.readouterr().err


def test_a_run_keeps_its_networks_and_records_what_trains(
  data_dir, own_code, tmp_path, refusal, caplog
):
  base_dir = tmp_path / 'base'
  start(data_dir, base_dir, seed=1)
  before = (base_dir / 'run.json').read_text()

  def change(binding, iterations):
    bound = programs.of_runner(num_iterations=iterations, probe_size=0)
    bound += [programs.IMPORT_TINY_NETWORK, binding]
    start(data_dir, base_dir, seed=1, accept_changes=True, gin_bindings=bound)

  for iterations in 1, 2:
    printed = refusal(change, 'AnyAgent.network = @TinyNetwork', iterations)
    assert ', the checkpoint has none;' in printed
  change('AnyAgent.gamma = 0.5', 1)  # trains nothing
  assert (base_dir / 'run.json').read_text() == before
  user_code.write(own_code / 'mine.py', user_code.AGENT + '# changed')
  start(data_dir, base_dir, seed=1)  # trains nothing, either
  assert (base_dir / 'run.json').read_text() == before
  assert evaluate(base_dir)
  assert 'mine.py is not the code of mine that the run was' in caplog.text
  change('AnyAgent.gamma = 0.5', 2)
  assert 'gamma = 0.5' in run_record.read(base_dir)['gin_config']


WRONG = {
  'a network': """
    import gin
    import tensorflow as tf
    from dopamine.discrete_domains import gym_lib

    @gin.configurable
    class MyNetwork(gym_lib.CartpoleDQNNetwork):
      def call(self, state):
        return super().call(tf.matmul(state, tf.zeros((3, 3))))
    """,
  'an import': 'import nowhere_to_be_found',
}


@pytest.mark.parametrize('kind', WRONG)
def test_a_users_error_has_a_traceback(data_dir, own_folder, tmp_path, kind):
  user_code.write(own_folder / 'mine.py', WRONG[kind])
  user_code.write(
    own_folder / 'mine.gin',
    """
    include 'batch_rl/tests/sweep/configs/cartpole.gin'
    import mine
    FixedReplayDQNAgent.network = @MyNetwork
    """,
  )
  with pytest.raises((TypeError, ValueError, ImportError)) as raised:
    start(data_dir, tmp_path / 'base')
  assert 'mine.py' in str(raised.getrepr())
