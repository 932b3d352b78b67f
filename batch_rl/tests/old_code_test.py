"""Code written for the 2020 API: scripts, buffers, agents, own data."""

import inspect

import gin
import numpy as np
import pytest
import tensorflow as tf
from dopamine.discrete_domains import atari_lib
from dopamine.tf.replay_memory import circular_replay_buffer

from batch_rl.baselines.agents import dqn_agent as logged_dqn_agent
from batch_rl.baselines.agents import random_agent
from batch_rl.baselines.replay_memory import logged_replay_buffer
from batch_rl.dataset.shards import shard_files
from batch_rl.fixed_replay.agents import fixed_replay_agent
from batch_rl.fixed_replay.replay_memory import fixed_replay_buffer
from batch_rl.multi_head import (
  atari_helpers,
  multi_network_dqn_agent,
  quantile_agent,
)
from batch_rl.multi_head import multi_head_dqn_agent as multi_head
from batch_rl.tests import cartpole, programs, shards
from batch_rl.tests.known_runs import assert_same

FixedReplayBuffer = fixed_replay_buffer.FixedReplayBuffer
OutOfGraphReplayBuffer = circular_replay_buffer.OutOfGraphReplayBuffer
INDICES = 7
CAPACITY = 50


@pytest.fixture(scope='module')
def data_dir(tmp_path_factory):
  """Directory of four shards of 2 x 2 frames."""
  directory = tmp_path_factory.mktemp('shards')
  shards.write_run(directory, [30] * 6, CAPACITY)
  return str(directory)


def load(data_dir, suffix=None, class_=FixedReplayBuffer, **kwargs):
  """Returns a buffer of 2 x 2 frames; keywords may replace the arguments here."""
  arguments = dict(data_dir=data_dir, replay_suffix=suffix, stack_size=4)
  arguments |= dict(observation_shape=(2, 2), observation_dtype=np.uint8)
  arguments |= dict(batch_size=8, replay_capacity=CAPACITY, gamma=0.99)
  return class_(**arguments | {'update_horizon': 1} | kwargs)


def test_a_script_reads_shards_row_by_row(data_dir, tmp_path):
  """As Decision Transformer's data script and its copies do."""
  read = []
  for suffix in np.array([2, 7, 0]):
    buffer = load(data_dir, suffix)
    if buffer._loaded_buffers:
      read.append(suffix)
      dopamines = OutOfGraphReplayBuffer((2, 2), 4, CAPACITY, 8)
      dopamines.load(data_dir, suffix)
      for i in range(CAPACITY - 3):
        ours, theirs = (
          list(memory.sample_transition_batch(batch_size=1, indices=[i]))
          for memory in (buffer, dopamines)
        )
        # Dopamine's first states have the newest frames of the ring, too.
        for batch in (ours, theirs):
          batch[0] = batch[0][..., max(0, 3 - i) :]
          batch[3] = batch[3][..., max(0, 2 - i) :]
        assert_same(ours, theirs)
      unlogged = [CAPACITY - 1] if suffix == 0 else []
      for index in (-1, CAPACITY, *unlogged):
        with pytest.raises(ValueError, match=f'Index {index} '):
          buffer.sample_transition_batch(1, [index])
  assert read == [2, 0]
  missing = load(data_dir, 7)
  assert missing._loaded_buffers is False and missing.add_count == 0
  with pytest.raises(ValueError, match='There is no shard 7'):
    missing.sample_transition_batch()
  shards.write_run(tmp_path, [30] * 2, CAPACITY)
  (tmp_path / shard_files.file_name('reward', 0)).write_bytes(b'no gzip')
  with pytest.raises(ValueError, match='reward'):  # damaged, not missing
    load(str(tmp_path), 0)


def test_a_buffer_reloads_and_lets_its_counts_be_assigned(data_dir):
  single, several = load(data_dir, '1'), load(data_dir, seed=0)
  indices = single.valid_indices()
  single.reload_buffer(num_buffers=5)
  np.testing.assert_array_equal(single.valid_indices(), indices)
  assert int(single._replay_suffix) == 1 and single._num_replay_buffers == 1
  several.reload_buffer(num_buffers=2)
  assert several._num_replay_buffers == len(several._replay_buffers) == 2
  count = int(several.add_count)
  assert count == len(several.valid_indices())
  several.add(np.zeros((2, 2), np.uint8), 0, 0.0, 0)
  several.save('/nowhere', 1)
  several.load('/nowhere', 1)
  assert several.add_count == count
  several.add_count = np.array(3)
  assert several.add_count == 3 and len(several.valid_indices()) == count


