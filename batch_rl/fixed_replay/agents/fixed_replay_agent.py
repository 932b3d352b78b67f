"""Base of the offline agents: a mixin that trains Dopamine agents on logged data."""

import contextlib
import copy
import operator
import os
import random
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
import tqdm
from dopamine.tf.agents.dqn import dqn_agent
from dopamine.tf.replay_memory import circular_replay_buffer

from batch_rl.agents import graph_checks, loss_agent, session_calls
from batch_rl.dataset.sampling import row_sampler
from batch_rl.fixed_replay.agents import update_loop
from batch_rl.fixed_replay.replay_memory import (
  fixed_replay_buffer,
  graph_replay,
)
from batch_rl.runs import games, initial_weights, progress
from batch_rl.utils import files, programs, seeding
from batch_rl.utils.user_code import gin_signatures

_has_data = True  # of the agents that are built now


@contextlib.contextmanager
def without_data() -> Iterator[None]:
  """Context in which agents are built that only act, whatever data they are given."""
  global _has_data
  _has_data, before = False, _has_data
  try:
    yield
  finally:
    _has_data = before


def has_data() -> bool:
  """Returns whether agents that are built now have data, see `without_data`."""
  return _has_data


class FixedReplayAgentMixin(loss_agent.LossAgent):
  """Mixin that makes a Dopamine agent's replay memory a fixed replay.

  It precedes the agent among the base classes. The agent defines what it learns in
  `loss` and how it acts in `choose_actions`, see `LossAgent`. Optimiser, minimisation,
  loop, checkpoints and checks are here. An agent with a `_build_train_op` of its own
  trains, too, with one update per `session.run`.

  The agent trains by `train_steps`, or by Dopamine's `begin_episode` and `step`, and
  adds nothing to its replay memory. `min_replay_history` has no effect, since the data
  is complete from the start.

  Args:
    sess: TensorFlow session; None creates one.
    num_actions: Number of actions.
    replay_data_dir: Directory of the shards (`<run>/replay_logs`), or a store; None for
      an agent that only acts.
    replay_suffix: Number of a single shard to use; None for all shards.
    init_checkpoint_dir: Directory of the initial weights: a run's `base_dir` or a
      folder of TensorFlow checkpoints. The newest checkpoint is used. None for
      random weights.
    updates_per_run: Maximum number of updates in one `session.run`; results do not
      depend on it. 1 runs each update on its own, as Dopamine does.
    jit_compile: Whether XLA compiles the update. Results then differ in the last
      digits; REM draws other mixtures, and IQN other levels.
    seed: Seed of the data and of the draws in the loss; None for an unseeded agent.
      A runner seeds the initial weights (`tf.compat.v1.set_random_seed`) and the
      exploration (`random`).
    **kwargs: Arguments of the agent.

  Attributes:
    seconds_waited: Time in seconds that updates have waited for data, an upper bound
      on a GPU. It is not measured with `deterministic_ops`, or for an agent without
      `loss`.

  Raises:
    ValueError: If the data has more actions than the environment, the checkpoint does
      not fit the networks, `loss` or `choose_actions` is not as `LossAgent` expects, or
      `updates_per_run` is below 1.
  """

  def __init__(
    self,
    sess: tf.compat.v1.Session | None,
    num_actions: int,
    replay_data_dir: str | os.PathLike[str] | None,
    replay_suffix: int | None = None,
    init_checkpoint_dir: str | os.PathLike[str] | None = None,
    updates_per_run: int = 50,
    jit_compile: bool = False,
    seed: int | None = None,
    **kwargs: Any,
  ):
    row_sampler.check_counts(updates_per_run=updates_per_run)
    if not _has_data:
      replay_data_dir = init_checkpoint_dir = None
      # A subclass's, as of 2020, would read data.
      build = FixedReplayAgentMixin._build_replay_buffer
      vars(self)['_build_replay_buffer'] = lambda staging: build(self, staging)
    self._replay_data_dir = os.fspath(replay_data_dir or '') or None
    self._replay_suffix = replay_suffix
    self._init_checkpoint_dir = init_checkpoint_dir  # For the 2020 API.
    self._updates_per_run = updates_per_run
    self._jit_compile = jit_compile
    self._seed = seed
    self.seconds_waited = 0.0
    self._loop: update_loop.UpdateLoop | None = None
    self._scalar_names = ['Loss']
    if gin_signatures.next_accepts(
      self, FixedReplayAgentMixin, 'min_replay_history'
    ):
      kwargs['min_replay_history'] = 0
    following: Any = super()._train_step
    if following.__func__ is not dqn_agent.DQNAgent._train_step:
      raise ValueError(
        f'{following.__qualname__} is never called, since FixedReplayAgentMixin '
        'precedes it: define it in a class before the mixin.'
      )
    try:
      super().__init__(sess, num_actions, seed=seed, **kwargs)
    except BaseException:
      replay = vars(self).get('_replay')
      if isinstance(replay, graph_replay.GraphReplay):
        replay.close(wait=False)
      raise
    if isinstance(self._replay, graph_replay.GraphReplay):
      self._replay.finish()
    session_calls.shorten(self._sess)
    if seed is not None and getattr(self._replay, '_seed', 0) is None:
      # A subclass's `_build_replay_buffer` of 2020 gives none.
      self._replay._seed = seed
      self._replay.memory.reseed(seeding.derive(seed, 'replay'))
    if not self.learns_by_loss():
      self._loop = None
      if jit_compile:
        raise ValueError(
          f'{type(self).__name__} has a _build_train_op of its own, which jit_compile '
          'does not support: define loss(batch), or set jit_compile to False.'
        )
    self._build_acting()
    if init_checkpoint_dir is not None:
      initial_weights.load(self._sess, os.fspath(init_checkpoint_dir))

  def train_steps(self, count: int) -> Iterator[float]:
    """Trains with an update every `update_period` agent steps.

    Up to `updates_per_run` updates are done before their first loss is yielded. A
    notebook shows a bar, unless a single call of TensorFlow does them.

    Args:
      count: Number of agent steps.

    Yields:
      The loss of each update, float.

    Raises:
      FloatingPointError: If the loss is not finite.
      MemoryError: If the device runs out of memory.
      ValueError: If the agent has no data.
      batch_rl.dataset.shards.shard_reader.DataError: If the data is damaged.
    """
    if self._replay_data_dir is None and self.learns_by_loss():
      raise ValueError(
        f'{type(self).__name__} has no data and only acts: give replay_data_dir.'
      )
    losses = self._train_steps(count)
    if count > self.steps_per_run and progress.in_notebook():
      total = -(-count // self.update_period)
      losses = tqdm.tqdm(losses, 'train', total, file=sys.stdout, unit='update')
    yield from losses

  def _train_steps(self, count):
    end = self.training_steps + count
    own_step = type(self)._train_step is not FixedReplayAgentMixin._train_step
    while self.training_steps < end:
      is_due = self.training_steps % self.update_period == 0
      if self._loop is not None and is_due and not own_step:
        left = end - self.training_steps
        yield from self._run_loop(self._loop, min(left, self.steps_per_run))
      elif (loss := self._train_step()) is not None or is_due:
        yield float('nan') if loss is None else loss  # Dopamine's returns none.

  def _is_summary_due(self, step):
    writes = self.summary_writer is not None and step > 0
    return writes and step % self.summary_writing_frequency == 0

  def _run_loop(self, loop, count):
    """Trains for agent steps, the first with an update, in one `session.run`.

    Returns:
      A generator of the losses.
    """
    start = self.training_steps
    self.training_steps += count
    with self._one_line_errors():
      scalars, waited = loop.run(self._sess, start, count)
    self.seconds_waited += waited
    steps = range(start, start + count, self.update_period)
    for step, values in zip(steps, scalars.tolist(), strict=True):
      if self._is_summary_due(step):
        summary = tf.compat.v1.Summary()
        for name, value in zip(self._scalar_names, values, strict=True):
          summary.value.add(tag=f'Losses/{name}', simple_value=value)
        self.summary_writer.add_summary(summary, step)
    return self._check_losses(scalars.tolist(), steps)

  def _check_losses(self, scalars, steps):
    """Yields the losses, first of the scalars of each update.

    Raises:
      FloatingPointError: If one is not finite; the message names its terms that are
        not.
    """
    for step, (loss, *others) in zip(steps, scalars, strict=True):
      if not np.isfinite(loss):
        named = zip(self._scalar_names[1:], others, strict=False)
        terms = [f' ({n} is {v})' for n, v in named if not np.isfinite(v)]
        raise FloatingPointError(
          f'The loss is {loss} at update {step // self.update_period}{"".join(terms)}: '
          'check loss, network, rewards and learning rate. Earlier checkpoints are kept.'
        )
      yield loss

  def _train_step(self):
    """Trains for one agent step; returns the loss if it has an update."""
    step, loss = self.training_steps, None
    is_due = step % self.update_period == 0
    if self._loop is not None and is_due:
      (loss,) = self._run_loop(self._loop, 1)
      return loss
    if is_due:
      loss = self._update_by_train_op()
    if step % self.target_update_period == 0:
      self._sess.run(self._sync_qt_ops)
    self.training_steps += 1
    return loss

  def _update_by_train_op(self):
    """Runs `_train_op`; returns the loss, NaN if it does not tell it."""
    step = self.training_steps
    fetches = [self._train_op]
    if self._is_summary_due(step) and self._merged_summaries is not None:
      fetches.append(self._merged_summaries)
    with self._one_line_errors():
      result, *summary = self._sess.run(fetches)
    if summary:
      self.summary_writer.add_summary(summary[0], step)
    # RainbowAgent, for one, returns the operation and the loss.
    values = [v for v in tf.nest.flatten(result) if v is not None]
    if not values:
      return float('nan')
    (loss,) = self._check_losses([[float(np.mean(values[-1]))]], [step])
    return loss

  @contextlib.contextmanager
  def _one_line_errors(self):
    """Replaces TensorFlow's long reports of common errors by one line.

    Raises:
      batch_rl.dataset.shards.shard_reader.DataError: If the data is damaged.
      MemoryError: If the device runs out of memory.
    """
    try:
      yield
    except tf.errors.OpError as error:
      self._replay.memory.raise_error()
      if isinstance(error, tf.errors.ResourceExhaustedError):
        network = getattr(self.network, '__name__', self.network)
        size = self._replay.transition['action'].shape[0]
        raise MemoryError(
          f'Out of memory in an update of {network} with batches of {size}: make '
          'WrappedFixedReplayBuffer.batch_size or the network smaller. '
          f'TensorFlow: {files.reason(error)}'
        ) from error
      raise

  def _build_update(self):
    """Builds the loop of updates; an agent without data does not train."""
    if self._replay_data_dir is None:
      return tf.no_op()
    self._loop = self.build_loop(self._replay.next_batch, self._replay.ready)
    # `train_steps` runs several updates at once. Code of 2020 runs the operation.
    return self._loop.one_update

  def build_loop(
    self,
    next_batch: Callable[[], Sequence[tf.Tensor]],
    ready: Sequence[tf.Operation],
  ) -> update_loop.UpdateLoop:
    """Builds a loop of updates, on the current device.

    Args:
      next_batch: Function that builds the tensors of a batch, like
        `GraphReplay.next_batch`.
      ready: Operations to run before.
    """
    # A copy, which has the tensors of another graph.
    replay = copy.copy(self._replay)

    def update(batch, step):
      trained, scalars = self._update(self._batch(replay.unpack(batch), step))
      self._scalar_names = list(scalars)
      graph = tf.compat.v1.get_default_graph()
      graph_checks.check_function(
        graph,
        f'{type(self).__name__}.loss',
        'batch.seed',
        'it is computed once for many updates. Compute it from the batch, e.g. by '
        'self.online(batch.state).',
      )
      with tf.control_dependencies([trained]):
        return tf.stack(list(scalars.values()))

    scope = tf.compat.v1.get_default_graph().get_name_scope()

    def synchronise(step):
      # A user's `_build_sync_op` may find weights by the current scope.
      graph = tf.compat.v1.get_default_graph()
      within = graph.name_scope(f'{scope}/' if scope else None)
      with within, self._tracing(step):
        self._build_sync_op()
      return tf.constant(True)

    # An optimiser makes its variables in the outermost graph, which TensorFlow finds
    # only if it has been entered.
    with tf.compat.v1.get_default_graph().as_default():
      return update_loop.UpdateLoop(
        self, update, synchronise, next_batch, ready
      )

  def _build_acting(self):
    """Builds the actions for states (n, stack_size, *observation_shape)."""
    overridden = None
    if type(self)._select_action is not dqn_agent.DQNAgent._select_action:
      overridden = '_select_action'
    elif self._choice is None or self._q_argmax is not self._chosen:
      overridden = '_q_argmax'
    self._acts_alone = overridden is not None
    if overridden:
      if self._chooses():
        self._refuse_two_policies(overridden)
      return
    with self._sess.graph.as_default():
      self._states_ph = tf.compat.v1.placeholder(
        self.observation_dtype, (None, self.stack_size, *self.observation_shape)
      )
      self._seeds_ph = tf.compat.v1.placeholder(tf.int64, (None, 2))
      axes = (0, *range(2, 2 + len(self.observation_shape)), 1)
      self._calls = {}
      outputs = self.acting_outputs(tf.transpose(self._states_ph, axes))
      self._calls = None
      if op := graph_checks.stateful_draw(outputs):
        raise ValueError(
          f'The network by which {type(self).__name__} acts draws random numbers by the '
          f'stateful operation {op}, so an evaluation could not be repeated: draw only '
          'if `call` is given a seed, and give it in `loss`.'
        )
      self._actions = self._choice(outputs, self._seeds_ph)
    self._unchecked: list[np.ndarray] | None = []  # states

  def select_actions(
    self, states: np.ndarray, generators: Sequence[np.random.Generator]
  ) -> np.ndarray:
    """Returns epsilon-greedy actions for evaluation, int64 (n,).

    A state's action depends on the state and its generator, not on the others.

    Args:
      states: Stacks of frames, oldest first, (n, stack_size, *observation_shape).
      generators: Generator of each state, for the random actions, taken with
        probability `epsilon_eval`, and for policies that draw.

    Raises:
      MistakeError: If `choose_actions` does not return an action for each state, or a
        state's action depends on other states.
    """
    if self._acts_alone:
      return np.array(list(map(self._act_on, states, generators)))
    self._check_acting_by_state(states)
    explores = [g.random() <= self.epsilon_eval for g in generators]
    random_actions = [g.integers(self.num_actions) for g in generators]
    feed: dict[tf.Tensor, Any] = {self._states_ph: states}
    if self._choice.draws:
      feed[self._seeds_ph] = [g.integers(2**31, size=2) for g in generators]
    actions = self._sess.run(self._actions, feed)
    in_range = (actions >= 0) & (actions < self.num_actions)
    if len(actions) != len(states) or not in_range.all():
      raise programs.MistakeError(
        f'{type(self).__name__}.choose_actions returned {actions.tolist()} for '
        f'{len(states)} states; expected actions from 0 to {self.num_actions - 1}.'
      )
    return np.where(explores, random_actions, actions)

  def _check_acting_by_state(self, states: np.ndarray) -> None:
    """Compares the actions in the first states, which differ, together and alone.

    Raises:
      MistakeError: If more than a quarter differ. A few may, by rounding.
    """
    if (earlier := self._unchecked) is None:
      return
    for state in np.array(states):  # The environment may reuse its array.
      if not any(np.array_equal(state, other) for other in earlier):
        earlier.append(state)
    if (count := 16) > len(earlier):
      return
    first, self._unchecked = np.stack(earlier[:count]), None
    seeds = np.random.default_rng(0).integers(2**31, size=(count, 2))

    def act(rows):
      feed = {self._states_ph: first[rows], self._seeds_ph: seeds[rows]}
      return self._sess.run(self._actions, feed).tolist()

    together = act(slice(None))
    alone = [action for i in range(count) for action in act(slice(i, i + 1))]
    others = count - sum(map(operator.eq, together, alone))
    if others > count // 4:
      raise programs.MistakeError(
        f'{type(self).__name__} takes other actions in {others} of {count} states '
        'together than in each alone, so results would depend on the number of '
        'environments: compute an action from the outputs for its own state only.'
      )

  def _act_on(self, state, generator):
    self.state[0] = np.moveaxis(state, 0, -1)
    random.seed(int(generator.integers(2**63)))  # Dopamine draws by `random`.
    return int(self._select_action())

  @property
  def steps_per_run(self) -> int:
    """Maximum number of agent steps in one `session.run` of `train_steps`."""
    return self._updates_per_run * self.update_period

  def begin_iteration(self, iteration: int, updates: int = 0) -> None:
    """Draws the data of an iteration.

    Args:
      iteration: Number of the iteration.
      updates: Number of updates of the iteration that are already done.

    Raises:
      ValueError: If the data holds actions that the environment does not have.
    """
    self._replay.begin_iteration(iteration, updates)
    self._check_actions(self._replay.memory)

  def unbundle(
    self,
    checkpoint_dir: str,
    iteration_number: int,
    bundle_dictionary: dict | None,
  ) -> bool:
    """Restores as Dopamine does; batches go on after those of the earlier updates.

    A runner of this package then begins an iteration, which has batches of its own.
    """
    restored = super().unbundle(
      checkpoint_dir, iteration_number, bundle_dictionary
    )
    if restored and isinstance(self._replay, graph_replay.GraphReplay):
      self._replay.resume(-(-self.training_steps // self.update_period))
    return restored

  def _build_replay_buffer(self, use_staging):
    arguments = {
      'observation_shape': self.observation_shape,
      'stack_size': self.stack_size,
      'update_horizon': self.update_horizon,
      'observation_dtype': self.observation_dtype.as_numpy_dtype,
    }
    if self._replay_data_dir is None:
      return circular_replay_buffer.WrappedReplayBuffer(
        replay_capacity=self.stack_size + self.update_horizon,
        batch_size=2,  # for agents whose train op squeezes it
        **arguments,
      )
    replay = fixed_replay_buffer.WrappedFixedReplayBuffer(
      data_dir=self._replay_data_dir,
      replay_suffix=self._replay_suffix,
      use_staging=use_staging,
      gamma=self.gamma,
      seed=self._seed,
      columns=self.needs,
      # A mistake in the networks or the loss is seen before the data is packed.
      deferred=True,
      **arguments,
    )
    self._replay = replay  # which is closed after an error
    self._check_actions(replay.memory)
    return replay

  def _check_actions(self, memory):
    actions = memory.action_range()
    games.check_actions(actions, self.num_actions, self._replay_data_dir)

  def _store_transition(self, *args, **kwargs):
    """Does nothing: the replay is fixed."""
