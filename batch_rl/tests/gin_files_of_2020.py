"""Gin files as they were written in 2020, offline and online."""

from typing import NamedTuple

LEARNER = (
  'gamma = 0.99',
  'update_horizon = 1',
  'min_replay_history = 20000',
  'update_period = 4',
  'target_update_period = 8000',
  'epsilon_train = 0.01',
  'epsilon_eval = 0.001',
  'epsilon_decay_period = 250000',
  "tf_device = '/cpu:*'",
)
RMSPROP = ('optimizer = @tf.train.RMSPropOptimizer()',)
ADAM = ('optimizer = @tf.train.AdamOptimizer()',)
OPTIMIZERS = {
  RMSPROP: (
    'tf.train.RMSPropOptimizer.learning_rate = 0.00025',
    'tf.train.RMSPropOptimizer.centered = True',
  ),
  ADAM: (
    'tf.train.AdamOptimizer.learning_rate = 0.00005',
    'tf.train.AdamOptimizer.epsilon = 0.0003125',
  ),
}
UNIFORM = "replay_scheme = 'uniform'"
DOPAMINE = 'dopamine.replay_memory.'
FIXED = 'batch_rl.fixed_replay.'
LOGGED = 'batch_rl.baselines.'


class File(NamedTuple):
  """A file of 2020.

  Attributes:
    program: Program that it is for, 'offline' or 'online'.
    flag: Value of --agent_name in 2020.
    agent: Class whose parameters it binds.
    own: Parameters of the agent, beside `LEARNER`.
    memory: Class of the replay memory; '' for none.
    imports: Modules that it imports for both.
    runner: Class of the runner.
    lines: Further lines.
  """

  program: str
  flag: str
  agent: str
  own: tuple[str, ...]
  memory: str
  imports: tuple[str, ...]
  runner: str = 'Runner'
  lines: tuple[str, ...] = ()

  def text(self):
    modules = (
      *self.imports,
      'dopamine.discrete_domains.atari_lib',
      'dopamine.discrete_domains.run_experiment',
      'gin.tf.external_configurables',
    )
    memory = self.memory and (
      f'{self.memory}.replay_capacity = 1000000',
      f'{self.memory}.batch_size = 32',
    )
    return '\n'.join(
      (
        *(f'import {module}' for module in modules),
        *(f'{self.agent}.{line}' for line in LEARNER + self.own),
        *OPTIMIZERS[self.own[-1:]],
        "atari_lib.create_atari_environment.game_name = 'Pong'",
        'atari_lib.create_atari_environment.sticky_actions = True',
        f'{self.runner}.num_iterations = 200',
        f'{self.runner}.training_steps = 250000',
        f'{self.runner}.evaluation_steps = 125000',
        f'{self.runner}.max_steps_per_episode = 27000',
        *memory,
        *self.lines,
      )
    )


FILES = {
  'offline dqn': File(
    'offline',
    'dqn',
    'FixedReplayDQNAgent',
    RMSPROP,
    'WrappedFixedReplayBuffer',
    (
      f'{FIXED}agents.dqn_agent',
      f'{FIXED}replay_memory.fixed_replay_buffer',
    ),
    'FixedReplayRunner',
  ),
  'offline c51': File(
    'offline',
    'c51',
    'FixedReplayRainbowAgent',
    ('num_atoms = 51', 'vmax = 10.', UNIFORM, *ADAM),
    'WrappedPrioritizedReplayBuffer',
    (
      'dopamine.agents.rainbow.rainbow_agent',
      f'{DOPAMINE}prioritized_replay_buffer',
    ),
    'FixedReplayRunner',
    (
      "create_agent.agent_name = 'rainbow'",
      "create_runner.schedule = 'continuous_train_and_eval'",
    ),
  ),
  'offline quantile': File(
    'offline',
    'quantile',
    'FixedReplayQuantileAgent',
    ('num_atoms = 200', 'kappa = 1.0', UNIFORM, *ADAM),
    'WrappedFixedReplayBuffer',
    (f'{FIXED}agents.quantile_agent',),
    'FixedReplayRunner',
  ),
  'offline rem': File(
    'offline',
    'multi_head_dqn',
    'FixedReplayMultiHeadDQNAgent',
    (
      'num_heads = 200',
      "transform_strategy = 'STOCHASTIC'",
      'num_convex_combinations = 1',
      *ADAM,
    ),
    'WrappedFixedReplayBuffer',
    (f'{FIXED}agents.multi_head_dqn_agent',),
    'FixedReplayRunner',
  ),
  'online dqn': File(
    'online',
    'dqn',
    'LoggedDQNAgent',
    RMSPROP,
    'WrappedLoggedReplayBuffer',
    (
      f'{LOGGED}agents.dqn_agent',
      f'{LOGGED}replay_memory.logged_replay_buffer',
    ),
  ),
  'online quantile': File(
    'online',
    'quantile',
    'LoggedQuantileAgent',
    ('num_atoms = 200', UNIFORM, *ADAM),
    'WrappedLoggedPrioritizedReplayBuffer',
    (
      f'{LOGGED}agents.quantile_agent',
      f'{LOGGED}replay_memory.logged_prioritized_replay_buffer',
    ),
  ),
  'online random': File(
    'online',
    'random',
    'RandomAgent',
    RMSPROP,
    '',
    (f'{LOGGED}agents.random_agent', f'{LOGGED}run_experiment'),
    'LoggedRunner',
  ),
  # For agents without a log, which train with one now.
  'online c51': File(
    'online',
    'c51',
    'RainbowAgent',
    ('num_atoms = 51', UNIFORM, *ADAM),
    'WrappedPrioritizedReplayBuffer',
    (f'{DOPAMINE}prioritized_replay_buffer',),
    lines=("create_agent.agent_name = 'rainbow'",),
  ),
  'online rem': File(
    'online',
    'rem',
    'MultiNetworkDQNAgent',
    (
      'num_networks = 4',
      "transform_strategy = 'STOCHASTIC'",
      'use_deep_exploration = True',
      *ADAM,
    ),
    'WrappedReplayBuffer',
    (
      'batch_rl.multi_head.multi_network_dqn_agent',
      f'{DOPAMINE}circular_replay_buffer',
    ),
  ),
}
