"""Fitted Q evaluation (Le et al., 2019, arXiv 1903.08738): the value of a trained policy.

It is an ordinary offline run, with the backup `PolicyOfRun` and no evaluation; see
`configs/fqe.gin`.
"""

import functools
import hashlib
import json
import os
import re
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
from batch_rl.runs.bindings import any_agent, bound, gin_internals, settings
from batch_rl.utils import programs
from batch_rl.utils.user_code import gin_signatures, user_modules

CONFIG = 'batch_rl/fixed_replay/configs/fqe.gin'
# Agent parameters that an evaluation takes over from the run.
_SHARED = (
  *('network', 'observation_shape', 'observation_dtype', 'stack_size'),
  *('gamma', 'replay_suffix', 'tf_device'),
)
# Parameters of the memory and the agent that choose a part of the data.
_PARTS = (
  *('subset', 'num_buffers', 'replay_suffix'),
  *('replay_file_start_index', 'replay_file_end_index'),
)
# Configurables whose bindings an evaluation does not take over.
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

  def step(self, action: int) -> None:
    """Raises an error, since there is no game."""
    raise programs.MistakeError(
      'A fitted Q evaluation cannot be played: evaluate the run of its policy.'
    )


class FittedQ:
  """Evaluates policies on logged data by fitted Q evaluation.

  gin has the settings of the evaluations from now on.

  Args:
    record: Record of the run that gives observations, network and discount.
    sources: gin files and bindings that override its settings.
    replay_data_dir: Directory of the shards, or a store.
    out: Directory for the runs, and for the compressed data unless gin binds another.
    seed: Seed of the states and of the runs.
    keeps_part: Whether the data are the part that the run trained on, not all.
    fits: Whether `make_runner` will be called.

  Attributes:
    logged: States of the data.

  Raises:
    ValueError: If a name is unknown, a value is not allowed, the network has several
      outputs an action, or the data cannot be used.
  """

  def __init__(
    self,
    record: Mapping[str, Any],
    sources: Sequence[gin_files.Source],
    replay_data_dir: str,
    out: str,
    seed: int,
    keeps_part: bool = True,
    fits: bool = True,
  ):
    self._game = str((record.get('environment') or {}).get('game'))
    self._replay_data_dir, self._out, self._seed = replay_data_dir, out, seed
    for folder in record.get('modules') or ():
      user_modules.add_folder(folder)
    gin.clear_config()
    gin.parse_config('CollectorDispatcher.collectors = ()')
    stores = os.path.join(out, 'stores')
    recorded = [f'FixedReplayBuffer.cache_dir = {stores!r}']
    recorded += _recorded_lines(record, () if keeps_part else _PARTS)
    lines = gin_files.read([], recorded)
    bindings = gin_files.apply(lines, lock=False, check=False)
    own = gin_files.read([CONFIG], [f'run_seed.seed = {seed}'])
    bindings += gin_files.apply([*own, *sources], lock=False)
    agent = REGISTRY.find(bound.query('create_offline_agent.agent_name'))
    any_agent.bind(bindings, REGISTRY, agent)
    self._value = functools.partial(gin_signatures.configured_value, agent)
    if fits and agent is REGISTRY.find('dqn'):
      heads.check_plain(self._value('network'), self)
    dtype = tf.as_dtype(self._value('observation_dtype')).as_numpy_dtype
    self._dtype = np.dtype(dtype)
    self.logged = self._read_states()

  def _read_states(self) -> scores.LoggedStates:
    with tf.Graph().as_default():
      replay = fixed_replay_buffer.WrappedFixedReplayBuffer(
        self._replay_data_dir,
        self._value('replay_suffix'),
        self._value('observation_shape'),
        self._value('stack_size'),
        update_horizon=1,
        gamma=self._value('gamma'),
        observation_dtype=self._dtype,
        prefetch=0,
        frames_on_device=False,
        seed=self._seed,
      )
    return scores.LoggedStates(replay.memory.sampler, self._seed)

  def make_runner(
    self, policy: frozen_policy.FrozenPolicy
  ) -> run_experiment.FixedReplayRunner:
    """Returns the runner that learns the values of a policy, in the current graph.

    The name of `base_dir` contains a hash of policy, settings and data, so a run resumes
    only with the same ones.

    Raises:
      ValueError: If a setting does not fit.
    """
    iteration = policy.identity['iteration']
    given = {'base_dir': policy.base_dir, 'iteration': iteration}
    rest = 1 - self._value('gamma')
    if rest > 0 and 'returns' not in gin.get_bindings('PolicyOfRun'):
      # An episode may end at once.
      rewards = 0.0, *self.logged.rewards
      given['returns'] = min(rewards) / rest, max(max(rewards), 1e-6) / rest
    with gin.unlock_config():
      for name, value in given.items():
        gin.bind_parameter(f'PolicyOfRun.{name}', value)
    run = os.path.basename(policy.base_dir)
    name = f'{run}-{iteration}-{self._digest(policy)}'
    shape = list(self._value('observation_shape'))
    described = self._game, policy.num_actions, shape, self._dtype.name
    create = run_experiment.create_offline_agent
    return run_experiment.FixedReplayRunner(
      os.path.join(self._out, 'fqe', name),
      functools.partial(create, replay_data_dir=self._replay_data_dir),
      functools.partial(DataOnly, *described),
      evaluation_steps=0,
      accept_changes=True,  # Only paths can differ: the name has a hash of the rest.
    )

  def _digest(self, policy: frozen_policy.FrozenPolicy) -> str:
    """Returns a hash of all that determines the value of a policy: 8 digits."""
    bindings = {
      name: value
      for name, value in run_record.bindings(gin_files.config_text()).items()
      if settings.affects(name) is not settings.Affects.RUNNING
      and name not in ('PolicyOfRun.base_dir', 'PolicyOfRun.iteration')
    }
    parts = [bindings, policy.identity, self.logged.data_hash, self._seed]
    content = json.dumps(parts, sort_keys=True)
    return hashlib.sha256(content.encode()).hexdigest()[:8]

  def fit(
    self,
    runner: run_experiment.FixedReplayRunner,
    policy: frozen_policy.FrozenPolicy,
  ) -> float:
    """Returns the mean of sum_a pi(a | s) Q(s, a) over initial states, with Q fitted to pi.

    Args:
      runner: Result of `make_runner`; it runs or resumes unless it is done.
      policy: Policy pi of a run.

    Raises:
      MistakeError: If it has run for more iterations.
      FloatingPointError: If the values diverge.
      interruption.Interrupted: If a signal asked the run to stop; it has saved.
    """
    done, iterations = runner._start_iteration, runner._num_iterations
    if done > iterations:
      raise programs.MistakeError(
        f'{runner._base_dir} has {done} iterations, more than num_iterations = '
        f'{iterations}: choose another --out.'
      )
    if done < iterations:
      runner.run_experiment()
    agent = runner._agent
    with agent._sess.graph.as_default():
      states = policy.placeholder()
      outputs = policy.outputs(states, scores.seed_of(self._seed))
      values = scores.expected_value(agent.online(states).q_values, outputs)
    return float(self.logged.initial_values(agent._sess, states, values).mean())


