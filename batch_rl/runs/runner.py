"""What the online and the offline runner share, over Dopamine's `Runner`."""

import importlib
import json
import os
from collections.abc import Callable, Mapping
from typing import Any

import tensorflow as tf
from absl import logging
from dopamine.discrete_domains import atari_lib, run_experiment
from dopamine.metrics import statistics_instance

from batch_rl.atari import environment
from batch_rl.runs import checkpoints, interruption, progress, run_record
from batch_rl.utils import files, gin_signatures, seeding

_DOPAMINE_KEEPS = 4  # unless its agents are told otherwise


def agent_classes(package: str, agents: Mapping) -> dict[str, type]:
  """Imports agents, so that gin knows each of them, whichever one is trained.

  Args:
    package: where their modules are.
    agents: `{name: (module, class)}`.

  Returns:
    `{name: class}`.
  """
  return {
    name: getattr(importlib.import_module(f'{package}.{module}'), class_name)
    for name, (module, class_name) in agents.items()
  }


@gin_signatures.forwards_to(run_experiment.Runner)
class RecordedRunner(run_experiment.Runner):
  """Dopamine's runner with progress, seeds, exact resume, and a record of it all.

  Args:
    base_dir: for checkpoints, logs, TensorBoard files and `run.json`.
    create_agent_fn: `(sess, environment, summary_writer) -> agent`.
    create_environment_fn: returns the environment.
    record: of the run, as `run_record.start` makes it (and here does if None).
    accept_changes: whether a run may resume on other data than it had.
    **kwargs: as Dopamine's `Runner`.
  """

  def __init__(
    self,
    base_dir,
    create_agent_fn,
    create_environment_fn=atari_lib.create_atari_environment,
    record=None,
    accept_changes=False,
    **kwargs,
  ):
    seeding.seed_libraries(iteration=0)
    self.record = dict(record or run_record.start(base_dir, seeding.run_seed()))
    kwargs['fine_grained_print_to_console'] = False  # there is a progress bar
    self._accept_changes = accept_changes
    self._has_run = False
    self._progress = None
    # What a checkpoint within an iteration has of it, until it is resumed.
    self._partial: dict[str, Any] | None = None
    self._interruption = interruption.Interruption()
    super().__init__(base_dir, create_agent_fn, create_environment_fn, **kwargs)
    self._iteration = self._start_iteration
    self._run_progress = progress.Progress(base_dir, self._num_iterations)

  def _initialize_checkpointer_and_maybe_resume(self, checkpoint_file_prefix):
    """Resumes from the newest checkpoint that is whole; completes the record.

    Raises:
      ValueError: if there are checkpoints, and none can be restored.
    """
    del checkpoint_file_prefix  # names are those of `checkpoints`
    now = environment.describe(self._environment)
    before = self.record.get('environment', now)
    if changes := [
      f'{sign} {name} = {found.get(name)}'
      for name in sorted(before.keys() | now.keys())
      if before.get(name) != now.get(name)
      for sign, found in (('-', before), ('+', now))
    ]:
      run_record.refuse_or_note(
        self.record,
        f'{self._base_dir} holds a run in another environment',
        changes,
        self._accept_changes,
      )
    self.record['environment'] = now
    logging.info('Environment: %s', json.dumps(self.record['environment']))
    gpus = [gpu.name for gpu in tf.config.list_physical_devices('GPU')]
    logging.info('Devices: %s', ', '.join(gpus) or 'CPU only')
    saver = getattr(self._agent, '_saver', None)
    if (
      saver is not None and saver.as_saver_def().max_to_keep != _DOPAMINE_KEEPS
    ):
      logging.warning(
        'max_tf_checkpoints_to_keep has no effect: bind Checkpoints.keep.'
      )
    self._checkpoints = checkpoints.Checkpoints(self._base_dir)
    self._start_iteration = 0
    found = self._checkpoints.newest()
    if found is None:
      return
    checkpoint, state = found
    position, why = checkpoint.position, 'a part of it is missing'
    try:
      restored = self._agent.unbundle(
        checkpoint.directory, position.number, state['agent']
      )
    except tf.errors.OpError as error:
      restored, why = False, files.reason(error)
    if not restored:
      raise ValueError(
        f'The agent cannot be restored from checkpoint {position.name} in '
        f'{checkpoint.directory}: {why}.'
      )
    if self._use_legacy_logger:
      self._logger.data = state['logs']
    self._start_iteration = position.iteration
    self._partial = state.get('partial')
    logging.info('Resuming after %s.', position)

  def run_experiment(self) -> None:
    """Runs the iterations that are left; each ends with a checkpoint.

    Raises:
      interruption.Interrupted: if the run was asked to stop, and has saved.
      ValueError: if it is called again.
    """
    if self._has_run:
      raise ValueError('A runner runs once: make another one to go on.')
    self._has_run = True
    run_record.write(self._base_dir, self.record)
    if self._start_iteration >= self._num_iterations:
      logging.warning(
        'Nothing to do: %d of %d iterations are done.',
        self._start_iteration,
        self._num_iterations,
      )
    with interruption.listen() as self._interruption:
      for iteration in range(self._start_iteration, self._num_iterations):
        self._begin_iteration(iteration)
        statistics = self._run_one_iteration(iteration)
        self._log_experiment(iteration, statistics)
        self._save(checkpoints.Position(iteration + 1), None)
        self._collector_dispatcher.flush()
        if iteration + 1 < self._num_iterations:
          self._stop_if_asked(f'iteration {iteration}')
    if self._summary_writer is not None:
      self._summary_writer.flush()
    self._collector_dispatcher.close()
    self._run_progress.finish()

  def _safe_point(self, steps: int, partial: Callable[[], dict]) -> None:
    """Saves, if it is time, or the run shall stop.

    Args:
      steps: agent steps taken of the iteration.
      partial: returns what an iteration that goes on from here has to know.

    Raises:
      interruption.Interrupted: if the run shall stop.
    """
    position = checkpoints.Position(self._iteration, steps)
    asked = self._interruption.requested
    # Without a step, the checkpoint before says it all.
    if steps and (asked or self._checkpoints.is_due(position)):
      if not self._checkpoints.is_saved(position):
        self._save(position, partial())
    self._stop_if_asked(str(position))

  def _save(self, position, partial):
    if self._summary_writer is not None:
      self._summary_writer.flush()
    self._checkpoints.save(
      position,
      self._write_agent,
      {
        'logs': self._logger.data if self._use_legacy_logger else {},
        'partial': partial,
      },
      self.record,
    )

  def _write_agent(self, directory, number):
    bundle = self._agent.bundle_and_checkpoint(directory, number)
    if saver := getattr(self._agent, '_saver', None):
      saver.set_last_checkpoints_with_time([])  # or it would remove them
    return bundle

  def _stop_if_asked(self, where):
    if self._interruption.requested:
      raise interruption.Interrupted(
        f'Stopped and saved at {where}; the same command goes on from there.'
      )

  def _log_experiment(self, iteration, statistics):
    """Dopamine's; a full disk is an OSError, as anywhere else."""
    try:
      super()._log_experiment(iteration, statistics)
    except tf.errors.OpError as error:
      raise OSError(
        f'{self._base_dir}/logs cannot be written: {files.reason(error)}'
      ) from error

  def _begin_iteration(self, iteration):
    """Seeds the iteration: resumed, it draws what it would have drawn."""
    self._iteration = iteration
    seeding.seed_libraries(iteration)
    seed = seeding.derive('environment', iteration)
    if seed is not None:
      # Dopamine's wrappers take no seed, what they wrap does.
      self._environment.environment.reset(seed=seed)

  def _run_one_phase(self, min_steps, statistics, run_mode_str):
    with self._show_progress(min_steps, run_mode_str, 'step'):
      return super()._run_one_phase(min_steps, statistics, run_mode_str)

  def _run_one_step(self, action):
    if self._progress is not None:
      self._progress.update()
    return super()._run_one_step(action)

  def _end_episode(self, reward, terminal=True):
    # Dopamine's asks whether the agent is a JAX agent, and imports JAX to know.
    del terminal
    self._agent.end_episode(reward)

  def _show_progress(self, total, phase, unit, done=0):
    """A bar with rate and ETA, whose position `progress.json` has, too."""
    self._progress = self._run_progress.bar(
      self._iteration, phase, total, unit, done
    )
    return self._progress

  def _report_scalars(self, scalars, iteration):
    """Gives `{tag: value}` of an iteration to the collectors and TensorBoard."""
    self._run_progress.evaluation = scalars['Eval/AverageReturns']
    self._collector_dispatcher.write(
      [
        statistics_instance.StatisticsInstance(tag, value, iteration)
        for tag, value in scalars.items()
      ]
    )
    if self._summary_writer is None:
      return
    self._summary_writer.add_summary(
      tf.compat.v1.Summary(
        value=[
          tf.compat.v1.Summary.Value(tag=tag, simple_value=value)
          for tag, value in scalars.items()
        ]
      ),
      iteration,
    )
    self._summary_writer.flush()

  def where(self) -> dict[str, str]:
    """What the run leaves behind: `{what: path}`."""
    return {
      'TensorBoard': self._base_dir,
      'logs': os.path.join(self._base_dir, 'logs'),
      'checkpoints': self._checkpoint_dir,
      'record': os.path.join(self._base_dir, run_record.FILE_NAME),
    }
