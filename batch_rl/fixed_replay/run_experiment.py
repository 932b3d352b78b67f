"""Offline training: a train phase on logged data, then evaluation in Atari."""

import os
import time
from typing import Any

import gin
import tensorflow as tf
from absl import logging
from dopamine.discrete_domains import (
  iteration_statistics,
)
from dopamine.metrics import statistics_instance

from batch_rl import command_line, runner, signatures
from batch_rl.atari import roms
from batch_rl.dataset import files, shard, store_directory
from batch_rl.fixed_replay.agents import AGENTS, fixed_replay_agent

_CLASSES = runner.agent_classes('batch_rl.fixed_replay.agents', AGENTS)


@gin.configurable
def create_offline_agent(
  sess: tf.compat.v1.Session | None,
  environment: Any,
  replay_data_dir: str,
  agent_name: str | None = None,
  init_checkpoint_dir: str | None = None,
  summary_writer: Any = None,
) -> fixed_replay_agent.FixedReplayAgentMixin:
  """Creates an agent that trains on a fixed replay.

  Args:
    sess: `tf.compat.v1.Session`, or None for the agent to make its own.
    environment: whose action space the agent gets.
    replay_data_dir: the directory of the shards.
    agent_name: a name in `AGENTS`.
    init_checkpoint_dir: whose weights to start from, or None.
    summary_writer: where TensorBoard files go.

  Raises:
    ValueError: if the name is unknown.
  """
  return _CLASSES[command_line.choose('agent', agent_name, AGENTS)](
    sess,
    environment.action_space.n,
    replay_data_dir,
    init_checkpoint_dir=init_checkpoint_dir,
    summary_writer=summary_writer,
  )


def logged_game(replay_data_dir: str) -> str | None:
  """The game of a log: the manifest's, or that of the path `<Game>/<run>/...`.

  Args:
    replay_data_dir: the directory of the shards, or a store.

  Returns:
    Its CamelCase name, or None if it can't be told.
  """
  manifest = files.read_json(os.path.join(replay_data_dir, shard.MANIFEST))
  if manifest and 'environment' in manifest:
    return manifest['environment'].get('game')
  if store_directory.is_store(replay_data_dir):
    source = store_directory.StoreDirectory(replay_data_dir).source
    replay_data_dir = source or replay_data_dir
  path = os.path.normpath(os.path.abspath(replay_data_dir))
  try:
    return roms.canonical_name(
      os.path.basename(os.path.dirname(os.path.dirname(path)))
    )
  except ValueError:
    return None


def check_game(replay_data_dir: str, game_name: str | None) -> None:
  """Refuses data of another game than the one to evaluate in.

  Raises:
    ValueError: if the two differ.
  """
  logged = logged_game(replay_data_dir)
  if game_name and logged and logged != roms.canonical_name(game_name):
    raise ValueError(
      f'{replay_data_dir} holds {logged}, but '
      f'atari_lib.create_atari_environment.game_name is {game_name!r}: bind '
      f'it to "{logged}".'
    )


@gin.configurable
@signatures.forwards_to(runner.RecordedRunner)
class FixedReplayRunner(runner.RecordedRunner):
  """Trains on logged data and evaluates after each iteration.

  An iteration is `training_steps` agent steps' worth of updates (250,000 steps
  with an update every 4 are the paper's 62,500 updates), then evaluation in
  complete episodes until `evaluation_steps` agent steps are reached.

  Args:
    base_dir: for checkpoints, logs, TensorBoard files and `run.json`.
    create_agent_fn: `(sess, environment, summary_writer) -> agent`.
    create_environment_fn: returns the environment to evaluate in.
    **kwargs: as Dopamine's `Runner`.
  """

  def _initialize_checkpointer_and_maybe_resume(self, checkpoint_file_prefix):
    """Resumes from the newest checkpoint, if it is of a run on this data.

    Raises:
      ValueError: if it is not, or can't be restored.
    """
    data = self._agent.describe_data()
    before = self.record.get('data', data)
    if before.get('subset_hash') != data.get('subset_hash'):
      raise ValueError(
        f'{self._base_dir} holds a run on other data ({_brief(before)}) than '
        f'there is now ({_brief(data)}); choose another --base_dir.'
      )
    self.record['data'] = data
    logging.info('Data: %s', _brief(data))
    super()._initialize_checkpointer_and_maybe_resume(checkpoint_file_prefix)

  def _run_train_phase(self, statistics):
    """Trains on the iteration's data.

    Args:
      statistics: `IterationStatistics` to append to.

    Returns:
      The mean loss of the updates, and updates per second.
    """
    self._agent.eval_mode = False
    self._agent.begin_iteration(self._iteration)
    updates, total = 0, 0.0
    start = time.time()
    steps = self._training_steps
    expected = -(-steps // self._agent.update_period)
    with self._show_progress(expected, 'train', 'update') as progress:
      for loss in self._agent.train_steps(steps):
        updates += 1
        total += loss
        progress.update()
        if updates % 100 == 0:
          progress.set_postfix(loss=f'{total / updates:.4g}', refresh=False)
    mean_loss = total / max(updates, 1)
    rate = updates / (time.time() - start)
    statistics.append(
      {
        'train_updates': updates,
        'train_average_loss': mean_loss,
        'train_updates_per_second': rate,
      }
    )
    return mean_loss, rate

  def _run_one_iteration(self, iteration):
    statistics = iteration_statistics.IterationStatistics()
    mean_loss, rate = self._run_train_phase(statistics)
    episodes, average_return = self._run_eval_phase(statistics)
    logging.info(
      'Iteration %d: evaluation return %.2f (mean of %d episodes), training '
      'loss %.4g, %.1f updates/s.',
      iteration,
      average_return,
      episodes,
      mean_loss,
      rate,
    )
    scalars = {
      'Train/AverageLoss': mean_loss,
      'Train/UpdatesPerSecond': rate,
      'Eval/NumEpisodes': episodes,
      'Eval/AverageReturns': average_return,
    }
    self._write_scalars(scalars, iteration)
    self._collector_dispatcher.write(
      [
        statistics_instance.StatisticsInstance(tag, value, iteration)
        for tag, value in scalars.items()
      ]
    )
    return statistics.data_lists


def _brief(data: dict[str, Any]) -> str:
  if not data:
    return 'loaded by a subclass'
  return (
    f'subset {data["subset"] or "all"}, hash {data["subset_hash"]}, '
    f'{data["trajectories"]} trajectories in {len(data["shards"])} shards'
  )
