"""Several updates in a `session.run` are what one at a time would be."""

import collections
import functools
import types

import gin
import numpy as np
import pytest
import tensorflow as tf
from dopamine.tf.agents.dqn import dqn_agent

from batch_rl.fixed_replay.agents import AGENTS, fixed_replay_agent
from batch_rl.runs import runner
from batch_rl.tests import cartpole

CLASSES = runner.agent_classes('batch_rl.fixed_replay.agents', AGENTS)


@pytest.fixture(scope='module')
def log_dir(tmp_path_factory):
  directory = tmp_path_factory.mktemp('log')
  cartpole.write_log(directory)
  return str(directory)


@pytest.fixture
def make_agent(log_dir):
  """Builds an agent with weights and data of seed 1, in a graph of its own."""

  def make(name='dqn', class_=None, prefetch=8, data_dir=log_dir, **kwargs):
    kwargs.setdefault('seed', 1)
    gin.bind_parameter('WrappedFixedReplayBuffer.prefetch', prefetch)
    kwargs.setdefault('optimizer', tf.compat.v1.train.AdamOptimizer(0.01))
    with tf.Graph().as_default():
      tf.compat.v1.set_random_seed(1)
      return (class_ or CLASSES[name])(
        None,
        cartpole.NUM_ACTIONS,
        data_dir,
        **cartpole.OBSERVATION,
        **cartpole.SMALL[name],
        **kwargs,
      )

  return make


def in_pieces(agent):
  """Trains for numbers of steps that are no multiples of anything."""
  return [loss for steps in (50, 7, 1, 30) for loss in agent.train_steps(steps)]


def assert_same_results(one, other):
  left, right = in_pieces(one), in_pieces(other)
  assert left == right
  assert one.training_steps == other.training_steps == 88
  left, right = cartpole.values(one), cartpole.values(other)
  for variable, array in left.items():
    np.testing.assert_array_equal(array, right[variable], err_msg=variable)


# The target network is synchronised between two updates; with 12, with an update.
@pytest.mark.parametrize(
  'name, target_update_period', [*((name, 7) for name in AGENTS), ('dqn', 12)]
)
def test_results_are_the_same_to_the_bit(
  make_agent, name, target_update_period
):
  """Dopamine's way, and several at once from prefetched batches."""
  periods = {
    'update_period': 4,
    'target_update_period': target_update_period,
  }
  assert_same_results(
    make_agent(name, prefetch=0, updates_per_run=1, **periods),
    make_agent(name, updates_per_run=5, **periods),
  )


def test_results_are_the_same_without_a_feed(make_agent):
  """The loop calls Python for each batch."""
  assert_same_results(
    make_agent(prefetch=0, updates_per_run=1),
    make_agent(prefetch=0, updates_per_run=5),
  )


def test_batches_are_sent_to_the_agents_device_ahead(make_agent, monkeypatch):
  """Two devices of the processor stand for it and a GPU."""
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
  # What an update hands to the next.
  handed_over = collections.Counter(
    (tf.as_dtype(node.attr['T'].type), node.device[-1])
    for graph in run.partition_graphs
    for node in graph.node
    if node.op == 'NextIteration'
  )
  assert handed_over[tf.uint8, '1'] == 1  # terminals
  assert handed_over[tf.uint8, '0'] == 0
  assert handed_over[tf.float64, '1'] == 2  # states and next states


def test_the_target_network_is_synchronised_in_the_loop(make_agent):
  agent = make_agent(
    updates_per_run=100, update_period=1, target_update_period=10
  )
  list(agent.train_steps(41))  # the last one synchronises
  online = cartpole.weights(agent, 'Online')
  np.testing.assert_array_equal(online, cartpole.weights(agent, 'Target'))
  list(agent.train_steps(9))
  np.testing.assert_array_equal(online, cartpole.weights(agent, 'Target'))
  assert not np.array_equal(online, cartpole.weights(agent, 'Online'))


