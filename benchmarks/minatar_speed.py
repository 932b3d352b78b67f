"""Agents on MinAtar beside Dopamine's own: agent steps/s online, updates/s offline.

  python -um benchmarks.minatar_speed [--parts agents settings] [--quick]

Breakout, with the network and the settings of `batch_rl/minatar/configs`.

- Online: our runner, whose agent writes a log, and Dopamine's, whose agent writes none.
  The network chooses nearly all actions. An agent step in training includes a quarter of
  an update, one in evaluation none.
- Offline: our agents with `frames_on_device`, and `_train_step` of Dopamine's agents on
  their own memory, filled with the same transitions. Dopamine's DQN has a counterpart
  here, and so has its Rainbow with one-step returns and without priorities, as C51.

Ours and theirs have a process each, with one thread a TensorFlow operation, as our gin
files say: it makes Dopamine's faster, too. They take turns, in rounds; all figures are
medians over the rounds. Processor time is that of all threads of the process. Other work on
the machine changes it less than the rates.

A second table has the updates/s of some of our agents with other settings, relative to
those of the gin files.
"""

import batch_rl.agents  # noqa: F401  isort: skip  (before Dopamine)

import contextlib
import functools
import inspect
import os
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import gin
import numpy as np
import tensorflow as tf
from absl import logging
from dopamine.discrete_domains import iteration_statistics
from dopamine.discrete_domains import run_experiment as dopamine_runner
from dopamine.tf.agents.dqn import dqn_agent
from dopamine.tf.agents.rainbow import rainbow_agent

from batch_rl.baselines import run_experiment as online_runner
from batch_rl.dataset.shards import replay_log
from batch_rl.fixed_replay import run_experiment as offline_runner
from batch_rl.minatar import environment, games
from batch_rl.multi_head import networks
from batch_rl.runs.bindings import any_agent
from batch_rl.tests import gin_lines
from benchmarks import measuring

GAME = 'Breakout'
# Phases of an online run; offline, there are updates only.
TRAINING, EVALUATION, UPDATES = 'training', 'evaluation', 'updates'
# Names of gin files.
ONLINE = ('dqn_adam', 'c51')
OFFLINE = (
  'dqn',
  'c51',
  'quantile',
  'multi_head_dqn',
  'averaged_ensemble_dqn',
  'rem',
  *('bc', 'cql', 'bcq', 'dr3', 'iqn', 'munchausen_dqn', 'munchausen_iqn'),
  *('hl_gauss', 'two_hot', 'sarsa', 'monte_carlo', 'iql'),
)
# Settings of the second table: gin bindings, and environment variables.
_THREADS = 'TF_NUM_INTRAOP_THREADS'
SETTINGS: dict[str, tuple[list[str], dict[str, str]]] = {
  'as in the files': ([], {}),
  'jit_compile = True': (['AnyAgent.jit_compile = True'], {}),
  'intra_op_threads = None': ([], {_THREADS: '0'}),
  'TF_CPU_ALLOCATOR_USE_BFC=false': ([], {'TF_CPU_ALLOCATOR_USE_BFC': 'false'}),
}
OF_SETTINGS = ('dqn_adam', 'iql', 'quantile', 'rem')
ROUNDS = 12
STEPS = 400  # at least, of a phase in a round
NUM_UPDATES = 100  # of an offline agent in a round
ROWS = 20_000  # to train on offline
if measuring.QUICK:
  ONLINE, OFFLINE, OF_SETTINGS = ('dqn_adam',), ('dqn',), ('dqn_adam',)
  STEPS, NUM_UPDATES, ROWS = 100, 50, 2_000
  del SETTINGS['jit_compile = True'], SETTINGS['TF_CPU_ALLOCATOR_USE_BFC=false']


class DopamineC51(rainbow_agent.RainbowAgent):
  """Dopamine's Rainbow, which makes its network from MinAtar's."""

  def _create_network(self, name):
    arguments = self._num_atoms, self._support
    network = networks.with_head(self.network, networks.Categorical)
    return network(self.num_actions, *arguments, name=name)


