"""Runner of online training, which logs every transition."""

import math
import os
import time
from collections.abc import Callable
from typing import Any

import gin
import tensorflow as tf
from absl import logging
from dopamine.discrete_domains import atari_lib, iteration_statistics

from batch_rl.atari import environment as environment_lib
from batch_rl.baselines.agents import REGISTRY, logged_agent, random_agent
from batch_rl.baselines.replay_memory import logged_replay_buffer
from batch_rl.dataset import game_names
from batch_rl.runs import environments, games, run_record, runner
from batch_rl.utils import safe_pickle, seeding
from batch_rl.utils.user_code import gin_signatures

REGISTRY.load_all()  # gin then knows their names


@gin.configurable
def create_online_agent(
  sess: tf.compat.v1.Session | None,
  environment: Any,
  replay_log_dir: str,
  agent_name: str | None = None,
  summary_writer: Any = None,
  init_checkpoint_dir: str | os.PathLike[str] | None = None,
) -> logged_agent.LoggedAgentMixin | random_agent.RandomAgent:
  """Creates an agent that logs its experience, with the seed of the run.

  A replacement for this function has to pass `seed=seeding.run_seed()`, too: an
  agent constructed without a seed is unseeded.

  Args:
    sess: TensorFlow session; None creates one.
    environment: Environment whose action space the agent gets.
    replay_log_dir: Run directory; shards go to its `replay_logs`.
    agent_name: Name of a shipped agent, or a class of the user as `my_module.MyAgent`.
    summary_writer: Directory or writer of the TensorBoard files; None for no files.
    init_checkpoint_dir: Directory of the initial weights; None for random weights.

  Raises:
    ValueError: If there is no such agent, or initial weights are given for an agent
      that has none.
  """
  agent_class = REGISTRY.find(agent_name)
  further = {}
  if init_checkpoint_dir is not None:
    if not issubclass(agent_class, logged_agent.LoggedAgentMixin):
      raise ValueError(
        f'{agent_class.__name__} has no weights: leave out --init_checkpoint_dir.'
      )
    further['init_checkpoint_dir'] = init_checkpoint_dir
  return agent_class(
    sess,
    num_actions=environment.action_space.n,
    replay_log_dir=replay_log_dir,
    summary_writer=summary_writer,
    seed=seeding.run_seed(),
    **further,
  )


# State of a phase at its start; the statistics have its complete episodes.
_PHASE_START = {'seconds': 0.0, 'episode': None}


