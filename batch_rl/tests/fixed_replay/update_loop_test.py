"""A loop of updates in one `session.run` equals single updates."""

import collections
import functools
import types

import numpy as np
import pytest
import tensorflow as tf
from dopamine.tf.agents.dqn import dqn_agent

from batch_rl.fixed_replay.agents import AGENTS, fixed_replay_agent
from batch_rl.tests import cartpole


@pytest.fixture
def make_agent(log_dir):
  """Returns a function that builds an agent with the settings of the shared ones."""

  def make(name='dqn', **kwargs):
    settings = {**cartpole.SHARED_SETTINGS, **kwargs}
    return cartpole.build_offline_agent(name, log_dir, **settings)

  return make


def in_pieces(agent):
  """Trains for several numbers of steps, most of them not multiples of a period."""
  return [loss for steps in (50, 7, 1, 30) for loss in agent.train_steps(steps)]


def train_by(agent, first_values, updates_per_run):
  """Trains an agent from its first state; returns losses and variables."""
  cartpole.restart(agent, first_values)
  agent._updates_per_run = updates_per_run
  agent.__dict__.pop('_loop', None)  # Single updates have none.
  losses = in_pieces(agent)
  assert agent.training_steps == 88
  assert (agent._loop is None) == (updates_per_run == 1)
  return losses, cartpole.values(agent)


def assert_same_results(one, other):
  (left, variables), (right, others) = one, other
  assert left == right
  assert variables.keys() == others.keys()
  for variable, array in variables.items():
    np.testing.assert_array_equal(array, others[variable], err_msg=variable)


@pytest.mark.parametrize('name', AGENTS)
def test_results_are_the_same_to_the_bit(shared_agents, make_agent, name):
  """One update per `session.run`, as in Dopamine, and several.

  The target network is synchronised both with an update and between two.
  """
  agent = shared_agents(name)
  first_values = cartpole.values(agent)
  single = train_by(agent, first_values, updates_per_run=1)
  assert len(set(single[0])) == 22
  assert_same_results(train_by(agent, first_values, updates_per_run=5), single)
  if name == 'dqn':  # Drawing batches is the same for all agents.
    agent = make_agent(prefetch=0)  # The loop calls Python for each batch.
    first_values = cartpole.values(agent)
    assert_same_results(train_by(agent, first_values, 1), single)
    assert_same_results(train_by(agent, first_values, 5), single)


def test_batches_are_sent_to_the_agents_device_ahead(make_agent, monkeypatch):
  """Two CPU devices stand in for a CPU and a GPU."""
  new_session, device = tf.compat.v1.Session, tf.device

  def session(target, config, **kwargs):
    config.device_count['CPU'] = 2
    return new_session(target, config=config, **kwargs)

  monkeypatch.setattr(tf.compat.v1, 'Session', session)
  monkeypatch.setattr(
    tf, 'device', lambda n: device('/cpu:0' if n == '/cpu:*' else n)
  )
  agent = make_agent(tf_device='/cpu:1')
  run = tf.compat.v1.RunMetadata()
  traced = types.SimpleNamespace(
    run=functools.partial(
      agent._sess.run,
      options=tf.compat.v1.RunOptions(output_partition_graphs=True),
      run_metadata=run,
    )
  )
  losses, _ = agent._loop.run(traced, 0, 3)
  assert np.isfinite(losses).all()
  # Tensors that one update passes on to the next, by type and device.
  passed_on = collections.Counter(
    (tf.as_dtype(node.attr['T'].type), node.device[-1])
    for graph in run.partition_graphs
    for node in graph.node
    if node.op == 'NextIteration'
  )
  assert passed_on[tf.uint8, '1'] == 1  # terminals
  assert passed_on[tf.uint8, '0'] == 0
  assert passed_on[tf.float64, '1'] == 2  # states and next states


