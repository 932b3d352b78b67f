"""Base class of the online and the offline runner, on Dopamine's `Runner`."""

import contextlib
import json
import math
import os
import time
from collections.abc import Callable, Iterator
from typing import Any

import tensorflow as tf
from absl import logging
from dopamine.discrete_domains import atari_lib, run_experiment

from batch_rl.agents import restored_weights
from batch_rl.runs import (
  checkpoints,
  command_line,
  environments,
  evaluations,
  interruption,
  origin,
  progress,
  run_record,
)
from batch_rl.runs.bindings import settings as settings_lib
from batch_rl.runs.loggers import feed
from batch_rl.utils import files, programs, seeding
from batch_rl.utils.user_code import (
  function_records,
  gin_signatures,
  user_modules,
)


@gin_signatures.forwards_to(run_experiment.Runner)
class RecordedRunner(run_experiment.Runner):
  """Dopamine's runner with progress, seeds, exact resume and a record of the run.

  Args:
    base_dir: Directory of checkpoints, logs, TensorBoard files and `run.json`.
    create_agent_fn: Function `(sess, environment, summary_writer) -> agent`. It passes
      `seed=seeding.run_seed()` to the agent, which is unseeded otherwise.
    create_environment_fn: Function that returns the environment, which has the
      attributes and methods of `environments.Environment`, or is one of Dopamine's.
    record: Record of the run from `run_record.start`; None calls that here.
    accept_changes: Whether a run may resume with another seed, or changed settings,
      environment or data. The record lists the changes.
    tensor_float_32: Whether GPUs since Ampere may round the inputs of matrix products
      and convolutions to TF32, with a mantissa of 10 bits instead of 23. It holds for
      the whole process. The default is float32, as in the papers, whereas TensorFlow's
      is TF32. Other devices always compute in float32.
    intra_op_threads: Number of threads of one TensorFlow operation. The first session of
      a process decides. One is best for small networks, and results do not depend on the
      number of processors then. None is `TF_NUM_INTRAOP_THREADS`, or one a processor.
    loggers: Loggers of TensorBoard's scalars: 'wandb', 'mlflow', or a class of the user
      as 'my_module.MyLogger' with the methods of `loggers.process.WandbLogger`.
    **kwargs: Arguments of Dopamine's `Runner`.

  Raises:
    ValueError: If a logger is not installed, a number is not allowed, the default graph
      has variables, another process uses `base_dir`, the environment lacks something, or
      the run was in another one, with another `tensor_float_32` or, without a `record`,
      with other settings.
  """

  # What a subclass changes in the environment.
  _adapt: Callable[[Any], Any] = staticmethod(lambda environment: environment)
  # Methods of Dopamine's runner that a subclass would override without effect.
  _never_called: tuple[str, ...] = ()

  def __init__(
    self,
    base_dir,
    create_agent_fn,
    create_environment_fn=atari_lib.create_atari_environment,
    record=None,
    accept_changes=False,
    tensor_float_32=False,
    intra_op_threads=None,
    loggers=(),
    **kwargs,
  ):
    feed.check(loggers)
    if not callable(create_environment_fn):
      kind = type(create_environment_fn).__name__
      raise ValueError(
        f'create_environment_fn is a {kind}, not a function: give the function or '
        'class itself, in gin @MyEnv without ().'
      )
    base_dir = os.fspath(base_dir)
    if tf.compat.v1.global_variables():
      raise ValueError(
        'The default graph has variables, e.g. those of another runner: make each runner '
        'in its own graph, `with tf.Graph().as_default():`.'
      )
    for name in self._never_called:
      own = getattr(type(self), name)
      if own is not getattr(run_experiment.Runner, name):
        logging.warning('%s is never called by this package.', own.__qualname__)
    for name in origin.RUNNER_SETTINGS:
      if name in kwargs:
        kwargs[name] = settings_lib.to_integer(name, kwargs[name])
    self._loggers = loggers
    tf.config.experimental.enable_tensor_float_32_execution(tensor_float_32)
    self._seed = seeding.run_seed()
    seeding.seed_libraries(self._seed, iteration=0)
    with run_record.locked_for(self, base_dir):
      self.record = dict(
        record or run_record.start(base_dir, self._seed, accept_changes)
      )
      if self._seed is None:
        if checkpoints.find(base_dir):
          no_seed = {'seed': 'None'}
          run_record.compare(base_dir, self.record, no_seed, accept_changes)
        self.record.pop('seed', None)
        logging.warning(
          'The run has no seed, so it cannot be repeated: bind run_seed.seed.'
        )
      kwargs['fine_grained_print_to_console'] = False  # there is a progress bar
      # Reports of online runs read these files.
      kwargs |= {'use_legacy_logger': True, 'logging_file_prefix': 'log'}
      self._accept_changes = accept_changes
      self._has_run = False
      # State within an iteration, from a checkpoint, until the iteration resumes.
      self._partial: dict[str, Any] | None = None
      self._interruption = interruption.Interruption()

      _wait_for_a_new_name(base_dir)
      with session_threads(intra_op_threads):
        super().__init__(
          base_dir,
          lambda *a, **k: _check_constructed(create_agent_fn(*a, **k)),
          lambda: environments.check(self._adapt(create_environment_fn())),
          **kwargs,
        )
      code = origin.describe(
        self._agent, create_agent_fn, create_environment_fn
      )
      described = {
        'epsilon_eval': getattr(self._agent, 'epsilon_eval', None),
        'tensor_float_32': tensor_float_32,
      }
      if policies := getattr(self._agent, 'frozen_policies', None):
        described['frozen_policies'] = policies
      settings: dict[str, Any] = {}
      if record is None:
        settings = origin.describe_settings(self, code)
      # The data are compared by their hashes, and may have moved.
      compared = {**settings, **described, 'replay_dir': None}
      run_record.compare(base_dir, self.record, compared, accept_changes)
      # The environment's description is compared; these may be paths or threads.
      made, before = (
        function_records.arguments(entries.get('create_environment') or {})
        for entries in (code, self.record)
      )
      if 'create_environment' in self.record and made != before:
        problem = 'The environment was last made with other arguments'
        changed = run_record.changes(before, made)
        run_record.refuse_or_note(self.record, problem, changed, accept=True)
      self.record.update(settings, **described, **code)
      run_record.note_new(self.record, 'code', user_modules.loaded_code())
    self._iteration = self._start_iteration
    self._run_progress = progress.Progress(base_dir, self._num_iterations)

  def _initialize_checkpointer_and_maybe_resume(self, checkpoint_file_prefix):
    """Resumes from the newest intact checkpoint and completes the record.

    Raises:
      ValueError: If there are checkpoints and none can be restored.
    """
    del checkpoint_file_prefix  # `checkpoints` names the files
    environment = environments.describe(self._environment)
    before = self.record.get('environment') or {}
    # Records of older versions lack entries.
    now = {key: environment.get(key) for key in before}
    changes = run_record.changes(before, now)
    self._refuse_or_note(changes, 'in another environment')
    self.record['environment'] = environment
    logging.info('Environment: %s', json.dumps(environment))
    gpus = [gpu.name for gpu in tf.config.list_physical_devices('GPU')]
    logging.info('Devices: %s', ', '.join(gpus) or 'CPU only')
    self._check_variables()
    self._checkpoints = checkpoints.Checkpoints(self._base_dir)
    self._start_iteration = 0
    newest = self._checkpoints.newest()
    self._found_checkpoints = checkpoints.find(self._base_dir)
    if newest is None:
      return
    checkpoint, state = newest
    position, reason = checkpoint.position, 'a part of it is missing'
    try:
      if hasattr(self._agent, '_saver'):
        restored_weights.check(
          self._agent,
          checkpoint.weights,
          'restore the settings of networks and optimiser, or choose another --base_dir',
        )
      restored = self._agent.unbundle(
        checkpoint.directory, position.number, state['agent']
      )
      if restored is None:
        reason = (
          'its unbundle returns None; return what super().unbundle returns'
        )
    except tf.errors.OpError as error:
      restored, reason = False, files.reason(error)
    if not restored:
      raise ValueError(
        f'The agent cannot be restored from checkpoint {position.name} in '
        f'{checkpoint.directory}: {reason}.'
      )
    self._logger.data = state['logs']
    self._start_iteration = position.iteration
    self._partial = state.get('partial')
    logging.info('Resuming after %s.', position)

  def _refuse_or_note(self, changes: list[str], where: str) -> None:
    """Refuses to continue the run with changes, or records them."""
    problem = f'{self._base_dir} holds a run {where}'
    if changes:
      accept = self._accept_changes
      run_record.refuse_or_note(self.record, problem, changes, accept)

  def _compare_data(self, data: Any) -> None:
    """Compares the logged data that the run trains on with the record, and adds it.

    Args:
      data: Replay memory, or another object with `describe` and `file_hashes`.

    Raises:
      MistakeError: If a resumed run is on different data.
    """
    self._data = data
    now = data.describe()
    before = self.record.get('data', now)
    changes = []
    if before.get('subset_hash') != now.get('subset_hash'):
      changes = [f'- {_data_text(before)}', f'+ {_data_text(now)}']
    self.record['data'] = {**now, 'files': before.get('files', {})}
    self._record_files(changes, write=False)
    logging.info('Data: %s', _data_text(now))

  def _record_files(self, changes=(), write=True):
    """Compares the files of the data with the record, and adds those read since.

    It is called after updates and before a checkpoint, so a checkpoint's data is
    always recorded, however the run ends.

    Args:
      changes: Other changes of the data, one line each.
      write: Whether to write the record if it has changed.

    Raises:
      MistakeError: If the run may not continue with the changes.
    """
    data = self.record['data']
    before, now = data['files'], self._data.file_hashes()
    if not changes and now.items() <= before.items():
      return
    changed = [
      f'{name}: hash {before[name]} is now {now[name]}'
      for name in sorted(now)
      if before.get(name, now[name]) != now[name]
    ]
    self._refuse_or_note([*changes, *changed], 'on different data')
    data['files'] = dict(sorted({**before, **now}.items()))
    if write:
      run_record.write(self._base_dir, self.record)

  def run_experiment(self) -> None:
    """Runs the remaining iterations; each ends with a checkpoint.

    Raises:
      interruption.Interrupted: If a signal asked the run to stop; it has saved.
      ValueError: If it is called a second time, another runner has continued the run
        since this one was made, or another process uses the directory.
    """
    if self._has_run:
      raise ValueError('A runner runs only once; make a new one to continue.')
    is_done = self._start_iteration >= self._num_iterations
    if is_done:
      done, wanted = self._start_iteration, self._num_iterations
      text = f'Nothing to do: iterations done {done}, wanted {wanted}.'
      # With accepted changes, the record stays as it is.
      if done > wanted and not self._accept_changes:
        text += f' Reports count the first {wanted}.'
      logging.info('%s', text)
    bound = run_record.bindings(self.record.get('gin_config', ''))
    config = {'agent': type(self._agent).__name__, 'seed': self._seed, **bound}
    run_id, name = self.record['run_id'], self._base_dir
    run = {'id': run_id, 'name': name, 'config': config}
    names = () if is_done else self._loggers
    with contextlib.ExitStack() as stack:
      # From a runner that has locked it since, or again if that one is gone.
      lock = run_record.locked_for(self, self._base_dir)
      stack.callback(stack.enter_context(lock))
      if checkpoints.find(self._base_dir) != self._found_checkpoints:
        raise ValueError(
          f'The run in {self._base_dir} has continued since this runner was made: make '
          'a new one.'
        )
      self._has_run = True
      stack.enter_context(feed.running(names, self._summary_writer, run))
      self._interruption = stack.enter_context(interruption.listen())
      evaluations.put_aside(self._base_dir, self._start_iteration)
      if is_done:  # Nothing was trained with the code and the versions of now.
        before = run_record.read(self._base_dir) or {}
        for entry in ('code', 'versions', 'changes'):
          if entry in before:
            self.record[entry] = before[entry]
          else:
            self.record.pop(entry, None)
      if not (is_done and self._accept_changes):
        run_record.write(self._base_dir, self.record)
      for iteration in range(self._start_iteration, self._num_iterations):
        self._begin_iteration(iteration)
        statistics = self._run_one_iteration(iteration)
        # Each time: code of the user may read a binding late.
        self.record['unused_bindings'] = command_line.unused_bindings()
        run_record.write(self._base_dir, self.record)
        self._log_experiment(iteration, statistics)
        end = checkpoints.Position(iteration + 1)
        self._save(end, None)
        if iteration + 1 < self._num_iterations:
          self._stop_if_requested(end)
      self._conclude()

  def _conclude(self) -> None:
    """Ends the run after its last iteration."""
    self._flush_summaries()
    self._run_progress.finish()

  def _safe_point(
    self, steps: int, partial: Callable[[], dict], obstacle: str = ''
  ) -> None:
    """Saves if a checkpoint is due or a signal asks the run to stop.

    Args:
      steps: Agent steps taken in the iteration.
      partial: Function that returns the state needed to resume within the iteration.
      obstacle: Reason why the iteration cannot be saved now, if it cannot.

    Raises:
      interruption.Interrupted: If a signal asked the run to stop.
    """
    position = checkpoints.Position(self._iteration, steps)
    # At step 0 the previous iteration's checkpoint has the same state.
    if steps and not obstacle and not self._checkpoints.is_saved(position):
      if self._interruption.number or self._checkpoints.is_due(position):
        self._save(position, partial())
    self._stop_if_requested(position, obstacle)

  def _check_variables(self):
    """Refuses variables that come after the saver: checkpoints would lack them."""
    agent, optimizer = self._agent, getattr(self._agent, 'optimizer', None)
    listed = getattr(getattr(agent, '_saver', None), '_var_list', None)
    saved = {v.name for v in listed} if isinstance(listed, list) else set()
    if not isinstance(optimizer, tf.compat.v1.train.Optimizer):
      return
    if not saved.issuperset(v.name for v in optimizer.variables()):
      return  # An agent of 2020 may choose what it saves.
    key = tf.compat.v1.GraphKeys.GLOBAL_VARIABLES
    made = {v.name for v in self._sess.graph.get_collection(key)}
    if saved and (late := sorted(made - saved)):
      raise ValueError(
        f'{type(agent).__name__} makes the variable {late[0]} after super().__init__, so '
        'checkpoints would lack it: make it in build_networks.'
      )

  def _save(self, position, partial):
    self._flush_summaries()
    state = {'logs': self._logger.data, 'partial': partial}
    self._checkpoints.save(position, self._write_agent, state, self.record)

  def _write_agent(self, directory, number):
    bundle = self._agent.bundle_and_checkpoint(directory, number)
    if bundle is None and hasattr(self._agent, '_saver'):
      raise programs.MistakeError(
        f'{type(self._agent).__name__}.bundle_and_checkpoint returns None: return what '
        'super().bundle_and_checkpoint returns.'
      )
    if saver := getattr(self._agent, '_saver', None):
      # Otherwise the saver would remove older checkpoints.
      saver.set_last_checkpoints_with_time([])
    return bundle

  def _stop_if_requested(self, position, obstacle=''):
    if self._interruption.number:
      message = f'Stopped and saved at {position}; the same command continues from there.'
      if obstacle:
        message = (
          'Stopped; the same command continues after the last complete iteration, '
          f'because {obstacle}.'
        )
      raise interruption.Interrupted(message, self._interruption.number)

  def _log_experiment(self, iteration, statistics):
    """Logs as Dopamine does; raises OSError for a full disk, not an OpError.

    The last iteration is always logged, since reports read it.
    """
    if iteration + 1 == self._num_iterations:
      self._log_every_n = 1
    path = f'{self._base_dir}/logs/{self._logging_file_prefix}_{iteration}'
    try:
      super()._log_experiment(iteration, statistics)
      if os.path.exists(path):
        files.sync(path)
    except tf.errors.OpError as error:
      # Reports would refuse a part of it.
      with contextlib.suppress(tf.errors.OpError):
        tf.io.gfile.remove(path)
      raise OSError(
        f'{self._base_dir}/logs cannot be written: {files.reason(error)}'
      ) from error

  def _begin_iteration(self, iteration):
    """Seeds the iteration, so that a resumed run makes the same draws."""
    self._iteration = iteration
    seeding.seed_libraries(self._seed, iteration)
    seed = seeding.derive(self._seed, 'environment', iteration)
    if seed is not None:
      environments.seed(self._environment, seed)

  def _show_progress(self, total, phase, unit, done=0):
    """Returns a progress bar with rate and ETA, mirrored in `progress.json`."""
    return progress.Bar(
      self._run_progress, self._iteration, phase, total, unit, done
    )

  def _report_scalars(self, scalars, iteration):
    """Writes `{tag: value}` of an iteration for TensorBoard; NaN is no value."""
    summary = tf.compat.v1.Summary()
    for tag, value in scalars.items():
      if not math.isnan(value):
        summary.value.add(tag=tag, simple_value=value)
    self._flush_summaries(summary, iteration)

  def _flush_summaries(self, *event: Any) -> None:
    """Writes what TensorBoard's writer holds, and an event of summary and iteration.

    Raises:
      OSError: If the file cannot be written, for which TensorFlow has many errors.
    """
    if self._summary_writer is None:
      return
    try:
      if event:
        self._summary_writer.add_summary(*event)
      self._summary_writer.flush()
    except Exception as error:
      raise OSError(
        f"TensorBoard's file in {self._base_dir} cannot be written: "
        f'{files.reason(error)}'
      ) from error


