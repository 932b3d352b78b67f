"""Runner of offline training: train phases on logged data, then evaluations."""

import contextlib
import math
import os
import time
from collections.abc import Callable
from typing import Any

import gin
import numpy as np
import tensorflow as tf
from absl import logging
from dopamine.discrete_domains import atari_lib, iteration_statistics

from batch_rl.fixed_replay import vector_evaluation
from batch_rl.fixed_replay.agents import REGISTRY, fixed_replay_agent, probe
from batch_rl.runs import evaluations, run_record, runner
from batch_rl.runs.bindings import settings
from batch_rl.utils import seeding
from batch_rl.utils.user_code import gin_signatures

REGISTRY.load_all()  # gin then knows their names


@gin.configurable
def create_offline_agent(
  sess: tf.compat.v1.Session | None,
  environment: Any,
  replay_data_dir: str | os.PathLike[str] | None,
  agent_name: str | None = None,
  init_checkpoint_dir: str | os.PathLike[str] | None = None,
  summary_writer: Any = None,
) -> fixed_replay_agent.FixedReplayAgentMixin:
  """Creates an agent that trains on a fixed replay, with the seed of the run.

  A replacement for this function has to pass `seed=seeding.run_seed()`, too: an
  agent constructed without a seed is unseeded. `evaluate` imports the replacement, so
  it is defined at the top level of a module.

  Args:
    sess: TensorFlow session; None creates one.
    environment: Environment whose action space the agent gets.
    replay_data_dir: Directory of the shards, or a store; None for an agent that only
      acts.
    agent_name: Name of a shipped agent, or a class of the user as `my_module.MyAgent`.
    init_checkpoint_dir: Directory of the initial weights; None for random weights.
    summary_writer: Directory or writer of the TensorBoard files; None for no files.

  Raises:
    ValueError: If there is no such agent.
  """
  return REGISTRY.find(agent_name)(
    sess,
    num_actions=environment.action_space.n,
    replay_data_dir=replay_data_dir,
    init_checkpoint_dir=init_checkpoint_dir,
    summary_writer=summary_writer,
    seed=seeding.run_seed(),
  )


# Progress of a train phase, at its beginning.
_NO_PROGRESS: dict[str, Any] = {
  'steps': 0,
  'updates': 0,
  'total_loss': 0.0,
  'seconds': 0.0,
  'seconds_waited': 0.0,
}


