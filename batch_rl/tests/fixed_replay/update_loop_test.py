"""A loop of updates in one `session.run` equals single updates."""

import numpy as np
import pytest
import tensorflow as tf
from dopamine.tf.agents.dqn.dqn_agent import DQNAgent

from batch_rl.fixed_replay.agents import fixed_replay_agent
from batch_rl.tests import cartpole

OFFLINE_DQN = cartpole.OFFLINE_CLASSES['dqn']


def in_pieces(agent):
  """Trains for numbers of steps, most of them not multiples of a period."""
  return [loss for steps in (50, 7, 1, 30) for loss in agent.train_steps(steps)]


def train_by(agent, first_values, updates_per_run):
  """Trains an agent from its first state; returns losses and variables."""
  cartpole.restart(agent, first_values)
  agent._updates_per_run = updates_per_run
  losses = in_pieces(agent)
  assert agent.training_steps == 88
  return losses, cartpole.values(agent)


def assert_same_results(one, other):
  (left, variables), (right, others) = one, other
  assert left == right
  np.testing.assert_equal(variables, others)


@pytest.mark.parametrize('name', cartpole.OFFLINE_CLASSES)
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


def test_the_train_op_does_one_update(shared_agents):
  """Code of 2020 has a loop of its own around `_train_op` and `_sync_qt_ops`."""
  agent = shared_agents('c51')
  first_values = cartpole.values(agent)
  expected = train_by(agent, first_values, updates_per_run=5)[1]
  cartpole.restart(agent, first_values)
  for step in range(88):
    agent.training_steps = step
    if step % agent.update_period == 0:
      assert agent._sess.run(agent._train_op) is None
    if step % agent.target_update_period == 0:
      agent._sess.run(agent._sync_qt_ops)
  agent.training_steps = 88
  assert_same_results(([], cartpole.values(agent)), ([], expected))


def run_on_two_devices(monkeypatch, build):
  """Runs a loop of updates; two CPU devices stand in for a CPU and a GPU.
  Returns the results of the loop, and the graphs of host and accelerator.
  """
  new_session, device = tf.compat.v1.Session, tf.device

  def session(target='', config=None, **kwargs):
    config.device_count['CPU'] = 2
    config.allow_soft_placement = False
    return new_session(target, config=config, **kwargs)

  monkeypatch.setattr(tf.compat.v1, 'Session', session)
  monkeypatch.setattr(
    tf, 'device', lambda n: device('/cpu:0' if n == '/cpu:*' else n)
  )
  agent = build(tf_device='/cpu:1')
  metadata = tf.compat.v1.RunMetadata()
  loop = agent._loop
  scalars, _ = agent._sess.run(
    loop._results,
    {loop._first_step: 0, loop._end: 30, loop._synchronises: 1},
    options=tf.compat.v1.RunOptions(output_partition_graphs=True),
    run_metadata=metadata,
  )
  host, accelerator = sorted(
    metadata.partition_graphs, key=lambda graph: graph.node[0].device
  )
  assert accelerator.node[0].device.endswith('CPU:1')
  return scalars, host, accelerator


def test_the_host_does_not_wait_for_the_agents_device(make_agent, monkeypatch):
  """Within the loop, nothing goes back to the host.
  Batches are sent ahead, so a loop variable holds them on the device.
  """
  scalars, host, accelerator = run_on_two_devices(monkeypatch, make_agent)
  assert np.isfinite(scalars).all() and len(scalars) == 8
  assert 'StatefulPartitionedCall' in [node.op for node in accelerator.node]
  sent = [node.input[0] for node in accelerator.node if node.op == '_Send']
  assert len(sent) == 1 and not sent[0].startswith('while/')  # the losses
  assert sum(node.op == 'PyFunc' for node in host.node) == 2
  passed_on = [
    node.attr['T'].type == tf.float64.as_datatype_enum
    for node in accelerator.node
    if node.op == 'NextIteration'
  ]
  assert sum(passed_on) == 2  # states and next states


