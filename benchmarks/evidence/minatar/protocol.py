"""The protocol of the MinAtar benchmark: data, agents, search, budget.

README.md beside this file states it in words.
"""

import dataclasses
import itertools
import re
from collections.abc import Mapping

# Runs of the data. Settings are chosen on a run that no table contains.
GAMES = (
  *('MinAtar-Asterix', 'MinAtar-Breakout', 'MinAtar-Freeway'),
  *('MinAtar-Seaquest', 'MinAtar-SpaceInvaders'),
)
RUNS = (1, 2, 3)
SEARCH_GAMES = ('MinAtar-Asterix', 'MinAtar-Breakout')
SEARCH_RUN = 4
# Games of the experiments on parts of the data, and with other numbers of heads.
FEW_GAMES = ('MinAtar-Breakout', 'MinAtar-SpaceInvaders')
PARTS = {  # subset: its name in tables
  'random_trajectories(0.01)': '1 %',
  'random_trajectories(0.1)': '10 %',
  'first_trajectories(0.2)': '20 % of each shard',
}
AGENTS_ON_PARTS = (
  *('dqn_adam', 'quantile', 'rem', 'bc', 'cql', 'bcq', 'iql', 'sarsa'),
)
# Agents of more_agents.yaml, and those whose settings they have.
MORE_AGENTS = {
  'averaged_ensemble_dqn': 'multi_head_dqn',
  'iqn': 'quantile',
  'two_hot': 'hl_gauss',
  'weighted_bc': 'iql',
}
HEADS_PARAMETER = 'FixedReplayMultiHeadDQNAgent.num_heads'
HEADS = (1, 4, 50, 200)
# Agents whose policies in the search are ranked without the emulator.
AGENTS_TO_SELECT = ('dqn_adam', 'quantile', 'rem', 'cql')

ONLINE_AGENT = 'dqn_adam'
ONLINE_ITERATIONS = 20  # of 100,000 agent steps
UPDATES_AN_ITERATION = 12_500
ITERATIONS = (
  12  # offline; half of them on parts and with other numbers of heads
)
UPDATE_PERIOD = 4  # agent steps
EVALUATION_STEPS = 20_000  # agent steps
# A score is the mean of this many last evaluations.
EVALUATIONS_IN_SCORE = 3

_RATES = (0.00025, 0.001)
_THIRD_RATE = 0.0001
_SIX_RATES = (0.0001, 0.00025, 0.0005, 0.001, 0.002, 0.00005)
_PERIODS = (250, 2000)  # updates
# The others depend on the best of these.
FIRST_CONFIGURATIONS = 4


@dataclasses.dataclass(frozen=True)
class Configuration:
  """Settings that the search varies; all else is as in the gin files.

  Attributes:
    learning_rate: Learning rate of the optimiser.
    target_period: Number of updates from one copy of the target network to the next;
      None for an agent without one.
    own: Value of the agent's own parameter in gin syntax; '' without one.
  """

  learning_rate: float
  target_period: int | None = None
  own: str = ''

  @property
  def name(self) -> str:
    """Name without spaces, e.g. `0.001/2000/1.0`."""
    parts = f'{self.learning_rate:g}', self.target_period or '', self.own
    return '/'.join(map(str, parts)).rstrip('/')


