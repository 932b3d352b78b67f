"""The speed of training: updates and evaluation offline, agent steps online.

  python -um benchmarks.iteration [--parts updates evaluation cores online]
      [--quick]

Updates, interleaved so that disturbances affect all variants alike:

- the agent as the main job runs it;
- the same graph with a constant batch: the upper bound, with free data;
- Dopamine's loop, with the same library versions: Python draws each batch on demand
  from uncompressed memory, and each update is a `session.run`. It has a separate
  process, since TensorFlow's settings apply to a whole process.

Diagnostics: their time, once an iteration, as a share of that of its updates.

Evaluation: Dopamine's loop over one environment (ours, which is faster than
Dopamine's), several environments side by side, and scaling with the cores. No episode
ends early, so waiting for the last episode is not measured.

Online: a DQN that logs its data, beside Dopamine's DQN, and the share of logging.
"""

import batch_rl.agents  # noqa: F401  isort: skip  (before Dopamine)

import contextlib
import functools
import os
import tempfile
import time
from collections.abc import Callable

import gin
import numpy as np
import tensorflow as tf
from absl import logging
from dopamine.discrete_domains import atari_lib
from dopamine.tf.agents.dqn import dqn_agent

from batch_rl.baselines.agents import dqn_agent as logged_dqn_agent
from batch_rl.fixed_replay import run_experiment, vector_evaluation
from batch_rl.fixed_replay.agents import probe
from batch_rl.multi_head import multi_head_dqn_agent
from batch_rl.utils import seeding
from benchmarks import measuring

DATA_DIR = 'data/Pong/1/replay_logs'
NUM_ACTIONS = 6
UPDATES = 50  # a round: the default number in a `session.run`
ROUNDS = 25
STEPS = 250  # agent steps of each environment a round
EVALUATION_ROUNDS = 5
ONLINE_ROUNDS = 40
ONLINE_STEPS = 100  # agent steps a round
HISTORY = 200  # agent steps online before the first update
PROBE_SIZE = 2048  # transitions: the default of `FixedReplayRunner`
ENVIRONMENTS = (1, 2, 4, 8, 12)
AGENTS = ('dqn', 'rem')
if measuring.QUICK:
  UPDATES, STEPS, ENVIRONMENTS, AGENTS = 2, 10, (8,), ('dqn',)
  PROBE_SIZE, ONLINE_STEPS, HISTORY = 32, 8, 40


class _Environment:
  class action_space:  # noqa: N801  (as Gymnasium calls it)
    n = NUM_ACTIONS


def offline_agent(name: str, data_dir: str = DATA_DIR, **bindings):
  """Returns an offline agent in its own graph, configured by its gin file."""
  gin.clear_config()
  gin.parse_config_file(f'batch_rl/fixed_replay/configs/{name}.gin')
  for parameter, value in bindings.items():
    gin.bind_parameter(parameter.replace('__', '.'), value)
  if measuring.QUICK:
    gin.bind_parameter('FixedReplayBuffer.replay_file_end_index', 1)
  with tf.Graph().as_default():
    seeding.seed_libraries(seeding.run_seed(), 0)
    return run_experiment.create_offline_agent(None, _Environment, data_dir)


def constant_loop(agent, updates: int = UPDATES) -> Callable[[], None]:
  """Returns a function that runs updates of an agent with a constant batch."""
  replay = agent._replay
  with agent._sess.graph.as_default(), tf.device(agent.state_ph.device):
    with tf.control_dependencies(replay.ready):
      batch = replay.next_batch()
    values = agent._sess.run(batch)

    def constants():
      # Not a `tf.constant`: TensorFlow could fold parts of the computation.
      arrays = tf.numpy_function(lambda: values, [], [t.dtype for t in batch])
      return [
        tf.ensure_shape(array, tensor.shape)
        for array, tensor in zip(arrays, batch, strict=True)
      ]

    loop = agent.build_loop(constants, [])
  steps = updates * agent.update_period
  return lambda: loop.run(agent._sess, 4, steps)