DOPAMINE = {
  'dqn': dqn_agent.DQNAgent,
  'dqn_adam': dqn_agent.DQNAgent,
  'c51': DopamineC51,
}


class Name(NamedTuple):
  """Name of a measurement: an agent's gin file, and a phase."""

  agent: str
  phase: str


# Functions that make agent steps or updates, and return their number.
Work = dict[Name, Callable[[], int]]


def configure(agent: str, online: bool, further: Sequence[str] = ()) -> type:
  """Configures gin as the training programs do, and returns the class of our agent.

  Args:
    agent: Name of the agent's gin file.
    online: Whether the agent is the online one of this name.
    further: Bindings beside those of the files.
  """
  bindings = [f'MinAtarEnvironment.game_name = "{GAME}"', *further]
  if online:
    folder, create = 'baselines', 'create_online_agent'
    registry, config = online_runner.REGISTRY, games.ONLINE_CONFIG
    # The network chooses the actions as soon as updates begin.
    bindings.append('AnyAgent.epsilon_decay_period = 1')
  else:
    folder, create = 'fixed_replay', 'create_offline_agent'
    registry, config = offline_runner.REGISTRY, games.OFFLINE_CONFIG
  gin.clear_config()
  statements = gin_lines.load(
    [f'batch_rl/{folder}/configs/{agent}.gin', config], bindings
  )
  ours = registry.find(gin.query_parameter(f'{create}.agent_name'))
  any_agent.bind(statements, registry, ours)
  return ours


def dopamine_settings(agent: str, online: bool) -> dict[str, Any]:
  """Configures gin, and returns the arguments that make Dopamine's agent like ours.

  Args:
    agent: Name of the gin file of ours.
    online: Whether ours is the online one.

  Raises:
    ValueError: If Dopamine's agent lacks a setting of ours.
  """
  settings = gin.get_bindings(configure(agent, online))
  accepted = inspect.signature(DOPAMINE[agent]).parameters
  if missing := settings.keys() - accepted.keys():
    raise ValueError(f"Dopamine's {agent} has no {', '.join(sorted(missing))}.")
  if 'replay_scheme' in accepted:
    settings['replay_scheme'] = 'uniform'
  return settings


def dopamine_agent(
  sess: tf.compat.v1.Session | None,
  env: environment.MinAtarEnvironment,
  agent: str,
  capacity: int,
  summary_writer: Any = None,
  **settings: Any,
) -> dqn_agent.DQNAgent:
  """Returns one of Dopamine's agents.

  Args:
    sess: TensorFlow session; None creates one.
    env: Environment whose action space the agent gets.
    agent: Name in `DOPAMINE`.
    capacity: Number of transitions in memory.
    summary_writer: Directory of the TensorBoard files; None for no files.
    **settings: Arguments of the agent.
  """
  with gin.unlock_config():
    for memory in ('WrappedReplayBuffer', 'WrappedPrioritizedReplayBuffer'):
      gin.bind_parameter(f'{memory}.replay_capacity', capacity)
  return DOPAMINE[agent](
    sess, env.action_space.n, summary_writer=summary_writer, **settings
  )


def transitions() -> Iterator[tuple[np.ndarray, int, float, bool]]:
  """Yields transitions of random play, the same ones in each call.

  Yields:
    Observation, action, clipped reward, and whether the transition is terminal.
  """
  env, random = environment.MinAtarEnvironment(GAME), np.random.default_rng(0)
  observation = env.reset(seed=0)
  for _ in range(ROWS):
    action = int(random.integers(env.action_space.n))
    following, reward, terminal, _ = env.step(action)
    yield observation, action, min(reward, 1.0), terminal
    observation = env.reset() if terminal else following


