"""Gin files as they were written in 2020, offline and online."""

from typing import NamedTuple

_TEXT = """
import dopamine.discrete_domains.atari_lib
import dopamine.discrete_domains.run_experiment
import gin.tf.external_configurables
AGENT.gamma = 0.99
AGENT.min_replay_history = 20000
AGENT.update_period = 4
AGENT.epsilon_train = 0.01
AGENT.tf_device = '/cpu:*'
atari_lib.create_atari_environment.game_name = 'Pong'
atari_lib.create_atari_environment.sticky_actions = True
RUNNER.num_iterations = 200
"""
_MEMORY = """
MEMORY.replay_capacity = 1000000
MEMORY.batch_size = 32
"""
_RMSPROP = """
AGENT.optimizer = @tf.train.RMSPropOptimizer()
tf.train.RMSPropOptimizer.learning_rate = 0.00025
"""
_ADAM = """
AGENT.optimizer = @tf.train.AdamOptimizer()
tf.train.AdamOptimizer.epsilon = 0.0003125
"""
_C51 = f"""{_ADAM}
AGENT.num_atoms = 51
AGENT.replay_scheme = 'uniform'
KIND = 'rainbow'
create_agent.agent_name = %KIND
import dopamine.replay_memory.prioritized_replay_buffer
"""


class File(NamedTuple):
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


_FILES = {  # by program and flag
  'offline dqn': (
    'FixedReplayDQNAgent',
    'WrappedFixedReplayBuffer',
    'FixedReplayRunner',
    f"""{_RMSPROP}
import batch_rl.fixed_replay.agents.dqn_agent
import batch_rl.fixed_replay.replay_memory.fixed_replay_buffer""",
  ),
  'offline c51': (
    'FixedReplayRainbowAgent',
    'WrappedPrioritizedReplayBuffer',
    'FixedReplayRunner',
    f"""{_C51}
import dopamine.agents.rainbow.rainbow_agent
create_runner.schedule = 'continuous_train_and_eval'""",
  ),
  'online quantile': (
    'LoggedQuantileAgent',
    'WrappedLoggedPrioritizedReplayBuffer',
    'Runner',
    f"""{_ADAM}
import batch_rl.baselines.agents.quantile_agent
import batch_rl.baselines.replay_memory.logged_prioritized_replay_buffer""",
  ),
  'online random': (
    'RandomAgent',
    '',
    'LoggedRunner',
    f"""{_RMSPROP}
import batch_rl.baselines.agents.random_agent
import batch_rl.baselines.run_experiment""",
  ),
  # For an agent without a log, which trains with one now.
  'online rem': (
    'MultiNetworkDQNAgent',
    'WrappedReplayBuffer',
    'Runner',
    f"""{_ADAM}
AGENT.transform_strategy = 'STOCHASTIC'
AGENT.use_deep_exploration = True
import batch_rl.multi_head.multi_network_dqn_agent
import dopamine.replay_memory.circular_replay_buffer""",
  ),
}
FILES = {name: File(*name.split(), *fields) for name, fields in _FILES.items()}
