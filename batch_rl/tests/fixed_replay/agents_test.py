"""The contract that every offline agent keeps."""

import pickle
import re

import gin
import numpy as np
import pytest
import tensorflow as tf

from batch_rl.dataset.shards import replay_log
from batch_rl.fixed_replay.agents import AGENTS
from batch_rl.runs import runner
from batch_rl.tests import cartpole

CLASSES = runner.agent_classes('batch_rl.fixed_replay.agents', AGENTS)


# What only `FixedReplayAgentMixin` does.
with_any_agent = pytest.mark.parametrize('name', ['dqn'], indirect=True)


@pytest.fixture(params=AGENTS)
def name(request):
  return request.param


@pytest.fixture(scope='module')
def log_dir(tmp_path_factory):
  directory = tmp_path_factory.mktemp('log')
  cartpole.write_log(directory)
  return directory


@pytest.fixture
def make_agent(name, log_dir):
  """Returns a function that builds the agent, in a graph of its own."""

  def make(num_actions=cartpole.NUM_ACTIONS, data_dir=log_dir, **kwargs):
    # Adam's slots, unlike RMSProp's, all change at the first update.
    gin.bind_parameter('FixedReplayBuffer.deterministic', True)
    kwargs.setdefault('optimizer', tf.compat.v1.train.AdamOptimizer(0.01))
    with tf.Graph().as_default():
      return CLASSES[name](
        None,
        num_actions,
        str(data_dir),
        **cartpole.OBSERVATION,
        **cartpole.SMALL[name],
        **kwargs,
      )

  return make


@pytest.fixture(scope='module')
def actor(request, log_dir):
  """An agent for all tests that only act, greedily, by 5 actions."""
  name = request.param
  with tf.Graph().as_default():
    agent = CLASSES[name](
      None,
      5,
      str(log_dir),
      epsilon_eval=0.0,
      **cartpole.OBSERVATION,
      **cartpole.SMALL[name],
    )
  agent.eval_mode = True
  # Weights other than those it begins with, by which one action may be best
  # everywhere; so it may where positive inputs and weights add up.
  random = np.random.default_rng(1)
  variables = agent._sess.graph.get_collection('trainable_variables', 'Online')
  for variable in variables:
    values = random.normal(size=variable.shape)
    variable.load(values - values.mean(axis=0), agent._sess)
  return agent


each_actor = pytest.mark.parametrize('actor', AGENTS, indirect=True)


def play(agent, episodes=3, steps=30):
  """Acts on random observations; returns the actions."""
  random = np.random.default_rng(0)
  actions = []
  for _ in range(episodes):
    actions.append(agent.begin_episode(random.uniform(-1, 1, 4)))
    for _ in range(steps):
      actions.append(agent.step(1.0, random.uniform(-1, 1, 4)))
    agent.end_episode(1.0)
  return actions


def read_files(directory):
  return {path.name: path.read_bytes() for path in directory.iterdir()}


def assert_same(left, right):
  assert left.keys() == right.keys()
  for variable, array in left.items():
    np.testing.assert_array_equal(array, right[variable], err_msg=variable)


def test_training_changes_every_weight(make_agent):
  agent = make_agent(update_period=4)
  before = cartpole.values(agent)
  losses = list(agent.train_steps(10))
  assert len(losses) == 3  # at steps 0, 4 and 8
  assert np.isfinite(losses).all()
  assert agent.training_steps == 10
  after = cartpole.values(agent)
  online = [variable for variable in before if variable.startswith('Online/')]
  assert online
  for variable in online:
    assert not np.array_equal(before[variable], after[variable]), variable


def test_mixed_precision_computes_in_bfloat16(make_agent):
  mixed = make_agent(mixed_precision=True, seed=1)
  exact = make_agent(seed=1)

  def products(agent):
    operations = agent._sess.graph.get_operations()
    return [op for op in operations if op.type == 'MatMul']

  assert {op.outputs[0].dtype for op in products(exact)} == {tf.float32}
  kinds = [op.outputs[0].dtype for op in products(mixed)]
  # All layers of a network but its last.
  assert kinds.count(tf.bfloat16) >= kinds.count(tf.float32) > 0
  for agent in exact, mixed:
    with agent._sess.graph.as_default():
      variables = tf.compat.v1.trainable_variables()
      assert {variable.dtype.base_dtype for variable in variables} == {
        tf.float32
      }
  weights = cartpole.values(exact)
  assert weights.keys() == cartpole.values(mixed).keys()
  with mixed._sess.graph.as_default():
    for variable in tf.compat.v1.global_variables():
      variable.load(weights[variable.op.name], mixed._sess)
  np.testing.assert_allclose(
    list(mixed.train_steps(20)), list(exact.train_steps(20)), rtol=0.05
  )