class Fork(FixedReplayBuffer):
  def _load_replay_buffers(self, num_buffers=None):
    if self._loaded_buffers:
      return
    memories = map(self._load_buffer, self._replay_indices[1:][:num_buffers])
    self._replay_buffers = [m for m in memories if m is not None]
    self.add_count = max([m.add_count for m in self._replay_buffers] or [0])
    self._num_replay_buffers = len(self._replay_buffers)
    self._loaded_buffers = self._num_replay_buffers > 0


class LoadsDopamines(FixedReplayBuffer):
  """As `dopamine.labs.offline_rl.fixed_replay.JaxFixedReplayBuffer`."""

  def _load_buffer(self, suffix):
    memory = OutOfGraphReplayBuffer(*self._args, **self._kwargs)
    memory.load(self._data_dir, suffix)
    return memory


class ForkOfDopamines(Fork, LoadsDopamines):
  pass


@pytest.mark.parametrize('class_', [Fork, ForkOfDopamines])
def test_subclasses_load_buffers_by_themselves(data_dir, class_):
  buffer = load(data_dir, class_=class_, seed=0, num_buffers=3)
  assert buffer.redraw()  # as before an iteration
  assert buffer._num_replay_buffers == 3 and buffer.loads_uncompressed
  buffer.reload_buffer(num_buffers=1)
  (memory,) = buffer._replay_buffers
  assert memory.add_count == 2 * CAPACITY - 1  # shard 1
  reference = load(data_dir, 1)
  indices = buffer.valid_indices()
  assert set(indices) <= set(reference.valid_indices()) and len(indices) > 35
  batch = buffer.sample_transition_batch()
  assert set(batch[INDICES]) <= set(indices)
  assert_same(batch, reference.sample_transition_batch(8, batch[INDICES]))
  assert buffer.describe() == {}  # as for all memories of subclasses
  assert buffer.file_hashes()
  for unfit in {'subset': 'shards(0)'}, {'replay_file_end_index': 1}:
    with pytest.raises(ValueError, match=r'subset|_load_replay_buffers'):
      load(data_dir, class_=class_, **unfit)
  # A list that grows in its place is sampled as it is.
  buffer._load_replay_buffers = lambda _: buffer._replay_buffers.append(memory)
  buffer.reload_buffer()
  assert buffer._num_replay_buffers == len(buffer._replay_buffers)


def test_subclasses_choose_shards_and_call_the_base(data_dir):
  calls = []

  class Late(FixedReplayBuffer):
    def _get_checkpoint_suffixes(self, start, end):
      return super()._get_checkpoint_suffixes(start, end)[-2:]

    def _load_replay_buffers(self, num_buffers=None):
      calls.append(num_buffers)
      super()._load_replay_buffers(num_buffers=1)

  buffer = load(data_dir, class_=Late)
  assert buffer._replay_indices == [2, 3] and not buffer.loads_uncompressed
  buffer.reload_buffer(num_buffers=5)
  assert calls == [2, 5] and buffer._num_replay_buffers == 1
  assert buffer._load_buffer(3).add_count > 0
  assert buffer._load_buffer(9) is None


def test_batches_in_the_graph_follow_a_reload(data_dir):
  arguments = (2, 2), 4, True, CAPACITY, 256, 1, 0.99
  wrapped = fixed_replay_buffer.WrappedFixedReplayBuffer
  with tf.Graph().as_default(), tf.compat.v1.Session() as session:
    drawn = []
    for _ in range(2):
      replay = wrapped(data_dir, None, *arguments, seed=1)
      session.run(replay.indices)  # Others are prefetched.
      replay.memory.reload_buffer(num_buffers=1)
      drawn.append([session.run(replay.indices) for _ in range(3)])
      assert np.max(drawn) < CAPACITY
    np.testing.assert_array_equal(*drawn)
    assert len(np.unique(drawn[0], axis=0)) == 3
    replay.memory.reload_buffer()
    assert np.max(session.run(replay.indices)) >= CAPACITY
    replay.memory.load_single_buffer(2)
    assert np.max(session.run(replay.indices)) < CAPACITY
    with pytest.raises(ValueError, match='no shard 9 in'):
      wrapped(data_dir, 9, *arguments)
    with pytest.raises(TypeError):
      wrapped(data_dir, None, *arguments, None)


REPLAY = (
  'observation_shape stack_size use_staging replay_capacity batch_size '
  'update_horizon gamma'
)
HEADS = 'sess num_actions {} transform_strategy num_convex_combinations network'
OFFLINE = 'sess num_actions replay_data_dir replay_suffix init_checkpoint_dir'
ONLINE = 'sess num_actions replay_log_dir'
networks_agent = multi_network_dqn_agent.MultiNetworkDQNAgent
wrapped_log = logged_replay_buffer.WrappedLoggedReplayBuffer
wrapped_data = fixed_replay_buffer.WrappedFixedReplayBuffer