@gin.configurable
@gin_signatures.forwards_to(runner.RecordedRunner)
class LoggedRunner(runner.RecordedRunner):
  """Dopamine's runner for an agent with a `replay_log`.

  With `clip_rewards`, the agent and the log get clipped rewards, as in the dataset.
  The log also receives the unclipped ones, for the returns in its manifest.

  Args:
    base_dir: Directory of checkpoints, logs, TensorBoard files and `run.json`.
    create_agent_fn: Function `(sess, environment, summary_writer) -> agent`.
    create_environment_fn: Function that returns the environment.
    **kwargs: Arguments of `RecordedRunner` and Dopamine's `Runner`.

  Raises:
    ValueError: If the environment's observations do not fit the agent, or its state
      cannot be saved.
  """

  _adapt = staticmethod(environment_lib.make_resumable)
  _never_called = (
    *('_run_one_step', '_end_episode', '_run_train_phase', '_run_eval_phase'),
    *('_save_tensorboard_summaries', '_checkpoint_experiment'),
  )

  def __init__(
    self,
    base_dir: str,
    create_agent_fn: Callable[..., Any],
    create_environment_fn: Callable = atari_lib.create_atari_environment,
    **kwargs: Any,
  ):
    super().__init__(base_dir, create_agent_fn, create_environment_fn, **kwargs)
    environments.check_observation(
      self._environment, self._environment.reset(), self._agent
    )
    played = self.record['environment']['game']
    for name in self.record.get('frozen_policies', ()):
      run = name.rpartition(', ')[0]
      games.check_game_of_run(run, run_record.read(run) or {}, played)
    self._obstacle = 'the environment lacks state() or restore()'
    # No warning: in the games of Atari and MinAtar clipping is usual.
    self._clips_quietly = game_names.known(played) is not None
    own = [getattr(self._environment, n, None) for n in ('state', 'restore')]
    if all(map(callable, own)):
      self._obstacle = ''
      _check_state(self._environment)
    elif self._checkpoints.every_steps is not None:
      logging.warning(
        'Checkpoints.every_steps has no effect: %s.', self._obstacle
      )

  def _initialize_checkpointer_and_maybe_resume(self, checkpoint_file_prefix):
    self._log = self._agent.replay_log
    self._log.metadata = self.record  # before a checkpoint restores the log
    offline = getattr(self._agent, 'offline_rows', None)
    if offline is None:
      self.record.pop('data', None)
    else:
      offline.check_rewards(self._clip_rewards)
      self._compare_data(offline)
    super()._initialize_checkpointer_and_maybe_resume(checkpoint_file_prefix)

  def _run_one_iteration(self, iteration):
    """Trains, then evaluates; resumes from a checkpoint within the iteration."""
    self._resume_iteration()
    statistics = iteration_statistics.IterationStatistics()
    statistics.data_lists = self._state['statistics']
    if self._state['phase'] == 'train':
      self._agent.eval_mode = False
      self._state['train'] = self._run_one_phase(
        self._training_steps, statistics, 'train'
      )
      self._state.update(phase='eval', **_PHASE_START)
    self._agent.eval_mode = True
    evaluation = self._run_one_phase(self._evaluation_steps, statistics, 'eval')
    train = self._state['train']
    statistics.append(
      {
        'train_average_return': train['return'],
        'train_average_steps_per_second': train['rate'],
      }
    )
    scalars = {
      'Train/NumEpisodes': train['episodes'],
      'Train/AverageReturns': train['return'],
      'Train/AverageStepsPerSecond': train['rate'],
      'Eval/NumEpisodes': evaluation['episodes'],
      'Eval/AverageReturns': evaluation['return'],
    }
    evaluated = ''
    if evaluation['episodes']:
      statistics.append({'eval_average_return': evaluation['return']})
      self._run_progress.evaluation = evaluation['return']
      evaluated = f', evaluation return {evaluation["return"]:.2f}'
    self._report_scalars(scalars, iteration)
    logging.info(
      'Iteration %d: training return %.2f%s; %d rows logged, %.1f agent steps/s.',
      iteration,
      train['return'],
      evaluated,
      self._log.rows,
      train['rate'],
    )
    return statistics.data_lists

  def _resume_iteration(self):
    self._state: dict[str, Any] = {
      'phase': 'train',
      'steps': 0,
      'statistics': {},
      **_PHASE_START,
    }
    if self._partial is not None:
      partial, self._partial = self._partial, None
      seeding.restore_random_states(partial.pop('random'))
      self._environment.restore(partial.pop('environment'))
      self._state.update(partial)

  def _run_one_phase(self, min_steps, statistics, run_mode_str):
    """Plays complete episodes until `min_steps` agent steps are reached.

    Returns:
      The number of episodes, their mean return, and agent steps a second.
    """
    state, lists = self._state, statistics.data_lists
    lengths = f'{run_mode_str}_episode_lengths'
    returns = f'{run_mode_str}_episode_returns'
    done = sum(lists.get(lengths, ()))
    self._phase_start = time.monotonic() - state['seconds']
    with self._show_progress(min_steps, run_mode_str, 'step', done) as progress:
      while done < min_steps or state['episode'] is not None:
        length, total = self._run_one_episode(progress)
        statistics.append({lengths: length, returns: total})
        done += length
    played = lists.get(returns, ())
    return {
      'episodes': len(played),
      'return': sum(played) / (len(played) or math.nan),
      'rate': done / (time.monotonic() - self._phase_start),
    }

  def _run_one_episode(self, progress):
    """Runs Dopamine's loop, but can resume it at any step."""
    episode = self._state['episode']
    if episode is None:
      action = self._initialize_episode()
      episode = {'steps': 0, 'return': 0.0, 'action': action}
      self._state['episode'] = episode
    while True:
      self._safe_point(
        self._state['steps'], self._iteration_state, self._obstacle
      )
      observation, reward, terminal, _ = environments.step(
        self._environment, episode['action']
      )
      progress.update()
      self._state['steps'] += 1
      episode['return'] += float(reward)
      episode['steps'] += 1
      if self._clip_rewards:
        if abs(reward) > 1 and not self._clips_quietly:
          self._clips_quietly = True
          logging.warning(
            'The run clips rewards to [-1, 1], such as %g: bind '
            'LoggedRunner.clip_rewards = False to learn them as they are.',
            reward,
          )
        reward = logged_replay_buffer.ClippedReward(reward)
      is_over = self._environment.game_over
      if is_over or episode['steps'] == self._max_steps_per_episode:
        break
      if terminal:  # e.g. a lost life, but not the end of the game
        self._agent.end_episode(reward)
        episode['action'] = self._agent.begin_episode(observation)
      else:
        episode['action'] = self._agent.step(reward, observation)
    self._agent.end_episode(reward)
    self._state['episode'] = None
    return episode['steps'], episode['return']

  def _iteration_state(self):
    return {
      **self._state,
      'seconds': time.monotonic() - self._phase_start,
      'random': seeding.random_states(),
      'environment': self._environment.state(),
    }

  def _conclude(self) -> None:
    """Ends the run, and completes the last shard of its log."""
    super()._conclude()
    self._log.close()


def _check_state(environment):
  """Checks that the state of an environment can be saved."""
  state = environment.state()
  try:
    safe_pickle.dumps(state)
  except ValueError as error:
    raise ValueError(
      f'{type(environment).__name__}.state() cannot be saved, since {error}: return '
      'numbers, text, lists, dicts and arrays, e.g. rng.bit_generator.state for rng.'
    ) from error