@gin.configurable
@gin_signatures.forwards_to(runner.RecordedRunner)
class FixedReplayRunner(runner.RecordedRunner):
  """Trains on logged data and evaluates after each iteration.

  An iteration has two phases. The train phase does the updates of
  `training_steps` agent steps: 250,000 steps with an update every 4 are the paper's
  62,500 updates. The evaluation phase plays complete episodes until
  `evaluation_steps` agent steps are reached.

  A subclass may override methods as in 2020: `_run_train_phase()`, `_run_eval_phase`,
  `_save_tensorboard_summaries` and `_run_one_iteration(iteration)`, which may call
  `self._agent._replay.memory.reload_buffer(num_buffers=5)` first. A train phase that is
  overridden cannot be saved: an interrupted run resumes after the last complete
  iteration.

  Args:
    base_dir: Directory of checkpoints, logs, TensorBoard files and `run.json`.
    create_agent_fn: Function `(sess, environment, summary_writer) -> agent`.
    create_environment_fn: Function that returns a new environment to evaluate in.
    evaluation_environments: Number of environments of an evaluation. None selects 1;
      for Atari, four emulators per processor, but at most one per 10,000
      `evaluation_steps`. A resumed run keeps its number.
    probe_size: Number of transitions from which diagnostics are computed after each
      train phase, see `probe.Probe`; 0 for no diagnostics.
    **kwargs: Arguments of `RecordedRunner` and Dopamine's `Runner`.
  """

  _never_called = (
    *('_run_one_step', '_initialize_episode', '_end_episode'),
    *('_run_one_episode', '_run_one_phase', '_checkpoint_experiment'),
  )

  def __init__(
    self,
    base_dir: str,
    create_agent_fn: Callable[..., Any],
    create_environment_fn: Callable = atari_lib.create_atari_environment,
    evaluation_environments: int | None = None,
    probe_size: int = 2048,
    **kwargs: Any,
  ):
    if evaluation_environments is not None:
      evaluation_environments = settings.to_integer(
        'evaluation_environments', evaluation_environments
      )
    self._evaluation_environments = evaluation_environments
    self._probe_size = probe_size
    self._probe: probe.Probe | None = None
    self._diagnostics: dict[str, float] = {}
    self._create_environment_fn = create_environment_fn
    self._trained: dict[str, Any] = {}
    if 'clip_rewards' in kwargs:
      logging.warning(
        'FixedReplayRunner.clip_rewards has no effect: agents learn from the rewards as '
        'they were logged, and evaluations do not clip them.'
      )
    super().__init__(base_dir, create_agent_fn, create_environment_fn, **kwargs)
    if self._seed is not None and getattr(self._agent, '_seed', 0) is None:
      logging.warning(
        'The run has seed %d, but its agent is unseeded, so it cannot be repeated: let '
        'create_agent_fn pass seed=batch_rl.fixed_replay.run_seed() to the agent, and its '
        'constructor pass on **kwargs.',
        self._seed,
      )

  def _initialize_checkpointer_and_maybe_resume(self, checkpoint_file_prefix):
    """Resumes from the newest checkpoint, if its run is on the same data.

    Raises:
      ValueError: If the agent is not an offline agent, the data differs, or the checkpoint
        cannot be restored.
    """
    if not hasattr(self._agent, 'begin_iteration'):
      raise ValueError(
        f'{type(self._agent).__name__} is not an offline agent: put '
        'FixedReplayAgentMixin first among its base classes.'
      )
    if not hasattr(memory := self._agent._replay.memory, 'describe'):
      name = type(self._agent).__name__
      raise ValueError(
        f'{name} has no logged data: pass replay_data_dir, or return a '
        'WrappedFixedReplayBuffer from a _build_replay_buffer of your own.'
      )
    self._compare_data(memory)
    name, given = 'evaluation_environments', self._evaluation_environments
    run_record.compare(
      self._base_dir, self.record, {name: given}, self._accept_changes
    )
    played = self._environment, self._agent, self._evaluation_steps
    count = given or self.record.get(name)
    count = int(count or vector_evaluation.default_environments(*played))
    vector_evaluation.name_ignored_methods(type(self._agent))
    limit = self._max_steps_per_episode
    self._environments = vector_evaluation.make_environments(
      self._environment, count, limit, self._agent, self._create_environment_fn
    )
    self.record[name] = count
    super()._initialize_checkpointer_and_maybe_resume(checkpoint_file_prefix)

  def close(self) -> None:
    """Ends the threads of the run and frees its data."""
    if self._summary_writer is not None:
      self._summary_writer.close()
    if close := getattr(self._agent._replay, 'close', None):
      close()
    self._sess.close()

  def _begin_iteration(self, iteration):
    super()._begin_iteration(iteration)
    self._trained = {}
    if self._probe_size and self._probe is None:
      with self._only_warning():
        self._probe = probe.Probe(self._agent, self._probe_size)
    # Before a `reload_buffer`: a resumed run then draws the same shards.
    done = self._partial or _NO_PROGRESS
    self._agent.begin_iteration(iteration, done['updates'])

  def _run_train_phase(self):
    """Trains on the iteration's data.

    Returns:
      The mean loss of the updates, the updates per second, and the share of the
      time spent waiting for data.
    """
    self._agent.eval_mode = False
    done, self._partial = {**(self._partial or _NO_PROGRESS)}, None
    self._record_files()
    if 'random' in done:
      seeding.restore_random_states(done['random'])
    expected = -(-self._training_steps // self._agent.update_period)
    with self._show_progress(
      expected, 'train', 'update', done['updates']
    ) as progress:
      while (left := self._training_steps - done['steps']) > 0:
        steps = min(left, self._agent.steps_per_run)
        start, waited = time.monotonic(), self._agent.seconds_waited
        before = done['updates']
        for loss in self._agent.train_steps(steps):
          done['updates'] += 1
          done['total_loss'] += loss
        # Together, as they were done: each alone would show a wrong rate.
        progress.update(done['updates'] - before)
        mean = done['total_loss'] / max(done['updates'], 1)
        progress.set_postfix(loss=f'{mean:.4g}', refresh=False)
        done['steps'] += steps
        done['seconds'] += time.monotonic() - start
        done['seconds_waited'] += self._agent.seconds_waited - waited
        self._record_files()
        if steps < left:
          self._safe_point(done['steps'], lambda: self._train_state(done))
    # Evaluation does not train, so an interrupted one restarts from this state.
    self._trained = self._train_state(done)
    seconds = max(done['seconds'], 1e-9)
    updates = done['updates']
    mean_loss = done['total_loss'] / updates if updates else math.nan
    return mean_loss, updates / seconds, done['seconds_waited'] / seconds

  def _train_state(self, done):
    return {**done, 'random': seeding.random_states()}

  def _run_eval_phase(self, statistics):
    """Evaluates the agent and writes the episodes.

    Args:
      statistics: `IterationStatistics` to append to.

    Returns:
      The number of episodes, and their mean return.
    """
    self._agent.eval_mode = True
    with self._show_progress(self._evaluation_steps, 'eval', 'step') as bar:

      def update(steps):
        bar.update(steps)
        self._evaluation_safe_point()

      episodes = vector_evaluation.play_episodes(
        self._environments,
        self._agent.select_actions,
        self._evaluation_steps,
        seeding.derive(self._seed, 'evaluation environments', self._iteration),
        update,
      )
      returns = [episode.undiscounted_return for episode in episodes]
      mean = float(np.mean(returns)) if returns else math.nan
      bar.set_postfix_str(f'return={mean:.2f}', refresh=False)
    for episode in episodes:
      statistics.append(
        {
          'eval_episode_lengths': episode.length,
          'eval_episode_returns': episode.undiscounted_return,
          'eval_episode_clipped_returns': episode.clipped_return,
        }
      )
    if returns:
      statistics.append({'eval_average_return': mean})
    found: Any = self._diagnostics and {'diagnostics': self._diagnostics}
    count = self._environments.num_envs
    evaluations.write(self._base_dir, self._iteration, episodes, count, **found)
    return len(returns), mean

  def _evaluation_safe_point(self):
    """Allows an interruption; the evaluation then restarts from its beginning."""
    obstacle = ''
    if not self._trained:
      obstacle = f'{type(self).__name__} overrides _run_train_phase'
    self._safe_point(self._training_steps, lambda: self._trained, obstacle)

  def _run_one_iteration(self, iteration):
    statistics = iteration_statistics.IterationStatistics()
    result = self._run_train_phase()
    # A train phase that is overridden may return anything.
    has_rates = isinstance(result, tuple) and len(result) == 3
    mean_loss, rate, waiting = result if has_rates else [math.nan] * 3
    self._record_files()
    if self._trained:
      statistics.append(
        {
          'train_updates': self._trained['updates'],
          'train_average_loss': mean_loss,
          'train_updates_per_second': rate,
          'train_waiting_for_data': waiting,
        }
      )
    if self._probe is not None:
      self._diagnostics = {}
      with self._only_warning():
        self._diagnostics = self._probe.measure()
      if found := self._diagnostics:
        texts = [f'{name} {value:.4g}' for name, value in found.items()]
        logging.info('Diagnostics: %s.', ', '.join(texts))
        statistics.append({f'diagnostics_{n}': v for n, v in found.items()})
        tags = {f'Diagnostics/{name}': v for name, v in found.items()}
        self._report_scalars(tags, iteration)
    episodes, average_return = self._run_eval_phase(statistics)
    logging.info(
      'Iteration %d: %straining loss %s, %.1f updates/s (%.1f %% of the time waiting '
      'for data).',
      iteration,
      f'evaluation return {average_return:.2f} (mean of {episodes} episodes), '
      if self._evaluation_steps
      else '',
      # An agent with a `_build_train_op` of its own may not return it.
      'unknown' if np.isnan(mean_loss) else f'{mean_loss:.4g}',
      rate,
      100 * waiting,
    )
    scalars = {
      'Train/AverageLoss': mean_loss,
      'Train/UpdatesPerSecond': rate,
      'Train/WaitingForData': waiting,
    }
    self._report_scalars(scalars, iteration)
    # A run without evaluations has none; JSON has no NaN.
    self._run_progress.evaluation = average_return if episodes else None
    if self._summary_writer is not None:
      self._save_tensorboard_summaries(iteration, episodes, average_return)
    return statistics.data_lists

  @contextlib.contextmanager
  def _only_warning(self):
    """Context in which an error ends the diagnostics, not the run."""
    try:
      yield
    except Exception as error:  # of a user's network, for example
      self._probe, self._probe_size = None, 0
      reason = f'{type(error).__name__}: {error}'.splitlines()[0]
      logging.warning(
        'No diagnostics, since they cannot be computed for %s (%s). Bind '
        'FixedReplayRunner.probe_size = 0 to leave them out.',
        type(self._agent).__name__,
        reason,
      )

  def _save_tensorboard_summaries(
    self, iteration, num_episodes_eval, average_reward_eval
  ):
    """Writes the results of an evaluation for TensorBoard.

    Args:
      iteration: Number of the iteration.
      num_episodes_eval: Number of episodes.
      average_reward_eval: Mean return.
    """
    scalars = {
      'Eval/NumEpisodes': num_episodes_eval,
      'Eval/AverageReturns': average_reward_eval,
    }
    self._report_scalars(scalars, iteration)
