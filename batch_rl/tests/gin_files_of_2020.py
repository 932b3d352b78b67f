"""Gin files as they were written in 2020, offline and online."""

from typing import NamedTuple

_TEXT = """
import dopamine.discrete_domains.atari_lib
import dopamine.discrete_domains.run_experiment
import gin.tf.external_configurables
AGENT.gamma = 0.99
AGENT.update_horizon = 1
AGENT.min_replay_history = 20000
AGENT.update_period = 4
AGENT.target_update_period = 8000
AGENT.epsilon_train = 0.01
AGENT.epsilon_eval = 0.001
AGENT.epsilon_decay_period = 250000
AGENT.tf_device = '/cpu:*'
atari_lib.create_atari_environment.game_name = 'Pong'
atari_lib.create_atari_environment.sticky_actions = True
RUNNER.num_iterations = 200
RUNNER.training_steps = 250000
RUNNER.evaluation_steps = 125000
RUNNER.max_steps_per_episode = 27000
"""
_MEMORY = """
MEMORY.replay_capacity = 1000000
MEMORY.batch_size = 32
"""
_RMSPROP = """
AGENT.optimizer = @tf.train.RMSPropOptimizer()
tf.train.RMSPropOptimizer.learning_rate = 0.00025
tf.train.RMSPropOptimizer.centered = True
"""
_ADAM = """
AGENT.optimizer = @tf.train.AdamOptimizer()
tf.train.AdamOptimizer.learning_rate = 0.00005
tf.train.AdamOptimizer.epsilon = 0.0003125
"""
_C51 = f"""
{_ADAM}
AGENT.num_atoms = 51
AGENT.replay_scheme = 'uniform'
create_agent.agent_name = 'rainbow'
import dopamine.replay_memory.prioritized_replay_buffer
"""
_QUANTILE = f"""
{_ADAM}
AGENT.num_atoms = 200
AGENT.replay_scheme = 'uniform'
"""
_REM = f"""
{_ADAM}
AGENT.transform_strategy = 'STOCHASTIC'
"""


class File(NamedTuple):
  """A file of 2020."""

  program: str  # 'offline' or 'online'
  flag: str  # value of --agent_name in 2020
  agent: str  # class whose parameters it binds
  memory: str  # class of the replay memory; '' for none
  runner: str
  lines: str

  def text(self):
    text = _TEXT + (self.memory and _MEMORY) + self.lines
    for name in ('AGENT', 'MEMORY', 'RUNNER'):
      text = text.replace(f'{name}.', f'{getattr(self, name.lower())}.')
    # Imports go first: gin must know what the other lines name.
    return '\n'.join(
      sorted(text.splitlines(), key=lambda line: not line.startswith('import'))
    )


def _offline(flag, agent, memory, lines):
  return File('offline', flag, agent, memory, 'FixedReplayRunner', lines)


def _online(flag, agent, memory, lines, runner='Runner'):
  return File('online', flag, agent, memory, runner, lines)


FILES = {
  'offline dqn': _offline(
    'dqn',
    'FixedReplayDQNAgent',
    'WrappedFixedReplayBuffer',
    f"""{_RMSPROP}
import batch_rl.fixed_replay.agents.dqn_agent
import batch_rl.fixed_replay.replay_memory.fixed_replay_buffer""",
  ),
  'offline c51': _offline(
    'c51',
    'FixedReplayRainbowAgent',
    'WrappedPrioritizedReplayBuffer',
    f"""{_C51}
AGENT.vmax = 10.
import dopamine.agents.rainbow.rainbow_agent
create_runner.schedule = 'continuous_train_and_eval'""",
  ),
  'offline quantile': _offline(
    'quantile',
    'FixedReplayQuantileAgent',
    'WrappedFixedReplayBuffer',
    f"""{_QUANTILE}
AGENT.kappa = 1.0
import batch_rl.fixed_replay.agents.quantile_agent""",
  ),
  'offline rem': _offline(
    'multi_head_dqn',
    'FixedReplayMultiHeadDQNAgent',
    'WrappedFixedReplayBuffer',
    f"""{_REM}
AGENT.num_heads = 200
AGENT.num_convex_combinations = 1
import batch_rl.fixed_replay.agents.multi_head_dqn_agent""",
  ),
  'online dqn': _online(
    'dqn',
    'LoggedDQNAgent',
    'WrappedLoggedReplayBuffer',
    f"""{_RMSPROP}
import batch_rl.baselines.agents.dqn_agent
import batch_rl.baselines.replay_memory.logged_replay_buffer""",
  ),
  'online quantile': _online(
    'quantile',
    'LoggedQuantileAgent',
    'WrappedLoggedPrioritizedReplayBuffer',
    f"""{_QUANTILE}
import batch_rl.baselines.agents.quantile_agent
import batch_rl.baselines.replay_memory.logged_prioritized_replay_buffer""",
  ),
  'online random': _online(
    'random',
    'RandomAgent',
    '',
    f"""{_RMSPROP}
import batch_rl.baselines.agents.random_agent
import batch_rl.baselines.run_experiment""",
    runner='LoggedRunner',
  ),
  # For agents without a log, which train with one now.
  'online c51': _online(
    'c51', 'RainbowAgent', 'WrappedPrioritizedReplayBuffer', _C51
  ),
  'online rem': _online(
    'rem',
    'MultiNetworkDQNAgent',
    'WrappedReplayBuffer',
    f"""{_REM}
AGENT.num_networks = 4
AGENT.use_deep_exploration = True
import batch_rl.multi_head.multi_network_dqn_agent
import dopamine.replay_memory.circular_replay_buffer""",
  ),
}