def dopamine_agent(name: str):
  """Returns the same agent on Dopamine's replay memory, filled with a shard."""
  gin.clear_config()
  gin.parse_config_file(f'batch_rl/fixed_replay/configs/{name}.gin')
  gin.bind_parameter('WrappedReplayBuffer.replay_capacity', 10_000)
  # The file binds those of our class only.
  ours = gin.query_parameter('create_offline_agent.agent_name')
  bound = gin.get_bindings(run_experiment.REGISTRY.find(ours))
  shared = {k: bound[k] for k in ('optimizer', 'tf_device') if k in bound}
  classes = {
    'dqn': dqn_agent.DQNAgent,
    'rem': multi_head_dqn_agent.MultiHeadDQNAgent,
  }
  options = {'rem': {'transform_strategy': 'STOCHASTIC'}}.get(name, {}) | shared
  with tf.Graph().as_default():
    agent = classes[name](None, NUM_ACTIONS, min_replay_history=0, **options)
    agent._replay.memory.load(DATA_DIR, 0)
  return agent


def dopamine_loop(name: str) -> Callable[[], None]:
  """Returns a function that runs updates as Dopamine's agents do."""
  agent = dopamine_agent(name)

  def train():
    for _ in range(UPDATES * agent.update_period):
      agent._train_step()

  return train


def times(name: str) -> dict[str, np.ndarray]:
  """Returns the seconds of each round by variant, and the share spent waiting."""
  default = {'TF_CPU_ALLOCATOR_USE_BFC': 'false'}  # TensorFlow's
  with measuring.apart(dopamine_loop, name, **default) as dopamine_updates:
    agent = offline_agent(name)
    constant = constant_loop(agent)
    steps = UPDATES * agent.update_period
    taken = measuring.interleave(
      {
        # Before and after: the machine's speed drifts within minutes.
        'before': constant,
        'ours': lambda: list(agent.train_steps(steps)),
        'after': constant,
        'dopamine': dopamine_updates,
      },
      ROUNDS,
    )
  taken['constant'] = (taken.pop('before') + taken.pop('after')) / 2
  agent.seconds_waited = 0.0
  start = time.perf_counter()
  list(agent.train_steps(4 * steps))
  waited = agent.seconds_waited / (time.perf_counter() - start)
  share = diagnostics_share(agent)
  return taken | {'waited': waited, 'diagnostics': share}


def diagnostics_share(agent) -> float:
  """Returns the time of an iteration's diagnostics, relative to 62,500 updates."""
  steps = UPDATES * agent.update_period
  taken = measuring.interleave(
    {
      'updates': lambda: list(agent.train_steps(steps)),
      'diagnostics': probe.Probe(agent, PROBE_SIZE).measure,
    },
    EVALUATION_ROUNDS,
  )
  ratios = taken['diagnostics'] / taken['updates']
  return float(np.median(ratios)) * UPDATES / 62_500


def single_steps(agent, environment, steps: int) -> None:
  """Evaluates as Dopamine does: one environment, one state at a time."""
  action = agent.begin_episode(environment.reset())
  for _ in range(steps):
    observation, reward, terminal, _ = environment.step(action)
    if terminal:
      agent.end_episode(reward)
      action = agent.begin_episode(environment.reset())
    else:
      action = agent.step(reward, observation)


def evaluation_times(name: str) -> dict[int, np.ndarray]:
  """Returns seconds an agent step by number of environments; 0: Dopamine's loop."""
  agent = offline_agent(name)
  agent.eval_mode = True
  single = atari_lib.create_atari_environment('Pong')
  functions = {
    count: side_by_side(agent, single, count)
    if count
    else functools.partial(single_steps, agent, single, STEPS)
    for count in (0, *ENVIRONMENTS)
  }
  taken = measuring.interleave(functions, EVALUATION_ROUNDS)
  return {
    count: times / (STEPS * max(count, 1)) for count, times in taken.items()
  }


def side_by_side(agent, single, count: int) -> Callable[[], None]:
  """Returns a function that plays `STEPS` agent steps in each environment."""
  environments = vector_evaluation.make_environments(
    single, count, STEPS, agent
  )

  def play():
    vector_evaluation.play_episodes(
      environments, agent.select_actions, count * STEPS, seed=0
    )

  return play


def evaluation_by_cores(name: str) -> None:
  """Prints how evaluation scales with cores, at four environments a core."""
  cores = sorted(os.sched_getaffinity(0))
  counts = [2**i for i in range(len(cores).bit_length())]
  with contextlib.ExitStack() as stack:
    functions = {
      count: stack.enter_context(
        measuring.apart(_evaluation_on, name, cores[:count])
      )
      for count in counts
    }
    taken = measuring.interleave(functions, EVALUATION_ROUNDS)
  for count in counts:
    # The number of environments is proportional to the cores.
    times = taken[1] / taken[count] * count
    measuring.row(
      f'{name}: agent steps/s in evaluation, {count} of the cores',
      '',
      f'{4 * count * STEPS / np.median(taken[count]):.0f}',
      f'{np.median(times):.2f} x' if count > 1 else '',
    )


