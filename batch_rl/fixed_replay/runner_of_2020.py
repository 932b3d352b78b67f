"""Methods of a `FixedReplayRunner` that code written for the 2020 API overrides."""

import inspect
import time
from collections.abc import Callable, Mapping
from typing import Any

from batch_rl.runs import interruption, runner

# Module of `FixedReplayRunner`; other classes are a user's.
_SHIPPED = 'batch_rl.fixed_replay.run_experiment'


class RunnerOf2020(runner.RecordedRunner):
  """Base of `FixedReplayRunner` for code written for the 2020 API.

  A subclass may override these methods as in 2020, or call them:

  - `_run_train_phase()`, which trains by `self._agent._train_step()`;
  - `_run_eval_phase(statistics)`, which returns number and mean return of episodes;
  - `_save_tensorboard_summaries(iteration, num_episodes_eval, average_reward_eval)`;
  - `_run_one_iteration(iteration)`, which may call
    `self._agent._replay.memory.reload_buffer(num_buffers=5)` before these.

  A train phase that is overridden cannot be saved. A run that is interrupted in it,
  or in the evaluation after it, resumes after the last complete iteration.
  """

  _trained: dict[str, Any]
  # Methods of `FixedReplayRunner`.
  _run_train_phase: Callable[..., Any]
  _run_one_iteration: Callable[..., Any]
  _record_files: Callable[[], None]

  def _check_overrides(self) -> None:
    """Checks the parameters of overridden methods, before anything slow.

    Raises:
      ValueError: If a method cannot be called.
    """
    train, save = self._run_train_phase, self._save_tensorboard_summaries
    for method, fits, expected in (
      (train, _accepts(train, 0) or _accepts(train, 1), 'statistics=None'),
      (
        save,
        _accepts(save, 3),
        'iteration, num_episodes_eval, average_reward_eval',
      ),
    ):
      if not fits:
        raise ValueError(
          f'{type(self).__name__}.{method.__name__}{inspect.signature(method)} has '
          f'other parameters than an offline run: ({expected}).'
        )

  def _begin_iteration(self, iteration: int) -> None:
    super()._begin_iteration(iteration)
    self._trained = {}
    methods = self._run_one_iteration, self._run_train_phase
    if any(method.__module__ != _SHIPPED for method in methods):
      # Before a `reload_buffer`: a resumed run then draws the same shards.
      self._agent.begin_iteration(iteration)

  def _train(self, statistics: Any) -> tuple[float, float, float]:
    """Runs the train phase.

    Args:
      statistics: `IterationStatistics` to append to.

    Returns:
      The mean loss of the updates, the updates per second, and the share of the
      time spent waiting for data. The loss is NaN if an overridden phase does not
      return all three.
    """
    agent, start = self._agent, time.monotonic()
    steps, waited = agent.training_steps, agent.seconds_waited
    phase = self._run_train_phase
    result = phase(statistics) if _accepts(phase, 1) else phase()
    if isinstance(result, tuple) and len(result) == 3:
      return result
    self._record_files()
    seconds = max(time.monotonic() - start, 1e-9)
    updates = (agent.training_steps - steps) / agent.update_period
    waited = agent.seconds_waited - waited
    return float('nan'), updates / seconds, waited / seconds

  def _evaluation_safe_point(self) -> None:
    """Allows an interruption; the evaluation then restarts from its beginning."""
    if self._trained:
      self._safe_point(self._training_steps, lambda: self._trained)
    elif self._interruption.requested:
      raise interruption.Interrupted(
        'Stopped; the same command continues after the last complete iteration, '
        f'because {type(self).__name__} overrides _run_train_phase.',
        self._interruption.number,
      )

  def _write_summaries(
    self, scalars: Mapping[str, float], iteration: int
  ) -> None:
    evaluation = ('Eval/NumEpisodes', 'Eval/AverageReturns')
    others = {tag: scalars[tag] for tag in scalars if tag not in evaluation}
    super()._write_summaries(others, iteration)
    if self._summary_writer is not None:
      self._save_tensorboard_summaries(
        iteration, *(scalars[tag] for tag in evaluation)
      )

  def _save_tensorboard_summaries(
    self, iteration, num_episodes_eval, average_reward_eval, *more
  ):
    """Writes the results of an evaluation for TensorBoard.

    Args:
      iteration: Number of the iteration.
      num_episodes_eval: Number of episodes.
      average_reward_eval: Mean return.
      *more: Further arguments, if called with those of Dopamine's `Runner`.
    """
    if more:
      super()._save_tensorboard_summaries(
        iteration, num_episodes_eval, average_reward_eval, *more
      )
      return
    super()._write_summaries(
      {
        'Eval/NumEpisodes': num_episodes_eval,
        'Eval/AverageReturns': average_reward_eval,
      },
      iteration,
    )


def _accepts(method: Callable[..., Any], count: int) -> bool:
  """Returns whether a method can be called with `count` arguments."""
  try:
    inspect.signature(method).bind(*range(count))
  except TypeError:
    return False
  return True