def our_work(directory: str) -> Work:
  """Makes our agents, with logs and runs in a directory."""
  work: Work = {}
  for agent in ONLINE:
    configure(agent, online=True)
    run = os.path.join(directory, agent)
    with tf.Graph().as_default():
      runner = online_runner.LoggedRunner(
        run,
        functools.partial(
          online_runner.create_online_agent, replay_log_dir=run
        ),
      )
    runner._begin_iteration(0)
    work |= _phases(agent, runner)
  return work | offline_work(directory, OFFLINE)


def offline_work(
  directory: str, agents: Sequence[str], bindings: Sequence[str] = ()
) -> Work:
  """Makes our offline agents, with their logs in a directory."""
  work: Work = {}
  logs = os.path.join(directory, 'random')
  env = environment.MinAtarEnvironment(GAME)
  with replay_log.ReplayLog(
    logs, env.observation_space.shape, np.uint8, ROWS, stack_size=1
  ) as log:
    for transition in transitions():
      log.add(*transition)
  for agent in agents:
    configure(agent, online=False, further=bindings)
    with tf.Graph().as_default():
      learner = offline_runner.create_offline_agent(None, env, logs)
    work[Name(agent, UPDATES)] = functools.partial(_our_updates, learner)
  return work


def dopamine_work(directory: str) -> Work:
  """Makes Dopamine's agents; see `our_work`."""
  # Its runner looks at it after an episode; gin must not be locked for its import.
  dopamine_runner.jax_dqn_agent.JaxDQNAgent  # noqa: B018
  work: Work = {}
  for agent in ONLINE:
    settings = dopamine_settings(agent, online=True)
    capacity = gin.query_parameter('WrappedLoggedReplayBuffer.replay_capacity')
    with tf.Graph().as_default():
      runner = dopamine_runner.Runner(
        os.path.join(directory, agent),
        functools.partial(
          dopamine_agent, agent=agent, capacity=capacity, **settings
        ),
        environment.MinAtarEnvironment,
        fine_grained_print_to_console=False,
      )
    work |= _phases(agent, runner)
  env = environment.MinAtarEnvironment(GAME)
  for agent in OFFLINE:
    if agent not in DOPAMINE:
      continue
    settings = dopamine_settings(agent, online=False)
    with tf.Graph().as_default():
      learner = dopamine_agent(
        None, env, agent, ROWS, min_replay_history=0, **settings
      )
    for transition in transitions():
      learner._store_transition(*transition)
    work[Name(agent, UPDATES)] = functools.partial(_dopamine_updates, learner)
  return work


def _phases(agent, runner) -> Work:
  """Returns the phases of a runner of either kind, after exploration has ended."""
  _play(runner, TRAINING, runner._agent.min_replay_history + 100)
  return {
    Name(agent, phase): functools.partial(_play, runner, phase, STEPS)
    for phase in (TRAINING, EVALUATION)
  }


def _play(runner, phase, steps):
  mode = {TRAINING: 'train', EVALUATION: 'eval'}[phase]
  runner._agent.eval_mode = phase == EVALUATION
  if isinstance(runner, online_runner.LoggedRunner):
    runner._resume_iteration()  # from its start
  statistics = iteration_statistics.IterationStatistics()
  runner._run_one_phase(steps, statistics, mode)
  return sum(statistics.data_lists[f'{mode}_episode_lengths'])


def _our_updates(agent):
  return len(list(agent.train_steps(NUM_UPDATES * agent.update_period)))


def _dopamine_updates(agent):
  for _ in range(NUM_UPDATES * agent.update_period):
    agent._train_step()
  return NUM_UPDATES


def costs(make_work: Callable[[str], Work], directory: str):
  """Returns a function that does each piece of work once, and returns its costs.

  They are those of a step or an update: `{name: Cost}`.
  """
  work = make_work(directory)
  return lambda: {name: measuring.cost(f, None) for name, f in work.items()}


