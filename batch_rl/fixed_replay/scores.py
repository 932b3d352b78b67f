"""Scores of trained policies from logged data alone.

Scores at initial states are those of Paine et al., 2020 (arXiv 2007.09055).
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
import tensorflow as tf

from batch_rl.dataset.sampling import sampler as sampler_lib
from batch_rl.fixed_replay import frozen_policy

# Maximum number of initial states, and number of transitions, that a score reads.
NUM_STATES = 4096
_CHUNK = 256


class LoggedStates:
  """States of logged data at which policies are scored.

  Args:
    sampler: Sampler of one-step transitions; its seed determines the transitions.
    seed: Seed of the choice of initial states.

  Attributes:
    data_hash: Hash of the data, see `subsets.hash_of`.
    initial_rows: Rows of the first states of trajectories, int64 (m,), ascending: all,
      or `NUM_STATES` of them at random.
    rewards: Lowest and highest reward.
    rows: Rows of transitions, int64 (k,): all, or `NUM_STATES` drawn uniformly.

  Raises:
    ValueError: If no trajectory has its beginning.
  """

  def __init__(self, sampler: sampler_lib.Sampler, seed: int):
    self._sampler = sampler
    self.data_hash = sampler.subset_hash()
    reward = sampler.store.reward
    self.rewards = float(reward.min()), float(reward.max())
    chosen = sampler.trajectories
    # Shorter stacks than the sampler's have less padding, so a state begins later.
    complete = chosen.begin + sampler.stack_size - 1
    first = np.maximum(chosen.steps_begin, complete)[chosen.at_reset]
    first = first[sampler.is_valid(first)]
    if not len(first):
      raise ValueError(
        f'{sampler.store.data_dir} has no initial state: no trajectory of the subset '
        'has the beginning of its episode. Choose another FixedReplayBuffer.subset.'
      )
    if len(first) > NUM_STATES:
      random = np.random.default_rng(seed)
      first = np.sort(random.choice(first, NUM_STATES, replace=False))
    self.initial_rows = first
    if sampler.num_transitions <= NUM_STATES:
      self.rows = sampler.valid_rows()
    else:
      self.rows = sampler.draw(0, NUM_STATES)

  def batches(self, rows: np.ndarray) -> Iterator[Any]:
    """Yields the transitions at rows, (n,), in batches with `stacks` of frames."""
    for part in np.array_split(rows, -(-len(rows) // _CHUNK)):
      yield self._sampler.read(part, frames='stacks')[0]

  def initial_values(
    self, session: tf.compat.v1.Session, states: tf.Tensor, values: tf.Tensor
  ) -> np.ndarray:
    """Returns values of the initial states, float32 (m,).

    Args:
      session: Session of the graph.
      states: Placeholder of states, (None, *observation_shape, stack_size).
      values: Values of the states, float32 (None,).
    """
    parts = [
      session.run(values, {states: batch.stacks[0]})
      for batch in self.batches(self.initial_rows)
    ]
    return np.concatenate(parts)


def seed_of(seed: int) -> tf.Tensor:
  """Returns the seed of a policy that samples, int64 (2,)."""
  return tf.constant([seed, 0], tf.int64)


def expected_value(
  q_values: tf.Tensor, outputs: frozen_policy.Outputs
) -> tf.Tensor:
  """Returns sum_a pi(a | s) Q(s, a), float32 (n,)."""
  return tf.reduce_sum(outputs.probabilities * q_values, axis=1)


def q_value(
  policy: frozen_policy.FrozenPolicy, logged: LoggedStates, seed: int
) -> float:
  """Returns the mean of sum_a pi(a | s) Q(s, a) over initial states.

  Q is the run's own. For a greedy policy, the sum is max_a Q(s, a).

  Args:
    policy: Policy of a run.
    logged: Logged states.
    seed: Seed of a policy that samples.
  """
  with tf.Graph().as_default(), tf.compat.v1.Session() as session:
    states = policy.placeholder()
    outputs = policy.outputs(states, seed_of(seed))
    values = expected_value(outputs.q_values, outputs)
    return float(logged.initial_values(session, states, values).mean())


def td_error(
  policy: frozen_policy.FrozenPolicy, logged: LoggedStates, seed: int
) -> float:
  """Returns the mean squared temporal-difference error of the run's own Q.

  It is the mean over transitions of (r + gamma sum_a pi(a | s') Q(s', a) - Q(s, a))^2,
  with the discount of the run; the sum is 0 if the episode ends. Lower is better. The
  error is of one step, also if the run learned from n-step returns.

  Args:
    policy: Policy of a run.
    logged: Logged states.
    seed: Seed of a policy that samples.
  """
  errors = []
  with tf.Graph().as_default(), tf.compat.v1.Session() as session:
    states, next_states = policy.placeholder(), policy.placeholder()
    q_values = policy.outputs(states, seed_of(seed)).q_values
    following = policy.outputs(next_states, seed_of(seed))
    next_values = expected_value(following.q_values, following)
    for batch in logged.batches(logged.rows):
      feed = dict(zip((states, next_states), batch.stacks, strict=True))
      now, later = session.run([q_values, next_values], feed)
      follows = 1.0 - batch.terminal.astype(np.float64)
      targets = batch.reward + policy.gamma * follows * later
      errors.append(targets - now[np.arange(len(now)), batch.action])
  return float(np.mean(np.square(np.concatenate(errors))))


# Scores by the run's own values; see `fitted_q` for the other one.
OWN = {'td_error': td_error, 'q_value': q_value}