def test_summaries_are_written_and_change_nothing(make_agent, tmp_path):
  plain = make_agent(updates_per_run=5, update_period=2)
  agent = make_agent(
    updates_per_run=5,
    update_period=2,
    summary_writer=str(tmp_path),
    summary_writing_frequency=12,
  )
  assert in_pieces(agent) == in_pieces(plain)
  agent.summary_writer.flush()
  (path,) = tmp_path.iterdir()
  steps = [
    event.step
    for event in tf.compat.v1.train.summary_iterator(str(path))
    for value in event.summary.value
    if 'HuberLoss' in value.tag
  ]
  assert steps == [12, 24, 36, 48, 60, 72, 84]


def test_it_stops_at_a_loss_that_is_not_a_number(make_agent):
  updates = []
  for per_run in (1, 50):
    agent = make_agent(
      updates_per_run=per_run,
      update_period=1,
      optimizer=tf.compat.v1.train.GradientDescentOptimizer(1e15),
    )
    with pytest.raises(FloatingPointError, match='at update') as error:
      list(agent.train_steps(50))
    updates.append(str(error.value))
  assert updates[0] == updates[1]
  assert not updates[0].endswith('update 0.')


@pytest.mark.parametrize('name', ['dqn', 'c51'])
def test_xla_compiles_the_update(make_agent, name):
  plain = in_pieces(make_agent(name, updates_per_run=1, update_period=4))
  agent = make_agent(name, jit_compile=True, update_period=4)
  np.testing.assert_allclose(in_pieces(agent), plain, rtol=1e-3)


def test_xla_draws_mixtures_by_step_and_seed(make_agent):
  losses = [
    in_pieces(
      make_agent('multi_head_dqn', jit_compile=True, updates_per_run=per_run)
    )
    for per_run in (1, 7)
  ]
  assert losses[0] == losses[1]


def test_agents_with_a_training_step_of_their_own_keep_it(make_agent):
  steps = []

  class Agent(fixed_replay_agent.FixedReplayAgentMixin, dqn_agent.DQNAgent):
    def _train_step(self):
      steps.append(self.training_steps)
      return super()._train_step()

  losses = list(make_agent(class_=Agent, update_period=2).train_steps(6))
  assert steps == list(range(6)) and len(losses) == 3
  with pytest.raises(ValueError, match='jit_compile: it has a _train_step'):
    make_agent(class_=Agent, jit_compile=True)


def test_what_cannot_be_copied_is_run_one_at_a_time(make_agent):
  class Agent(fixed_replay_agent.FixedReplayAgentMixin, dqn_agent.DQNAgent):
    def _build_target_q_op(self):
      self.scale = tf.compat.v1.placeholder_with_default(1.0, ())
      fed = tf.compat.v1.placeholder(tf.float32, ())
      return tf.cond(
        self.scale > 0, super()._build_target_q_op, lambda: fed + tf.zeros(32)
      )

  agent = make_agent(class_=Agent)
  assert agent._loop is None
  with pytest.raises(ValueError, match='jit_compile: it has operations of'):
    make_agent(class_=Agent, jit_compile=True)


def test_what_calls_python_is_run_one_at_a_time(make_agent):
  """Here the target depends on the step, of which the loop does not know."""

  class Agent(fixed_replay_agent.FixedReplayAgentMixin, dqn_agent.DQNAgent):
    def _build_target_q_op(self):
      step = tf.numpy_function(
        lambda: np.float32(self.training_steps), [], tf.float32
      )
      return super()._build_target_q_op() + tf.ensure_shape(step, ())

  assert make_agent(class_=Agent)._loop is None
  with pytest.raises(ValueError, match='jit_compile: it calls Python'):
    make_agent(class_=Agent, jit_compile=True)
  with pytest.raises(ValueError, match='jit_compile: it calls Python'):
    make_agent(prefetch=0, jit_compile=True)
  assert make_agent(prefetch=0)._loop is not None


@pytest.mark.parametrize('value', [0, 1.5, -1])
def test_wrong_numbers_are_refused(make_agent, value):
  with pytest.raises(ValueError, match=f'updates_per_run={value} is not'):
    make_agent(updates_per_run=value)