def measure() -> tuple[dict[Name, np.ndarray], ...]:
  """Returns our costs and Dopamine's, `{name: (rounds, 2)}`, as in `Cost`."""
  one = {_THREADS: '1'}
  default = one | {'TF_CPU_ALLOCATOR_USE_BFC': 'false'}  # TensorFlow's
  with (
    tempfile.TemporaryDirectory() as folder,
    measuring.apart(costs, our_work, f'{folder}/ours', **one) as ours,
    measuring.apart(
      costs, dopamine_work, f'{folder}/theirs', **default
    ) as theirs,
  ):
    ways = {'ours': ours, 'theirs': theirs}
    taken = measuring.take_turns(ways, ROUNDS, warm_up=1)
  return tuple(map(_by_name, taken.values()))


def _by_name(rounds: list[dict[Name, Any]]) -> dict[Name, np.ndarray]:
  return {
    name: np.array([found[name] for found in rounds]) for name in rounds[0]
  }


def measure_settings() -> dict[str, dict[Name, np.ndarray]]:
  """Returns our costs with each of the `SETTINGS`, as `measure` does."""
  with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
    ways = {}
    for i, (name, (bindings, environment)) in enumerate(SETTINGS.items()):
      make = functools.partial(
        offline_work, agents=OF_SETTINGS, bindings=bindings
      )
      ways[name] = stack.enter_context(
        measuring.apart(
          costs, make, f'{folder}/{i}', **{_THREADS: '1'} | environment
        )
      )
    taken = measuring.take_turns(ways, ROUNDS, warm_up=1)
  return {name: _by_name(rounds) for name, rounds in taken.items()}


def rows(
  ours: Mapping[Name, np.ndarray], dopamine: Mapping[Name, np.ndarray]
) -> list[list[str]]:
  """Returns rows of the table: rates and processor times, and their ratios.

  Args:
    ours: Costs of our agents, `{name: (rounds, 2)}`.
    dopamine: Costs of Dopamine's agents, of the same rounds; some may be missing.
  """
  table = []
  for name, found in ours.items():
    ends = 'offline' if name.phase == UPDATES else f'online, {name.phase}'
    row = [f'{name.agent}, {ends}']
    theirs = dopamine.get(name, np.full_like(found, np.nan))
    for column, show in (
      (0, lambda seconds: f'{1 / seconds:,.0f}'),
      (1, lambda seconds: f'{1e3 * seconds:.2f}'),
    ):
      row += [
        show(np.median(theirs[:, column])) if name in dopamine else '',
        show(np.median(found[:, column])),
        f'{np.median(theirs[:, column] / found[:, column]):.2f} x'
        if name in dopamine
        else '',
      ]
    table.append(row)
  return table


def settings_table(
  taken: Mapping[str, Mapping[Name, np.ndarray]],
) -> tuple[list[str], list[list[str]]]:
  """Returns head and rows: rates, relative to those of the first settings."""
  default = next(iter(taken.values()))
  table = []
  for settings, of_agents in taken.items():
    cells = [settings]
    for name, found in of_agents.items():
      ratio = np.median(default[name][:, 0] / found[:, 0])
      cells.append(f'{1 / np.median(found[:, 0]):,.0f}, {ratio:.2f} x')
    table.append(cells)
  return ['updates/s offline', *(name.agent for name in default)], table


def main() -> None:
  """Prints the tables."""
  parser = measuring.parser(__doc__)
  measuring.add_parts(parser, ('agents', 'settings'))
  options = parser.parse_args()
  logging.set_verbosity(logging.ERROR)
  if 'agents' in options.parts:
    measuring.table(
      (
        'agent steps/s online, updates/s offline',
        *('Dopamine', 'batch_rl', 'ratio'),
        *('CPU ms, Dopamine', 'CPU ms, batch_rl', 'ratio'),
      ),
      rows(*measure()),
    )
  if 'settings' in options.parts:
    measuring.table(*settings_table(measure_settings()))


if __name__ == '__main__':
  main()