@dataclasses.dataclass(frozen=True)
class Agent:
  """An agent and what the search varies.

  Every agent has six configurations: two learning rates by two target periods, then the
  best of these with two other values of its own parameter. Without such a parameter,
  there is a third learning rate instead. Without a target network, learning rates take
  the place of target periods.

  Attributes:
    name: Name of its gin file, or its class as `my_module.MyAgent`.
    parameter: Its own parameter; '' if it has none.
    values: Values of `parameter` in gin syntax: of the paper, and two others.
    has_target: Whether it has a target network.
    optimizer: Name of the optimiser whose learning rate is searched.
    gin_bindings: Settings that stay.
    gin_files: Gin files instead of the package's; those of an agent of the user.
  """

  name: str
  parameter: str = ''
  values: tuple[str, ...] = ()
  has_target: bool = True
  optimizer: str = 'AdamOptimizer'
  gin_bindings: tuple[str, ...] = ()
  gin_files: tuple[str, ...] = ()

  @property
  def folder(self) -> str:
    """Name of its folder in a sweep."""
    return self.name.rpartition('.')[2]

  def first_configurations(self) -> list[Configuration]:
    """Returns those that do not depend on results."""
    own = self.values[0] if self.values else ''
    if not self.has_target:
      return [
        Configuration(rate, None, own)
        for rate in _SIX_RATES[:FIRST_CONFIGURATIONS]
      ]
    return [
      Configuration(rate, period, own)
      for rate, period in itertools.product(_RATES, _PERIODS)
    ]

  def further_configurations(self, best: Configuration) -> list[Configuration]:
    """Returns those that follow the best of the first ones."""
    if self.values:
      others = self.values[1:]
      return [dataclasses.replace(best, own=value) for value in others]
    if not self.has_target:
      return [Configuration(rate) for rate in _SIX_RATES[FIRST_CONFIGURATIONS:]]
    return [Configuration(_THIRD_RATE, period) for period in _PERIODS]

  def bindings(self, configuration: Configuration) -> list[str]:
    """Returns the gin bindings of a configuration."""
    bindings = [
      *self.gin_bindings,
      f'tf.train.{self.optimizer}.learning_rate = {configuration.learning_rate}',
    ]
    if configuration.target_period:
      steps = UPDATE_PERIOD * configuration.target_period
      bindings.append(f'AnyAgent.target_update_period = {steps}')
    if configuration.own:
      bindings.append(f'{self.parameter} = {configuration.own}')
    return bindings

  def configuration(self, bindings: Mapping[str, str]) -> Configuration:
    """Returns the configuration of a run with these gin bindings, `{name: value}`.

    Raises:
      ValueError: If they lack a parameter, or differ in its value.
    """

    def value(parameter):
      known = {
        name: value
        for name, value in bindings.items()
        if re.fullmatch(rf'(.*[./])?{re.escape(parameter)}', name)
      }
      # Files of the parent bind parameters by its name, too.
      own = f'{self.folder}.{parameter}'
      found = {known[own]} if own in known else {*known.values()}
      if len(found) != 1:
        raise ValueError(
          f'it has {len(found) or "no"} values of {parameter}. Give runs with another '
          '--own a --work_dir of their own.'
        )
      return found.pop()

    period = None
    if self.has_target:
      period = int(value('target_update_period')) // UPDATE_PERIOD
    rate = float(value(f'{self.optimizer}.learning_rate'))
    own = value(self.parameter) if self.parameter else ''
    return Configuration(rate, period, own)


AGENTS = (
  Agent('dqn', optimizer='RMSPropOptimizer'),
  Agent('dqn_adam'),
  Agent('c51', 'FixedReplayRainbowAgent.vmax', ('100.0', '30.0', '10.0')),
  Agent('quantile', 'FixedReplayQuantileAgent.num_atoms', ('51', '200', '11')),
  Agent('multi_head_dqn', HEADS_PARAMETER, ('200', '50', '4')),
  Agent('rem', HEADS_PARAMETER, ('200', '50', '4')),
  Agent('bc', has_target=False),
  Agent(
    'percent_bc',
    'FixedReplayBuffer.subset',
    ("'best_steps(0.1)'", "'best_steps(0.2)'", "'best_steps(0.05)'"),
    has_target=False,
  ),
  Agent(
    'cql',
    'CQL.weight',
    ('1.0', '0.1', '4.0'),
    gin_bindings=('FixedReplayQuantileAgent.num_atoms = 51',),
  ),
  Agent('bcq', 'Constrained.threshold', ('0.3', '0.1', '0.5')),
  Agent('iql', 'FixedReplayIQLAgent.expectile', ('0.7', '0.5', '0.9')),
  Agent('dr3', 'DR3.weight', ('0.03', '0.003', '0.3')),
  Agent('munchausen_dqn', 'Munchausen.tau', ('0.03', '0.01', '0.1')),
  Agent('hl_gauss', 'HLGauss.vmax', ('30.0', '10.0', '100.0')),
  Agent('sarsa'),
  Agent('monte_carlo', has_target=False),
)
