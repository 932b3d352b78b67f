"""The examples, copied out of the repository: they run as they are.

`fixed_replay/jax_agent_test` tests that of Dopamine's JAX agents,
`decision_transformer_test` that of the Decision Transformer.
"""

import importlib
import pathlib
import runpy
import shutil
import types

import numpy as np
import pytest
import tensorflow as tf

from batch_rl import dataset
from batch_rl.dataset import run_directories
from batch_rl.dataset.checks import run_checks, run_statistics
from batch_rl.fixed_replay import train
from batch_rl.report import run_results
from batch_rl.tests import (
  cartpole,
  correctness,
  equations,
  learning_test,
  programs,
  shards,
  user_code,
)

EXAMPLES = pathlib.Path(__file__).parents[2] / 'examples'
SHORT = (
  'FixedReplayRunner.num_iterations = 1',
  'FixedReplayRunner.training_steps = 80',
  'FixedReplayRunner.evaluation_steps = 40',
)
DQN_NETWORK = 'CartpoleDQNNetwork'


def train_example(name, replay_dir, *bindings):
  """Trains a copy of an example by the program; returns the results."""
  shutil.copytree(EXAMPLES / name, name)
  programs.run_here(
    train,
    base_dir=f'run_{name}',
    replay_dir=replay_dir,
    seed=1,
    gin_files=[f'{name}/{name}.gin'],
    gin_bindings=[*SHORT, *bindings],
  )
  return run_results.read_run(f'run_{name}')


@pytest.mark.parametrize(
  ('name', 'agent', 'network', 'shown'),
  [
    ('cql', 'CQLAgent', 'CartpoleQuantileNetwork', 'CQL'),
    ('behavioural_cloning', 'BehaviouralCloningAgent', DQN_NETWORK, 'BC'),
    ('bcq', 'BCQAgent', DQN_NETWORK, 'BCQ'),
  ],
)
@pytest.mark.usefixtures('own_folder')
def test_agents_train_and_are_reported(name, agent, network, shown):
  cartpole.write_log('data/CartPole/1/replay_logs')
  run = train_example(
    name,
    'data/CartPole/1',
    learning_test.EVERYWHERE.format(runner='FixedReplayRunner', agent=agent),
    'import batch_rl.tests.cartpole_networks',
    f'{agent}.network = @{network}',
    "FixedReplayBuffer.subset = 'shards(0, 2)'",
  )
  assert run.agent == shown and run.done == 1


@pytest.mark.parametrize('threshold', [0.0, 0.3, 1.0])
@pytest.mark.usefixtures('own_folder')
def test_bcq_is_that_of_its_paper(make_agent, monkeypatch, threshold):
  monkeypatch.syspath_prepend(EXAMPLES / 'bcq')
  class_ = importlib.import_module('bcq').BCQAgent
  agent = make_agent(class_=class_, threshold=threshold)
  made = correctness.make_batch(5, 64)
  with agent._sess.graph.as_default():
    batch = types.SimpleNamespace(
      state=tf.constant(10 * made.states),
      action=tf.constant(made.actions),
      reward=tf.constant(made.rewards),
      next_state=tf.constant(10 * made.next_states),
      terminal=tf.constant(made.terminals),
      seed=None,
    )
    outputs = agent.online(batch.next_state)
    found = agent._sess.run(
      (
        agent.loss(batch),
        agent.choose_actions(outputs, None),
        *agent.online(batch.state),
        *outputs,
        agent.target(batch.next_state).q_values,
      )
    )
  losses, actions, q, logits, next_q, next_logits, next_targets = found
  next_g = equations.softmax(next_logits)
  is_likely = next_g >= threshold * next_g.max(axis=1, keepdims=True)
  best = np.where(is_likely, next_q, -np.inf).argmax(axis=1)
  np.testing.assert_array_equal(actions, best)
  rows = np.arange(64)
  values = np.where(made.terminals, 0, next_targets[rows, best])
  errors = made.rewards + agent.cumulative_gamma * values
  errors -= q[rows, made.actions]
  log_g = np.log(equations.softmax(logits))[rows, made.actions]
  expected = [equations.huber(error) for error in errors] - log_g
  expected += 0.01 * np.mean(logits**2, axis=1)
  np.testing.assert_allclose(losses, expected, rtol=1e-4)
  greedy, likeliest = next_q.argmax(1), next_logits.argmax(1)
  assert (greedy != likeliest).any()
  # Without a bound it is a double DQN, with the highest one behavioural cloning.
  assert (actions == greedy).all() == (threshold == 0)
  assert (actions == likeliest).all() == (threshold == 1)


def test_dqn_trains_in_pytorch(tmp_path, capsys):
  pytest.importorskip('torch', reason='PyTorch is not installed')
  shards.write_images(tmp_path)
  example = runpy.run_path(EXAMPLES / 'pytorch_dqn/pytorch_dqn.py')
  example['main'](str(tmp_path), 2)
  update, loss = capsys.readouterr().out.split()
  assert update == '0' and float(loss) > 0
  network = example['NatureNetwork'](6)
  assert sum(p.numel() for p in network.parameters()) == 1_687_206


def test_transitions_are_read_as_tensordicts(tmp_path):
  pytest.importorskip('tensordict', reason='tensordict is not installed')
  shards.write_images(tmp_path)
  example = runpy.run_path(EXAMPLES / 'tensordict_reader/tensordict_reader.py')
  sampler = dataset.open(tmp_path).transitions(seed=1)
  batch, expected = next(example['transitions'](sampler)), sampler.batch(0, 32)
  for name, array in (
    ('observation', expected.state),
    (('next', 'observation'), expected.next_state),
    (('next', 'done'), expected.terminal.astype(bool)[:, None]),
  ):
    np.testing.assert_array_equal(batch[name], array)


@pytest.mark.usefixtures('own_folder')
def test_an_environment_is_logged_and_trained_on():
  script = EXAMPLES / 'own_environment/own_environment.py'
  user_code.run_script(str(script), 'data/GridWorld/1/replay_logs')
  run = run_directories.as_run('data/GridWorld/1')
  assert not run_checks.verify(run.data_dir).problems
  statistics = run_statistics.compute(run)
  assert statistics.game == 'GridWorld'
  assert statistics.totals()['episodes'] == 300
  # Each step costs 0.1; the opposite corner is 8 steps away.
  np.testing.assert_allclose(
    statistics.episodes.returns, -0.1 * statistics.lengths, rtol=1e-5
  )
  assert statistics.lengths.min() >= 8 and len(statistics.actions) == 4
  # With any seed, 1,000 updates suffice for the shortest way.
  trained = train_example(
    'own_environment',
    'data/GridWorld/1',
    'FixedReplayRunner.training_steps = 4000',
  )
  assert trained.game == 'GridWorld'
  assert '?' not in trained.protocol.values()  # There is no ROM.
  assert trained.returns.tolist() == pytest.approx([-0.8])