def test_weights_that_are_no_numbers_are_not_saved(make_agent, tmp_path):
  agent = make_agent()
  with agent._sess.graph.as_default():
    *_, last = tf.compat.v1.trainable_variables()
    last.load(np.full(last.shape.as_list(), np.inf, np.float32), agent._sess)
  with pytest.raises(FloatingPointError, match='not finite after update 0'):
    agent.bundle_and_checkpoint(str(tmp_path), 0)
  assert not list(tmp_path.iterdir())


@with_any_agent
def test_too_little_memory_names_batch_and_network(make_agent):
  agent = make_agent()

  class Loop:
    def run(self, *arguments):
      raise tf.errors.ResourceExhaustedError(None, None, 'OOM of 9 GB\n...')

  agent.__dict__['_loop'] = Loop()
  with pytest.raises(
    MemoryError, match='Cartpole.* batches of 32.*OOM of 9 GB'
  ):
    list(agent.train_steps(4))


def test_target_network_is_updated_when_due(make_agent):
  agent = make_agent(update_period=2, target_update_period=6)
  for step in range(15):
    before = cartpole.weights(agent, 'Target')
    list(agent.train_steps(1))
    after = cartpole.weights(agent, 'Target')
    if step % 6 == 0:
      assert not np.array_equal(before, after)
      np.testing.assert_array_equal(after, cartpole.weights(agent, 'Online'))
    else:
      np.testing.assert_array_equal(before, after)


@with_any_agent
def test_a_short_history_is_no_obstacle(make_agent):
  agent = make_agent(min_replay_history=1_000_000)
  before = cartpole.weights(agent, 'Online')
  assert len(list(agent.train_steps(1))) == 1
  assert not np.array_equal(before, cartpole.weights(agent, 'Online'))


@each_actor
def test_evaluation_only_acts(actor, monkeypatch):
  monkeypatch.setattr(actor, 'epsilon_eval', 0.5)
  before = cartpole.values(actor)
  assert set(play(actor)) == set(range(5))
  assert actor.training_steps == 0
  assert_same(before, cartpole.values(actor))


@each_actor
def test_evaluation_acts_greedily(actor):
  for observation in np.random.default_rng(0).uniform(-2, 2, (20, 4)):
    action = actor.begin_episode(observation)
    q_values = actor._sess.run(
      actor._net_outputs.q_values, {actor.state_ph: actor.state}
    )
    assert action == q_values.argmax()


@each_actor
def test_acts_on_many_states_as_on_one(actor):
  assert actor.acts_on_batches
  observations = np.random.default_rng(0).uniform(-2, 2, (20, 4))
  states = observations.reshape(20, 1, 4, 1)
  actions = actor.select_actions(states, np.random.default_rng(0))
  one_by_one = [actor.begin_episode(o) for o in observations]
  assert actions.tolist() == one_by_one
  assert len(set(one_by_one)) > 1


@each_actor
def test_explores_in_evaluation_as_often_as_it_should(actor, monkeypatch):
  states = np.zeros((10_000, 1, 4, 1))
  random = np.random.default_rng(0)
  greedy = actor.select_actions(states[:1], np.random.default_rng(3))[0]
  monkeypatch.setattr(actor, 'epsilon_eval', 0.25)
  counts = np.bincount(actor.select_actions(states, random), minlength=5)
  expected = np.full(5, 10_000 * 0.25 / 5)
  expected[np.argmax(counts)] += 10_000 * 0.75
  assert np.argmax(counts) == greedy
  assert np.sum((counts - expected) ** 2 / expected) < 18.5  # p = 0.001