def test_training_stops_at_a_loss_that_is_not_a_number(make_agent):
  optimizer = tf.compat.v1.train.GradientDescentOptimizer(1e15)
  agent = make_agent(optimizer=optimizer)
  first_values = cartpole.values(agent)
  found = []
  for updates_per_run in (1, 50):
    cartpole.restart(agent, first_values)
    agent._updates_per_run = updates_per_run
    losses = []
    with pytest.raises(FloatingPointError) as error:
      for loss in agent.train_steps(88):
        losses.append(loss)
    assert f'at update {len(losses)}:' in str(error.value)
    found.append(losses)
  assert found[0] == found[1] and np.isfinite(found[0]).all() and found[0]


def test_xla_compiles_the_update(shared_agents, make_agent):
  plain, agent = shared_agents('c51'), make_agent('c51', jit_compile=True)
  losses = in_pieces(plain)
  is_compiled = [
    any('_XlaMustCompile' in f.attr for f in graph_def.library.function)
    for graph_def in (a._sess.graph.as_graph_def() for a in (plain, agent))
  ]
  assert is_compiled == [False, True]
  np.testing.assert_allclose(in_pieces(agent), losses, rtol=1e-3)


def test_xla_draws_mixtures_by_step_and_seed(make_agent, tmp_path):
  """Without prefetching, so that Python draws the batches of the loop, too."""
  ways = dict(summary_writer=str(tmp_path), summary_writing_frequency=12)
  agent = make_agent('multi_head_dqn', prefetch=0, jit_compile=True, **ways)
  first_values = cartpole.values(agent)
  losses, _ = train_by(agent, first_values, 1)
  found = cartpole.read_summaries(agent, tmp_path)
  for step in range(12, 88, 12):
    assert found['Losses/Loss'][step] == np.float32(losses[step // 4])
  assert train_by(agent, first_values, 7)[0] == losses
  assert len(set(losses)) == 22


class DopamineAgent(fixed_replay_agent.FixedReplayAgentMixin, DQNAgent):
  """Dopamine's DQN as it is, without `loss`."""


def test_agents_of_dopamine_train_alike(shared_agents, make_agent, tmp_path):
  """A summary alone would draw a batch, and move the updates to the next ones."""
  ways = dict(summary_writer=str(tmp_path), summary_writing_frequency=8)
  agent = make_agent(class_=DopamineAgent, **ways)
  losses = in_pieces(agent)
  assert len(losses) == 22 and np.isnan(losses).all()  # Dopamine drops them.
  without = shared_agents('dqn')  # learns the same, and tells its losses
  expected = in_pieces(without)
  np.testing.assert_equal(cartpole.values(agent), cartpole.values(without))
  found = cartpole.read_summaries(agent, tmp_path)
  for step in range(8, 88, 8):
    loss = pytest.approx(expected[step // 4], rel=1e-6)
    assert found['Losses/HuberLoss'][step] == loss


class OwnTraining(OFFLINE_DQN):
  def _build_train_op(self):
    self.steps = []
    loss = tf.reduce_mean(self._replay_net_outputs.q_values**2)
    return self.optimizer.minimize(loss), loss

  def _train_step(self):
    self.steps.append(self.training_steps)
    return super()._train_step()


class Silent(OwnTraining):
  def _train_step(self):
    super()._train_step()  # It returns nothing, as Dopamine's.


def test_training_of_an_agents_own_wins_over_an_inherited_loss(make_agent):
  agent = make_agent(class_=OwnTraining, update_period=2)
  losses = list(agent.train_steps(20))
  assert len(losses) == 10 and losses[-1] < losses[0]
  assert agent.steps == list(range(20))
  silent = make_agent(class_=Silent, update_period=2)
  assert np.isnan([*silent.train_steps(20)]).tolist() == [True] * 10
  with pytest.raises(ValueError, match='OwnTraining.*jit_compile'):
    make_agent(class_=OwnTraining, jit_compile=True)


def test_a_loss_has_the_columns_that_an_agent_needs(make_agent):
  class ToGo(OFFLINE_DQN):
    needs = {'return_to_go', 'timestep'}

    def loss(self, batch):
      self.batch = batch
      return super().loss(batch)

  agent = make_agent(class_=ToGo)
  columns = agent.batch.return_to_go, agent.batch.timestep
  assert [column.dtype for column in columns] == [tf.float32, tf.int64]
  assert [column.shape.rank for column in columns] == [1, 1]
  list(agent.train_steps(8))
  with pytest.raises(AttributeError, match='weight'):
    _ = agent.batch.weight
