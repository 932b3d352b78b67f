"""The examples, copied out of the repository: they run as they are.

`fixed_replay/jax_agent_test` tests that of Dopamine's JAX agents.
"""

import importlib
import pathlib
import runpy
import shutil

import numpy as np
import pytest
import tensorflow as tf

from batch_rl import dataset
from batch_rl.agents import loss_agent
from batch_rl.dataset import run_directories
from batch_rl.dataset.checks import run_checks, run_statistics
from batch_rl.fixed_replay import train
from batch_rl.report import run_results
from batch_rl.tests import cartpole, programs, shards, user_code

EXAMPLES = pathlib.Path(__file__).parents[2] / 'examples'
SHORT = (
  'FixedReplayRunner.num_iterations = 1',
  'FixedReplayRunner.training_steps = 80',
  'FixedReplayRunner.evaluation_steps = 40',
)
DQN_NETWORK = 'CartpoleDQNNetwork'
CARTPOLE = """
    import batch_rl.tests.cartpole_networks
    import dopamine.discrete_domains.gym_lib
    create_gym_environment.environment_name = 'CartPole'
    create_gym_environment.version = 'v1'
    FixedReplayRunner.create_environment_fn = @gym_lib.create_gym_environment
    {agent}.observation_shape = %gym_lib.CARTPOLE_OBSERVATION_SHAPE
    {agent}.observation_dtype = %gym_lib.CARTPOLE_OBSERVATION_DTYPE
    {agent}.stack_size = %gym_lib.CARTPOLE_STACK_SIZE
    {agent}.network = @{network}
"""


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
    CARTPOLE.format(agent=agent, network=network),
    "FixedReplayBuffer.subset = 'shards(0, 2)'",
  )
  assert run.agent == shown and run.done == 1


def bcq_losses(batch, outputs, next_outputs, next_targets, gamma, threshold):
  """The losses of discrete BCQ, one transition after the other, in float64."""
  losses = []
  for i, action in enumerate(batch.action):
    q, logits = (np.float64(output[i]) for output in outputs)
    next_q, next_logits = (np.float64(output[i]) for output in next_outputs)
    probability = np.exp(next_logits) / np.exp(next_logits).sum()
    likely = probability / probability.max() >= threshold
    best = np.argmax(np.where(likely, next_q, -np.inf))
    value = 0 if batch.terminal[i] else next_targets[i, best]
    error = abs(batch.reward[i] + gamma * value - q[action])
    huber = error**2 / 2 if error <= 1 else error - 0.5
    likelihood = np.exp(logits[action]) / np.exp(logits).sum()
    losses.append(huber - np.log(likelihood) + 0.01 * np.mean(logits**2))
  return losses


@pytest.fixture
def bcq(monkeypatch, own_folder):
  """The example's module, with a log of CartPole beside it."""
  monkeypatch.syspath_prepend(EXAMPLES / 'bcq')
  cartpole.write_log('log')
  with user_code.forgotten():
    yield importlib.import_module('bcq')


@pytest.mark.parametrize('threshold', [0.0, 0.3, 1.0])
def test_bcq_is_that_of_its_paper(bcq, threshold):
  n, num_actions = 64, 5
  random = np.random.default_rng(3)
  agent = cartpole.build_offline_agent(
    'dqn', 'log', bcq.BCQAgent, num_actions, threshold=threshold
  )
  states, next_states = random.normal(0, 5, (2, n, 4, 1, 1))
  nothing = dict.fromkeys(loss_agent.Batch._fields)
  batch = loss_agent.Batch(
    **nothing
    | {
      'state': states,
      'action': random.integers(num_actions, size=n, dtype=np.int32),
      'reward': np.float32(random.normal(size=n)),
      'next_state': next_states,
      'terminal': np.uint8(random.integers(2, size=n)),
    }
  )
  with agent._sess.graph.as_default():
    tensors = loss_agent.Batch(
      *(None if value is None else tf.constant(value) for value in batch)
    )
    outputs = agent.online(tensors.next_state)
    losses, *found, actions = agent._sess.run(
      (
        agent.loss(tensors),
        agent.online(tensors.state),
        outputs,
        agent.target(tensors.next_state).q_values,
        agent.choose_actions(outputs, None),
      )
    )
  expected = bcq_losses(batch, *found, agent.cumulative_gamma, threshold)
  np.testing.assert_allclose(losses, expected, rtol=1e-4)
  next_q, next_logits = found[1]
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
