"""Fitted Q evaluation (Le et al., 2019, arXiv 1903.08738): the value of a trained policy.

It is an ordinary offline run, with the backup `PolicyOfRun` and no evaluation; see
`configs/fqe.gin`.
"""

import functools
import hashlib
import itertools
import json
import os
from collections.abc import Mapping, Sequence
from typing import Any

import gin
import numpy as np
import tensorflow as tf

from batch_rl.agents import heads
from batch_rl.fixed_replay import frozen_policy, run_experiment, scores
from batch_rl.fixed_replay.agents import REGISTRY
from batch_rl.fixed_replay.replay_memory import fixed_replay_buffer
from batch_rl.runs import gin_files, run_record
from batch_rl.runs.bindings import any_agent, bound, settings
from batch_rl.utils.user_code import gin_signatures, user_modules

CONFIG = 'batch_rl/fixed_replay/configs/fqe.gin'
# Parameters of a run's agent that its evaluation has, too.
_SHARED = (
  'network',
  'observation_shape',
  'observation_dtype',
  'stack_size',
  'gamma',
  'replay_suffix',
  'tf_device',
)
# Bindings of a run, by the last part of their class's name, that it does not have.
_DROPPED = ('create_offline_agent', 'run_seed', 'PolicyOfRun')


class DataOnly:
  """Stands for an environment; there is no emulator, so it cannot be stepped.

  Args:
    name: Name of the environment.
    num_actions: Number of actions.
    shape: Shape of an observation.
    dtype: NumPy dtype of an observation.
  """

  def __init__(
    self, name: str, num_actions: int, shape: Sequence[int], dtype: str
  ):
    self.name, self.game_over = name, True
    self.action_space = type('Actions', (), {'n': num_actions})
    self._observation = np.zeros(shape, dtype)

  def reset(self, seed: int | None = None) -> np.ndarray:
    """Returns zeros."""
    del seed
    return self._observation

  def step(self, action: int) -> Any:
    """Raises a ValueError."""
    raise ValueError(f'{self.name} is not played: the run has data only.')


def configure(
  record: Mapping[str, Any], given: Sequence[gin_files.Source], cache_dir: str
) -> type:
  """Gives gin the settings of evaluations.

  Args:
    record: Record of the run whose settings of the data and observations count.
    given: gin files and bindings of the user, which override others.
    cache_dir: Directory of the compressed data, unless gin binds another.

  Returns:
    The class of the agent that learns values.

  Raises:
    ValueError: If a name is unknown, a value is not allowed, or the network has several
      outputs an action.
  """
  for folder in record.get('modules') or ():
    user_modules.add_folder(folder)
  gin.clear_config()
  gin.parse_config(
    f'CollectorDispatcher.collectors = ()\n'
    f'FixedReplayBuffer.cache_dir = {cache_dir!r}'
  )
  recorded = gin_files.read([], _recorded_lines(record))
  bindings = gin_files.apply(recorded, lock=False, check=False)
  own = gin_files.read([CONFIG], [])
  bindings += gin_files.apply([*own, *given], lock=False)
  agent_class = REGISTRY.find(bound.query('create_offline_agent.agent_name'))
  any_agent.bind(bindings, REGISTRY, agent_class)
  if agent_class is REGISTRY.find('dqn'):
    network = gin_signatures.configured_value(agent_class, 'network')
    try:
      heads.signature_of(network).bind(1, name='')
    except TypeError as error:
      raise ValueError(
        f'The network {network.__name__} has several outputs an action: bind '
        'AnyAgent.network to one with q_values alone.'
      ) from error
  return agent_class


def _recorded_lines(record: Mapping[str, Any]) -> list[str]:
  """Returns the gin lines of a run that its evaluation has, too."""
  lines = [
    line.partition(' = ') for line in record['gin_config'].split('\n') if line
  ]
  imports = [name for name, sign, _ in lines if name.startswith('import ')]
  values = {name: value for name, sign, value in lines if sign}
  by_owner = {
    tuple(name.replace('/', '.').split('.')[-2:]): value
    for name, value in values.items()
    if '.' in name
  }
  own = REGISTRY.find(record['agent']).__mro__
  plain = REGISTRY.find('dqn').__mro__
  shared = []
  for parameter in _SHARED:
    # A run may know a network for each agent.
    order = (plain, own) if parameter == 'network' else (own, plain)
    for base in itertools.chain(*order):
      if (key := (base.__name__, parameter)) in by_owner:
        shared.append(f'AnyAgent.{parameter} = {by_owner[key]}')
        break
  agents = {
    base.__name__
    for agent in (*REGISTRY.load_all().values(), own[0])
    for base in agent.__mro__
  }
  others = [
    f'{name} = {value}'
    for name, value in values.items()
    if (owner := name.replace('/', '.').split('.')[-2:][0]) not in agents
    and owner not in _DROPPED
    and not owner.endswith('Runner')
  ]
  return [*imports, *shared, *others]