@with_any_agent
@pytest.mark.parametrize('eval_mode', [False, True])
def test_acting_leaves_the_data_alone(make_agent, log_dir, eval_mode):
  agent = make_agent()
  agent.eval_mode = eval_mode
  memory = agent._replay.memory
  rows = memory.valid_indices()  # of both shards
  assert len(rows) > 80
  before = memory.sample_transition_batch(len(rows), rows)
  add_count, files = int(memory.add_count), read_files(log_dir)
  play(agent, episodes=2, steps=3)
  assert agent.training_steps == (0 if eval_mode else 2 * (1 + 3))
  assert memory.add_count == add_count
  assert read_files(log_dir) == files
  after = memory.sample_transition_batch(len(rows), rows)
  for left, right in zip(before, after, strict=True):
    np.testing.assert_array_equal(left, right)


def test_a_checkpoint_restores_everything(make_agent, tmp_path):
  agent = make_agent(update_period=1, target_update_period=3)
  list(agent.train_steps(5))  # the last update of the target network: step 3
  bundle = pickle.dumps(agent.bundle_and_checkpoint(str(tmp_path), 7))
  saved = cartpole.values(agent)
  target = cartpole.weights(agent, 'Target')
  assert not np.array_equal(target, cartpole.weights(agent, 'Online'))
  slots = [v for v in saved if re.fullmatch('Online/.*/Adam(_1)?', v)]
  assert slots and all(saved[slot].any() for slot in slots)
  list(agent.train_steps(1))

  fresh = make_agent(update_period=1, target_update_period=3)
  assert fresh.unbundle(str(tmp_path), 7, pickle.loads(bundle))
  assert fresh.training_steps == 5
  assert_same(cartpole.values(fresh), saved)
  list(fresh.train_steps(1))  # step 5
  np.testing.assert_array_equal(cartpole.weights(fresh, 'Target'), target)
  list(fresh.train_steps(1))  # step 6
  np.testing.assert_array_equal(
    cartpole.weights(fresh, 'Target'), cartpole.weights(fresh, 'Online')
  )


def test_starts_from_the_newest_weights_of_a_run(make_agent, tmp_path):
  (tmp_path / 'checkpoints').mkdir()
  agent = make_agent(update_period=1)
  for number in (9, 10):  # '10' < '9'
    list(agent.train_steps(2))
    agent.bundle_and_checkpoint(str(tmp_path / 'checkpoints'), number)
  for folder in (tmp_path, tmp_path / 'checkpoints'):
    started = make_agent(init_checkpoint_dir=str(folder))
    for network in ('Online', 'Target'):
      np.testing.assert_array_equal(
        cartpole.weights(started, network), cartpole.weights(agent, network)
      )
    # It is another run: only the weights are taken.
    assert started.training_steps == 0
    for variable, array in cartpole.values(started).items():
      assert not (variable.endswith('/Adam') and array.any())


def test_refuses_weights_of_other_networks(make_agent, tmp_path):
  other = make_agent(num_actions=3)
  other.bundle_and_checkpoint(str(tmp_path), 0)
  with pytest.raises(ValueError, match='tf_ckpt-0 is not of these networks'):
    make_agent(init_checkpoint_dir=str(tmp_path))


@with_any_agent
@pytest.mark.parametrize('folder', ['empty', 'missing'])
def test_refuses_a_run_without_checkpoint(make_agent, tmp_path, folder):
  (tmp_path / 'empty' / 'checkpoints').mkdir(parents=True)
  with pytest.raises(ValueError, match=f'No TensorFlow checkpoint.*{folder}'):
    make_agent(init_checkpoint_dir=str(tmp_path / folder))


def test_is_gin_configurable_under_its_own_name(make_agent, name):
  _, class_name = AGENTS[name]
  gin.parse_config(f'{class_name}.gamma = 0.5')
  assert make_agent().gamma == 0.5
  with pytest.raises(ValueError, match="doesn't have a parameter"):
    gin.parse_config(f'{class_name}.gama = 0.5')


@with_any_agent
def test_refuses_actions_that_the_environment_has_not(make_agent):
  with pytest.raises(ValueError, match='holds action 1, but .* has 1 actions'):
    make_agent(num_actions=1)


@with_any_agent
def test_stops_when_the_loss_is_not_a_number(make_agent, tmp_path):
  cartpole.write_log(tmp_path, reward=np.nan)
  agent = make_agent(data_dir=tmp_path)
  with pytest.raises(FloatingPointError, match='nan at update 0'):
    list(agent.train_steps(1))