def _evaluation_on(name: str, cores: list[int]) -> Callable[[], None]:
  os.sched_setaffinity(0, cores)
  agent = offline_agent(name)
  agent.eval_mode = True
  single = atari_lib.create_atari_environment('Pong')
  return side_by_side(agent, single, 4 * len(cores))


def online() -> None:
  """Measures the agent steps/s of an online DQN, with and without a log."""
  with tempfile.TemporaryDirectory() as directory:
    plain = online_agent(None)
    logged = online_agent(os.path.join(directory, 'logged'))
    silent = online_agent(os.path.join(directory, 'silent'))
    silent.replay_log.add = lambda *transition, **_: None
    functions = {}
    for name, agent in (
      ('plain', plain),
      ('logged', logged),
      ('silent', silent),
    ):
      environment = atari_lib.create_atari_environment('Pong')
      single_steps(agent, environment, HISTORY + ONLINE_STEPS)
      functions[name] = functools.partial(
        single_steps, agent, environment, ONLINE_STEPS
      )
    taken = measuring.interleave(functions, ONLINE_ROUNDS)
    logged.replay_log.close()
    silent.replay_log.close()
  measuring.row(
    'online DQN on Pong, agent steps/s (ours logs)',
    f'{ONLINE_STEPS / np.median(taken["plain"]):.0f}',
    f'{ONLINE_STEPS / np.median(taken["logged"]):.0f}',
    f'{np.median(taken["plain"] / taken["logged"]):.2f} x',
    '1.0 x',
  )
  share = 1 - np.median(taken['silent'] / taken['logged'])
  measuring.row(
    'online DQN on Pong, share of time for logging',
    '',
    f'{100 * share:.1f} %',
    '',
    '5 %',
  )


def online_agent(directory: str | None):
  """Returns an online DQN that logs to `directory`; if None, Dopamine's DQN.

  It acts by its network: an agent that explores does so at random.
  """
  gin.clear_config()
  ways = {'min_replay_history': HISTORY, 'epsilon_decay_period': 1}
  with tf.Graph().as_default():
    if directory is None:
      return dqn_agent.DQNAgent(None, NUM_ACTIONS, **ways)
    return logged_dqn_agent.LoggedDQNAgent(None, NUM_ACTIONS, directory, **ways)


def updates() -> None:
  """Prints the rows of updates and diagnostics."""
  for name in AGENTS:
    found = times(name)
    ours, constant, dopamine = (
      found[way] for way in ('ours', 'constant', 'dopamine')
    )
    share = 100 * constant / ours
    error = np.std(share) / len(share) ** 0.5
    measuring.row(
      f'{name}: updates/s',
      f'{UPDATES / np.median(dopamine):.1f}',
      f'{UPDATES / np.median(ours):.1f}',
      f'{np.median(dopamine / ours):.2f} x',
      '1.12 x',
    )
    measuring.row(
      f'{name}: updates/s, share of the rate with a constant batch',
      f'{100 * np.mean(constant / dopamine):.0f} %',
      f'{np.mean(share):.1f} ± {error:.1f} %',
      '',
      '97 %',
    )
    measuring.row(
      f'{name}: share of time waiting for data',
      '',
      f'{100 * found["waited"]:.2f} %',
    )
    measuring.row(
      f'{name}: diagnostics, share of the time of 62,500 updates',
      '',
      f'{100 * found["diagnostics"]:.2f} %',
      '',
      '2 %',
    )


def evaluation() -> None:
  """Prints the rows of evaluation."""
  for name in AGENTS:
    found = evaluation_times(name)
    for count in ENVIRONMENTS:
      measuring.row(
        f'{name}: agent steps/s in evaluation, {count} environments',
        f'{1 / np.median(found[0]):.0f}',
        f'{1 / np.median(found[count]):.0f}',
        f'{np.median(found[0] / found[count]):.2f} x',
        '2.5 x' if count == 8 else '',
      )


def cores() -> None:
  """Prints the rows of evaluation on a part of the cores."""
  for name in AGENTS:
    evaluation_by_cores(name)


def main() -> None:
  """Prints the table."""
  functions = updates, evaluation, cores, online
  parts = {function.__name__: function for function in functions}
  parser = measuring.parser(__doc__)
  measuring.add_parts(parser, parts)
  options = parser.parse_args()
  logging.set_verbosity(logging.ERROR)
  measuring.header()
  for part in options.parts:
    parts[part]()


if __name__ == '__main__':
  main()