def test_summaries_are_written_and_change_nothing(
  shared_agents, make_agent, tmp_path
):
  agent = make_agent(
    updates_per_run=5,
    summary_writer=str(tmp_path),
    summary_writing_frequency=12,
  )
  assert in_pieces(agent) == in_pieces(shared_agents('dqn'))
  agent.summary_writer.flush()
  (path,) = tmp_path.iterdir()
  steps = [
    event.step
    for event in tf.compat.v1.train.summary_iterator(str(path))
    for value in event.summary.value
    if 'HuberLoss' in value.tag
  ]
  assert steps == [12, 24, 36, 48, 60, 72, 84]


def test_training_stops_at_a_loss_that_is_not_a_number(make_agent):
  agent = make_agent(
    optimizer=tf.compat.v1.train.GradientDescentOptimizer(1e15)
  )
  first_values = cartpole.values(agent)
  updates = []
  for updates_per_run in (1, 50):
    with pytest.raises(FloatingPointError, match='at update') as error:
      train_by(agent, first_values, updates_per_run)
    updates.append(str(error.value))
  assert updates[0] == updates[1]
  assert not updates[0].endswith('update 0.')


def test_xla_compiles_the_update(shared_agents, make_agent):
  agent = make_agent('c51', jit_compile=True)
  losses = in_pieces(shared_agents('c51'))
  np.testing.assert_allclose(in_pieces(agent), losses, rtol=1e-3)


def test_xla_draws_mixtures_by_step_and_seed(make_agent):
  agent = make_agent('multi_head_dqn', jit_compile=True)
  first_values, losses = cartpole.values(agent), []
  for updates_per_run in (1, 7):
    cartpole.restart(agent, first_values)
    agent._updates_per_run = updates_per_run
    losses.append(in_pieces(agent))
  assert losses[0] == losses[1]


def assert_jit_is_refused(agent, reason):
  agent._jit_compile = True
  agent.__dict__.pop('_loop', None)
  with pytest.raises(ValueError, match=f'jit_compile: {reason}'):
    _ = agent._loop


def test_agents_with_a_training_step_of_their_own_keep_it(make_agent):
  steps = []

  class Agent(fixed_replay_agent.FixedReplayAgentMixin, dqn_agent.DQNAgent):
    def _train_step(self):
      steps.append(self.training_steps)
      return super()._train_step()

  agent = make_agent(class_=Agent, update_period=2)
  assert len(list(agent.train_steps(6))) == 3
  assert steps == list(range(6))
  assert_jit_is_refused(agent, 'it overrides _train_step')


def test_updates_with_placeholders_run_one_at_a_time(make_agent):
  class Agent(fixed_replay_agent.FixedReplayAgentMixin, dqn_agent.DQNAgent):
    def _build_target_q_op(self):
      self.scale = tf.compat.v1.placeholder_with_default(1.0, ())
      fed = tf.compat.v1.placeholder(tf.float32, ())
      return tf.cond(
        self.scale > 0, super()._build_target_q_op, lambda: fed + tf.zeros(32)
      )

  agent = make_agent(class_=Agent)
  assert agent._loop is None
  assert_jit_is_refused(agent, 'it has operations of')


def test_updates_that_call_python_run_one_at_a_time(make_agent):
  """The target depends on the agent's step, which the loop does not know."""

  class Agent(fixed_replay_agent.FixedReplayAgentMixin, dqn_agent.DQNAgent):
    def _build_target_q_op(self):
      step = tf.numpy_function(
        lambda: np.float32(self.training_steps), [], tf.float32
      )
      return super()._build_target_q_op() + tf.ensure_shape(step, ())

  agent = make_agent(class_=Agent)
  assert agent._loop is None
  assert_jit_is_refused(agent, 'it calls Python')


def test_jit_without_prefetching_is_refused_at_once(make_agent):
  """Each batch would be a call of Python."""
  with pytest.raises(ValueError, match='jit_compile: it calls Python'):
    make_agent(prefetch=0, jit_compile=True)


@pytest.mark.parametrize('value', [0, 1.5, -1])
def test_invalid_updates_per_run_are_refused(make_agent, value):
  with pytest.raises(ValueError, match=f'updates_per_run={value} is not'):
    make_agent(updates_per_run=value)