def atari_variables(outputs):
  """Names and shapes in checkpoints that TensorFlow 1 wrote, 6 actions."""
  network = {
    'Conv/kernel': (8, 8, 4, 32),
    'Conv/bias': (32,),
    'Conv_1/kernel': (4, 4, 32, 64),
    'Conv_1/bias': (64,),
    'Conv_2/kernel': (3, 3, 64, 64),
    'Conv_2/bias': (64,),
    'fully_connected/kernel': (11 * 11 * 64, 512),
    'fully_connected/bias': (512,),
    'fully_connected_1/kernel': (512, 6 * outputs),
    'fully_connected_1/bias': (6 * outputs,),
  }
  return {
    f'{scope}/{variable}': shape
    for scope in ('Online', 'Target')
    for variable, shape in network.items()
  }


def write_checkpoint(directory, arrays):
  """A checkpoint by TensorFlow alone, of variables as TensorFlow 1 had them."""
  with tf.Graph().as_default(), tf.compat.v1.Session() as session:
    for variable, array in arrays.items():
      tf.compat.v1.get_variable(variable, initializer=array, use_resource=False)
    session.run(tf.compat.v1.global_variables_initializer())
    saver = tf.compat.v1.train.Saver()
    saver.save(session, str(directory / 'tf_ckpt'), global_step=199)


def slim_name(name):
  """As Dopamine 1 and 2 named variables."""
  return name.replace('/kernel', '/weights').replace('/bias', '/biases')


def unnamed(name):
  """As Keras names layers that have no name: numbered through the graph."""
  scope, layer, *end = name.split('/')
  kind, _, number = layer.partition('_')
  if kind == 'fully':
    kind, number = 'dense', layer.removeprefix('fully_connected').strip('_')
  else:
    kind = 'conv2d'
  place = int(number or 0)
  if scope == 'Target':
    place += {'conv2d': 3, 'dense': 2}[kind]
  return '/'.join([scope, f'{kind}_{place}' if place else kind, *end])


@pytest.mark.parametrize(
  ('name', 'outputs', 'named'),
  [
    ('dqn', 1, str),
    ('c51', 51, str),
    ('multi_head_dqn', 200, str),
    ('dqn', 1, slim_name),
    ('quantile', 200, slim_name),
    ('quantile', 200, unnamed),
  ],
)
def test_atari_networks_load_what_tensorflow_1_wrote(
  name, outputs, named, tmp_path
):
  log = replay_log.ReplayLog(str(tmp_path / 'log'), (84, 84), np.uint8, 50)
  for step in range(20):
    log.add(np.full((84, 84), step), step % 6, 0.0, step == 9)
  log.close()
  random = np.random.default_rng(0)
  arrays = {
    variable: random.standard_normal(shape, np.float32)
    for variable, shape in atari_variables(outputs).items()
  }
  # What else such a checkpoint holds.
  arrays['Online/Conv/kernel/RMSProp'] = arrays['Online/Conv/kernel']
  (tmp_path / 'checkpoints').mkdir()
  write_checkpoint(
    tmp_path / 'checkpoints', {named(n): array for n, array in arrays.items()}
  )

  with tf.Graph().as_default() as graph:
    agent = CLASSES[name](
      None, 6, str(tmp_path / 'log'), init_checkpoint_dir=str(tmp_path)
    )
    found = graph.get_collection('trainable_variables')
  loaded = agent._sess.run({variable.op.name: variable for variable in found})
  assert loaded.keys() == atari_variables(outputs).keys()
  for variable, array in loaded.items():
    np.testing.assert_array_equal(array, arrays[variable], err_msg=variable)


def test_refuses_a_checkpoint_that_lacks_weights(make_agent, tmp_path):
  write_checkpoint(tmp_path, {'Online/Conv/kernel': np.zeros(3, np.float32)})
  with pytest.raises(ValueError, match='missing or have another shape'):
    make_agent(init_checkpoint_dir=str(tmp_path))


def test_c51_samples_uniformly():
  with pytest.raises(ValueError, match="doesn't have a parameter"):
    gin.parse_config('FixedReplayRainbowAgent.replay_scheme = "prioritized"')