def _digest(
  policy: frozen_policy.FrozenPolicy, logged: scores.LoggedStates, seed: int
) -> str:
  """Returns a hash of all that determines the value of a policy: 8 digits."""
  others = settings.Affects.RUNNING, settings.Affects.RECORDED
  bindings = {
    name: value
    for name, value in run_record.bindings(gin_files.config_text()).items()
    if settings.affects(name) not in others
    and not name.startswith('PolicyOfRun.')
  }
  content = json.dumps(
    [bindings, policy.identity, logged.data_hash, seed], sort_keys=True
  )
  return hashlib.sha256(content.encode()).hexdigest()[:8]


def read_states(
  agent_class: type, replay_data_dir: str, seed: int
) -> scores.LoggedStates:
  """Returns the states of the data that gin configures.

  Args:
    agent_class: Class of the agent that learns values.
    replay_data_dir: Directory of the shards, or a store.
    seed: Seed of the states.
  """
  value = functools.partial(gin_signatures.configured_value, agent_class)
  with tf.Graph().as_default():
    replay = fixed_replay_buffer.WrappedFixedReplayBuffer(
      replay_data_dir,
      value('replay_suffix'),
      value('observation_shape'),
      value('stack_size'),
      update_horizon=1,
      gamma=value('gamma'),
      observation_dtype=_dtype(value),
      prefetch=0,
      frames_on_device=False,
      seed=seed,
    )
  return scores.LoggedStates(replay.memory.sampler, seed)


def _dtype(value) -> np.dtype:
  return np.dtype(tf.as_dtype(value('observation_dtype')).as_numpy_dtype)


def make_runner(
  policy: frozen_policy.FrozenPolicy,
  game: str,
  logged: scores.LoggedStates,
  agent_class: type,
  replay_data_dir: str,
  out: str,
  seed: int,
) -> run_experiment.FixedReplayRunner:
  """Returns the runner that learns the values of a policy, in the current graph.

  Its `base_dir` is below `out`. Another policy, other settings or other data have
  another one, so nothing outdated is resumed.

  Args:
    policy: Policy of a run.
    game: Name of the environment.
    logged: Logged states.
    agent_class: Class of the agent that learns the values.
    replay_data_dir: Directory of the shards, or a store.
    out: Directory.
    seed: Seed of the run.

  Raises:
    ValueError: If a setting does not fit.
  """
  iteration = policy.identity['iteration']
  with gin.unlock_config():
    gin.bind_parameter('run_seed.seed', seed)
    gin.bind_parameter('PolicyOfRun.base_dir', policy.base_dir)
    gin.bind_parameter('PolicyOfRun.iteration', iteration)
  value = functools.partial(gin_signatures.configured_value, agent_class)
  run = os.path.basename(policy.base_dir)
  return run_experiment.FixedReplayRunner(
    os.path.join(out, f'{run}-{iteration}-{_digest(policy, logged, seed)}'),
    functools.partial(
      run_experiment.create_offline_agent, replay_data_dir=replay_data_dir
    ),
    functools.partial(
      DataOnly,
      game,
      policy.num_actions,
      list(value('observation_shape')),
      _dtype(value).name,
    ),
    evaluation_steps=0,
  )


def fit(
  runner: run_experiment.FixedReplayRunner,
  policy: frozen_policy.FrozenPolicy,
  logged: scores.LoggedStates,
  seed: int,
) -> float:
  """Returns the mean of sum_a pi(a | s) Q(s, a) over initial states, with Q fitted to pi.

  Args:
    runner: Result of `make_runner`; it runs or resumes unless it is done.
    policy: Policy pi of a run.
    logged: Logged states.
    seed: Seed of a policy that samples.

  Raises:
    FloatingPointError: If the values diverge.
    interruption.Interrupted: If a signal asked the run to stop; it has saved.
  """
  if runner._start_iteration < runner._num_iterations:
    runner.run_experiment()
  agent = runner._agent
  with agent._sess.graph.as_default():
    states = policy.placeholder()
    outputs = policy.outputs(states, scores.seed_of(seed))
    values = scores.expected_value(agent.online(states).q_values, outputs)
  return float(logged.initial_values(agent._sess, states, values).mean())
