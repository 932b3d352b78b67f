"""What the online and the offline runner share, over Dopamine's `Runner`."""

import importlib
import json
import os
import sys
from collections.abc import Mapping

import tensorflow as tf
import tqdm.auto as tqdm
from absl import logging
from dopamine.discrete_domains import atari_lib, checkpointer, run_experiment

from batch_rl import run_record, seeding, signatures
from batch_rl.atari import environment


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


@signatures.forwards_to(run_experiment.Runner)
class RecordedRunner(run_experiment.Runner):
  """Dopamine's runner with progress, seeds, and a record of what ran.

  Args:
    base_dir: for checkpoints, logs, TensorBoard files and `run.json`.
    create_agent_fn: `(sess, environment, summary_writer) -> agent`.
    create_environment_fn: returns the environment.
    record: of the run, as `run_record.start` makes it (and here does if None).
    **kwargs: as Dopamine's `Runner`.
  """

  def __init__(
    self,
    base_dir,
    create_agent_fn,
    create_environment_fn=atari_lib.create_atari_environment,
    record=None,
    **kwargs,
  ):
    seeding.seed_libraries(iteration=0)
    self.record = dict(record or run_record.start(base_dir, seeding.run_seed()))
    kwargs['fine_grained_print_to_console'] = False  # there is a progress bar
    self._progress = None
    super().__init__(base_dir, create_agent_fn, create_environment_fn, **kwargs)
    self._iteration = self._start_iteration

  def _initialize_checkpointer_and_maybe_resume(self, checkpoint_file_prefix):
    """Resumes from the newest checkpoint; also completes the record.

    Raises:
      ValueError: if there is a checkpoint that can't be restored.
    """
    self.record['environment'] = environment.describe(self._environment)
    logging.info('Environment: %s', json.dumps(self.record['environment']))
    gpus = [gpu.name for gpu in tf.config.list_physical_devices('GPU')]
    logging.info('Devices: %s', ', '.join(gpus) or 'CPU only')
    super()._initialize_checkpointer_and_maybe_resume(checkpoint_file_prefix)
    newest = checkpointer.get_latest_checkpoint_number(self._checkpoint_dir)
    if newest >= 0 and self._start_iteration == 0:
      raise ValueError(
        f'Checkpoint {newest} in {self._checkpoint_dir} is incomplete: it needs '
        'Checkpointer.checkpoint_frequency = 1, and all of its files.'
      )
    state = tf.train.get_checkpoint_state(self._checkpoint_dir)
    saver = getattr(self._agent, '_saver', None)
    if newest >= 0 and state is not None and saver is not None:
      # Or those from before the restart would never be removed.
      saver.recover_last_checkpoints(list(state.all_model_checkpoint_paths))

  def run_experiment(self) -> None:
    """Runs the iterations that are left; each ends with a checkpoint."""
    run_record.write(self._base_dir, self.record)
    if self._start_iteration >= self._num_iterations:
      logging.warning(
        'Nothing to do: %d of %d iterations are done.',
        self._start_iteration,
        self._num_iterations,
      )
    elif self._start_iteration:
      logging.info('Resuming with iteration %d.', self._start_iteration)
    for iteration in range(self._start_iteration, self._num_iterations):
      self._begin_iteration(iteration)
      statistics = self._run_one_iteration(iteration)
      self._log_experiment(iteration, statistics)
      self._checkpoint_experiment(iteration)
      self._collector_dispatcher.flush()
    if self._summary_writer is not None:
      self._summary_writer.flush()
    self._collector_dispatcher.close()

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

  def _show_progress(self, total, phase, unit):
    """A bar with rate and ETA; in a log file, a line every half minute."""
    interactive = sys.stderr.isatty()
    self._progress = tqdm.tqdm(
      total=total,
      desc=f'iteration {self._iteration} of {self._num_iterations}, {phase}',
      unit=unit,
      unit_scale=True,
      leave=not interactive,
      delay=0 if interactive else 30,
      mininterval=0.2 if interactive else 30,
    )
    return self._progress

  def _write_scalars(self, scalars, iteration):
    """Writes `{tag: value}` for TensorBoard at an iteration."""
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
