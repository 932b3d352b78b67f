"""The process of a logger: reads lines of JSON from stdin, see `feed`."""

import contextlib
import json
import os
import queue
import signal
import sys
import threading
import traceback
from typing import Any

from batch_rl.utils import programs
from batch_rl.utils.user_code import user_modules


class WandbLogger:
  """A run of Weights & Biases, with the id of this package's run.

  Args:
    run: `id`, `name` and `config`.
  """

  def __init__(self, run: dict[str, Any]):
    import wandb

    # `num_iterations`, for one, may change. W&B takes 128 characters of a name.
    run = {**run, 'resume': 'allow', 'allow_val_change': True}
    run['name'] = run['name'][-128:]
    project = os.environ.get('WANDB_PROJECT', 'batch_rl')
    self._run = wandb.init(project=project, **run)
    # W&B's own steps would have to grow; those of TensorBoard are of two units.
    self._run.define_metric('*', step_metric='step')

  def log(self, scalars: dict[str, float], step: int) -> None:
    """Sends scalars of a TensorBoard step."""
    self._run.log({**scalars, 'step': step})

  def finish(self, completed: bool) -> None:
    """Ends the run, which was stopped if it is not completed."""
    self._run.finish(exit_code=0 if completed else 1)


class MlflowLogger:
  """A run of MLflow, which is found again by a tag.

  Args:
    run: `id`, `name` and `config`.
  """

  def __init__(self, run: dict[str, Any]):
    import mlflow

    self._mlflow, tag = mlflow, 'batch_rl_run_id'
    mlflow.set_experiment(os.environ.get('MLFLOW_EXPERIMENT_NAME', 'batch_rl'))
    query = f"tags.{tag} = '{run['id']}'"
    found = mlflow.search_runs(filter_string=query, output_format='list')
    run_id = found[0].info.run_id if found else None
    mlflow.start_run(run_id, run_name=run['name'], tags={tag: run['id']})
    if not found:  # MLflow refuses changes
      mlflow.log_params(run['config'])

  def log(self, scalars: dict[str, float], step: int) -> None:
    """Sends scalars of a TensorBoard step."""
    self._mlflow.log_metrics(scalars, step=step)

  def finish(self, completed: bool) -> None:
    """Ends the run, which was stopped if it is not completed."""
    self._mlflow.end_run('FINISHED' if completed else 'KILLED')


_LOGGERS: dict[str, Any] = {'wandb': WandbLogger, 'mlflow': MlflowLogger}


def main() -> None:
  """Hands the messages of a run to its logger, until the run ends."""
  # The run sends a message at its end.
  signal.signal(signal.SIGTERM, signal.SIG_IGN)
  source = os.fdopen(os.dup(0), encoding='utf-8')
  os.dup2(os.open(os.devnull, os.O_RDONLY), 0)  # a logger might ask a question
  messages: queue.SimpleQueue[Any] = queue.SimpleQueue()

  def receive():  # at once, so that the run never waits for a slow logger
    with contextlib.suppress(ValueError):  # a part of a line
      for line in source:
        messages.put(json.loads(line))
    messages.put(False)  # the run was killed

  threading.Thread(target=receive, daemon=True).start()
  name, run = messages.get()
  try:
    logger = (_LOGGERS.get(name) or user_modules.load(name))(run)
    while not isinstance(message := messages.get(), bool):
      logger.log(*message)
    logger.finish(message)
  except Exception as error:
    if name not in _LOGGERS and user_modules.is_raised_by_user(error):
      traceback.print_exc()
    reason = f'{type(error).__name__}: {programs.one_line(error)}'
    end = f'The logger {name} has stopped ({reason}); the run goes on.'
    print(end, file=sys.stderr, flush=True)
    os._exit(1)  # its threads may wait for a network