def _recorded_lines(
  record: Mapping[str, Any], dropped: Sequence[str] = ()
) -> list[str]:
  """Returns the gin lines of a run for its evaluation, without some parameters."""
  own, plain = (REGISTRY.find(name) for name in (record['agent'], 'dqn'))
  agents = (own, plain, *REGISTRY.load_all().values())
  owners = {base.__name__ for agent in agents for base in agent.__mro__}
  memory = settings.SETTINGS['subset'].owner
  imports, others, of_agents = [], [], {}
  for line in record['gin_config'].split('\n'):
    name, _, value = line.partition(' = ')
    owner, parameter = ['', *re.split('[./]', name)][-2:]
    if line.startswith('import '):
      imports.append(line)
    elif owner in owners:
      of_agents[owner, parameter] = value
    elif parameter in dropped and re.fullmatch(memory, owner):
      continue
    elif value and owner not in _DROPPED and not owner.endswith('Runner'):
      others.append(line)
  shared = []
  for parameter in (name for name in _SHARED if name not in dropped):
    # A run may know a network for each agent.
    order = (plain, own) if parameter == 'network' else (own, plain)
    keys = [(b.__name__, parameter) for agent in order for b in agent.__mro__]
    values = [of_agents[key] for key in keys if key in of_agents]
    if not values:
      default, *shipped = (
        gin_signatures.configured_value(agent, parameter) for agent in agents
      )
      values = [] if default in shipped else [_as_gin(default)]
    shared += [f'AnyAgent.{parameter} = {value}' for value in values[:1]]
  return [*imports, *shared, *others]


def _as_gin(default: Any) -> str:
  """Returns the text of a default of a user's agent in gin."""
  if isinstance(default, tf.DType):
    return f'%tf.{default.name}'
  if not callable(default):
    return repr(default)
  gin_signatures.make_configurable(default)
  return f'@{gin_internals.selector_of(default)}'