@pytest.mark.parametrize(
  ('class_', 'names'),
  [
    *((class_, OFFLINE) for class_ in cartpole.OFFLINE_CLASSES.values()),
    (multi_head.MultiHeadDQNAgent, HEADS.format('num_heads')),
    (networks_agent, HEADS.format('num_networks')),
    (quantile_agent.QuantileAgent, 'sess num_actions kappa network num_atoms'),
    (logged_dqn_agent.LoggedDQNAgent, ONLINE),
    (random_agent.RandomAgent, ONLINE),
    (wrapped_log, f'log_dir {REPLAY}'),
    (wrapped_data, f'data_dir replay_suffix {REPLAY}'),
  ],
)
def test_constructors_take_positional_arguments_in_the_old_order(class_, names):
  names = names.split()
  assert [*inspect.signature(class_).parameters][: len(names)] == names
  assert names != ONLINE.split() or callable(class_.log_final_buffer)


def test_networks_have_their_old_names_and_q_functions_are_mixed(evaluate):
  gin.bind_parameter('MultiNetworkQNetwork.network', programs.TinyNetwork)
  state = tf.zeros((1, 84, 84, 4), tf.uint8) + 255
  weights = np.array([[0.5, 0.25], [0.5, 0.75]], np.float32)
  for name in 'MultiHeadQNetwork', 'MulitNetworkQNetwork':
    network = getattr(atari_helpers, name)
    outputs = network(3, 2, name='Online')(state)
    assert outputs.q_networks is outputs.unordered_q_networks is outputs.q_heads
    assert outputs.unordered_q_heads is outputs.q_heads
    mixing = network(3, 2, 'STOCHASTIC', transform_matrix=weights)(state)
    assert mixing.q_networks is mixing.q_heads
    assert mixing.unordered_q_networks is mixing.unordered_q_heads
    with tf.compat.v1.Session() as session:
      session.run(tf.compat.v1.global_variables_initializer())
      mixed, unmixed, mean = session.run(mixing)
    np.testing.assert_allclose(mixed, unmixed @ weights, atol=1e-5)
    np.testing.assert_allclose(mean, unmixed.mean(axis=2), atol=1e-5)
    assert not np.allclose(mixed, unmixed)
    for unfit in ('MIXED', 'AVERAGE', 'STOCHASTIC'):  # without a matrix
      with pytest.raises(ValueError, match=f'{unfit}.* transform_matrix'):
        network(3, 2, transform_strategy=unfit)(state)
  assert atari_helpers.NatureDQNNetwork is atari_lib.NatureDQNNetwork
  assert atari_helpers.random_stochastic_matrix(3, num_cols=4).shape == (3, 4)

  values = np.random.default_rng(0).normal(size=(2, 5, 3)).astype(np.float32)
  combined = atari_helpers.combine_q_functions(tf.constant(values), 'IDENTITY')
  q_heads, mean = evaluate(combined)
  np.testing.assert_array_equal(q_heads, values)
  np.testing.assert_allclose(mean, values.mean(axis=2), atol=1e-5)


class OwnBatches(FixedReplayBuffer):
  def sample_transition_batch(self, *args):
    batch = super().sample_transition_batch(*args)
    return [*batch[:2], 2 * batch[2], *batch[3:]]  # rewards


class OwnTensors(wrapped_data):
  memory_class = OwnBatches

  def unpack_transition(self, *args):
    super().unpack_transition(*args)
    self.transition['reward'] += self.transition['reward']


class OwnMemory(cartpole.OFFLINE_CLASSES['dqn']):
  def _build_replay_buffer(self, use_staging):
    data = self._replay_data_dir, self._replay_suffix
    return OwnTensors(*data, (4, 1), 1, observation_dtype=np.float64)

  def loss(self, batch):
    self.log_scalar('Reward', batch.reward)
    return super().loss(batch)


def test_an_agent_makes_its_memory(make_agent, data_dir):
  agents = [make_agent(class_=OwnMemory) for _ in range(2)]
  scalars, same = (a._loop.run(a._sess, 0, 20)[0] for a in agents)
  np.testing.assert_array_equal(scalars, same)  # by the seed
  assert scalars[:, 1].tolist() == [4.0] * 5
  with fixed_replay_agent.without_data():
    make_agent(class_=OwnMemory)  # It only acts.
  with pytest.raises(ValueError, match='OwnBatches draws batches .* columns'):
    load(data_dir, class_=OwnBatches, columns=['return_to_go'])