def _check_constructed(agent: Any) -> Any:
  """Returns an agent, if Dopamine's constructor was called."""
  if not hasattr(agent, 'summary_writer'):
    raise ValueError(
      f'{type(agent).__name__} has no summary_writer: let its __init__ call '
      'super().__init__(*args, **kwargs).'
    )
  return agent


@contextlib.contextmanager
def session_threads(number: int | None) -> Iterator[None]:
  """Sets the threads of an operation for a session that is made within.

  Dopamine makes the session's options, so they cannot have it. Programs that
  the process starts later do not inherit it.
  """
  name = 'TF_NUM_INTRAOP_THREADS'
  before = os.environ.get(name)
  if number is not None:
    os.environ[name] = str(number)
  try:
    yield
  finally:
    os.environ.pop(name, None)
    if before is not None:
      os.environ[name] = before


def _wait_for_a_new_name(base_dir: str) -> None:
  """Waits while TensorBoard's next file would replace one: its name has the second."""
  if tf.io.gfile.isdir(base_dir):
    names = '\n'.join(tf.io.gfile.listdir(base_dir))
    while f'events.out.tfevents.{int(time.time())}.' in names:
      time.sleep(0.05)


def _data_text(data: dict[str, Any]) -> str:
  if 'subset_hash' not in data:
    return 'loaded by a subclass'
  return (
    f'subset {data["subset"] or "all"}, hash {data["subset_hash"]}, '
    f'{data["trajectories"]} trajectories in {len(data["shards"])} shards'
  )
