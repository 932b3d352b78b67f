"""Online training that logs everything the agent experiences."""

from typing import Any

import gin
import tensorflow as tf
from absl import logging
from dopamine.discrete_domains import atari_lib

from batch_rl import command_line, runner, signatures
from batch_rl.baselines.agents import AGENTS, logged_agent, random_agent

_CLASSES = runner.agent_classes('batch_rl.baselines.agents', AGENTS)


@gin.configurable
def create_online_agent(
  sess: tf.compat.v1.Session | None,
  environment: Any,
  replay_log_dir: str,
  agent_name: str | None = None,
  summary_writer: Any = None,
) -> logged_agent.LoggedAgentMixin | random_agent.RandomAgent:
  """Creates an agent that logs its experience.

  Args:
    sess: `tf.compat.v1.Session`, or None for the agent to make its own.
    environment: whose action space the agent gets.
    replay_log_dir: the run's directory; shards go to its `replay_logs`.
    agent_name: a name in `AGENTS`.
    summary_writer: where TensorBoard files go.

  Raises:
    ValueError: if the name is unknown.
  """
  return _CLASSES[command_line.choose('agent', agent_name, AGENTS)](
    sess,
    environment.action_space.n,
    replay_log_dir,
    summary_writer=summary_writer,
  )


@gin.configurable
@signatures.forwards_to(runner.RecordedRunner)
class LoggedRunner(runner.RecordedRunner):
  """Dopamine's runner for an agent with a `replay_log`.

  Args:
    base_dir: for checkpoints, logs, TensorBoard files and `run.json`.
    create_agent_fn: `(sess, environment, summary_writer) -> agent`.
    create_environment_fn: returns the environment.
    **kwargs: as Dopamine's `Runner`.

  Raises:
    ValueError: if episodes are to go on across iterations: a checkpoint does not
      hold the emulator, so an episode would be cut where the run resumes.
  """

  def __init__(
    self,
    base_dir,
    create_agent_fn,
    create_environment_fn=atari_lib.create_atari_environment,
    **kwargs,
  ):
    super().__init__(base_dir, create_agent_fn, create_environment_fn, **kwargs)
    if self._max_steps_per_episode is None:
      raise ValueError(
        'Runner.max_steps_per_episode must be a number of steps.'
      )

  def _initialize_checkpointer_and_maybe_resume(self, checkpoint_file_prefix):
    self._log = self._agent.replay_log
    self._log.metadata = self.record  # before the log is taken back
    super()._initialize_checkpointer_and_maybe_resume(checkpoint_file_prefix)

  def _run_one_step(self, action):
    observation, reward, is_terminal = super()._run_one_step(action)
    # The agent gets it clipped; the manifest shall have it as it was.
    self._log.unclipped_reward = reward
    return observation, reward, is_terminal

  def _run_one_iteration(self, iteration):
    statistics = super()._run_one_iteration(iteration)
    logging.info(
      'Iteration %d: training return %.2f, evaluation return %.2f; %d rows '
      'logged, %.1f agent steps/s.',
      iteration,
      statistics['train_average_return'][0],
      statistics['eval_average_return'][0],
      self._log.rows,
      statistics['train_average_steps_per_second'][0],
    )
    return statistics

  def run_experiment(self) -> None:
    """Runs all iterations, then completes the last shard."""
    super().run_experiment()
    self._log.close()

  def where(self) -> dict[str, str]:
    """What the run leaves behind: `{what: path}`."""
    return {**super().where(), 'shards': self._log.directory}