class OldNetwork(tf.keras.Model):
  """Estimates values of each action, and combines or names them as in 2020."""

  def __init__(
    self, num_actions, count, transform_strategy=None, name=None, **options
  ):
    super().__init__(name=name)
    self._shape = (-1, num_actions, count)
    self._strategy, self._options = transform_strategy, options
    self.dense = tf.keras.layers.Dense(num_actions * count)

  def call(self, state):
    net = tf.keras.layers.Flatten()(tf.cast(state, tf.float32))
    values = tf.reshape(self.dense(net), self._shape)
    if self._strategy is None:
      return atari_lib.RainbowNetworkType(
        tf.reduce_mean(values, axis=2), values, tf.zeros_like(values)
      )
    combined = atari_helpers.combine_q_functions(
      values, self._strategy, **self._options
    )
    return atari_helpers.MultiHeadNetworkType(*combined)


def build(name, log_dir, **kwargs):
  with tf.Graph().as_default():
    return cartpole.OFFLINE_CLASSES[name](
      None, 2, str(log_dir), None, None, **cartpole.OBSERVATION, **kwargs
    )


def test_a_quantile_agent_has_its_old_names(log_dir):
  agent = build('quantile', log_dir, network=OldNetwork, num_atoms=3)
  assert agent._num_atoms == 3 and agent._replay_scheme == 'uniform'
  assert agent._replay_suffix is None and agent._init_checkpoint_dir is None
  losses = list(agent.train_steps(9))
  assert len(losses) >= 2 and np.isfinite(losses).all()
  with agent._sess.graph.as_default():
    targets = agent._build_target_distribution()
  assert targets.shape == (32, 3)
  assert agent._replay_next_target_net_outputs.logits.shape == (32, 2, 3)
  values = tf.zeros(3)
  assert atari_helpers.QuantileNetworkType(values, None).logits is values


def test_an_agent_mixes_the_heads_of_old_networks(log_dir):
  mixtures = dict(transform_strategy='STOCHASTIC', num_convex_combinations=2)
  agent = build(
    'multi_head_dqn', log_dir, num_heads=3, network=OldNetwork, **mixtures
  )
  outputs = agent._net_outputs
  assert outputs.q_heads.shape[-1] == 3  # They are mixed in the loss.
  assert outputs.unordered_q_heads is outputs.q_heads
  assert np.isfinite(list(agent.train_steps(5))).all()
  with pytest.raises(ValueError, match='q_heads are not mixed'):
    agent._build_target_q_op()
  agent.transform_strategy = agent.head.strategy = 'IDENTITY'
  with agent._sess.graph.as_default():
    assert agent._build_target_q_op().shape == (32, 3)


def test_targets_that_no_loss_calls_are_refused(log_dir):
  for name, method in (
    ('dqn', '_build_target_q_op'),
    ('quantile', '_build_target_distribution'),
    ('multi_head_dqn', '_build_target_q_op'),
  ):
    base = cartpole.OFFLINE_CLASSES[name]
    own = type('Own', (base,), {method: lambda self: tf.zeros(())})
    with pytest.raises(ValueError, match=method):
      cartpole.build_offline_agent(name, log_dir, own)


def test_own_data_is_written_as_in_2020(tmp_path):
  directory = tmp_path / 'log'
  # In 2020, the padding of the second episode stepped over the row at which a shard
  # was written, and that shard was lost.
  episodes = shards.make_episodes([CAPACITY - 6, 20, 60, 2])
  gin.parse_config(f'OutOfGraphReplayBuffer.replay_capacity = {CAPACITY}')
  buffer_class = logged_replay_buffer.OutOfGraphLoggedReplayBuffer
  buffer = buffer_class(
    directory, observation_shape=(2, 2), stack_size=4, batch_size=8
  )
  shards.add_rows(buffer, sum(episodes, []))
  assert buffer.sample_transition_batch()[0].shape == (8, 2, 2, 4)
  buffer.log_final_buffer()
  assert shard_files.list_suffixes(str(directory)) == [0, 1, 2]
  assert shards.read_run(directory) == shards.with_padding(episodes, 4)
  assert load(str(directory)).add_count == sum(map(len, episodes))
  with pytest.raises(ValueError, match='closed'):
    shards.add_row(buffer, episodes[0][0])
  with pytest.raises(ValueError, match=str(directory)):  # 2020 wrote over them.
    buffer_class(str(directory), (2, 2), 4, CAPACITY, 8)
