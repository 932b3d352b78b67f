"""Diagnostics of an offline agent on transitions that stay the same."""

import collections
import contextlib
import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from batch_rl.agents import diagnostics, features, graph_checks
from batch_rl.dataset.sampling import columns as columns_lib
from batch_rl.fixed_replay.agents import fixed_replay_agent
from batch_rl.utils import seeding

# A return counts if rewards after the end of the log have at most this weight.
_MAX_DISCOUNT = 0.01
# Number of the batch whose rows the transitions have. No training reaches it.
_NUMBER = 2**63


class Probe:
  """Fixed transitions, and the graph that computes diagnostics from them.

  It changes no weights, has no variables, and draws none of the training's random
  numbers, so a run has the same results without it. The transitions go through the
  networks in batches of the training's size: the device needs no more memory.

  Make it before the first iteration begins: the transitions are of the shards that are
  drawn first, also in a resumed run.

  Args:
    agent: Agent with data.
    size: Number of transitions, at least 1; rounded up to whole batches.

  Raises:
    ValueError: If the loss or a network changes variables, which a run without the
      probe would not.
  """

  def __init__(
    self, agent: fixed_replay_agent.FixedReplayAgentMixin, size: int
  ):
    self._agent = agent
    transition = agent._replay.transition
    [self._batch_size] = transition['action'].shape.as_list()
    self._batches = -(-size // self._batch_size)
    self._read = self._draw(self._batches * self._batch_size)
    placeholder = tf.compat.v1.placeholder
    with agent._sess.graph.as_default(), tf.device(agent.state_ph.device):
      self._inputs = {
        name: placeholder(tensor.dtype, tensor.shape)
        for name, tensor in transition.items()
      }
      self._step = placeholder(tf.int64, ())
      self._number = placeholder(tf.int64, ())
      compute = tf.function(self._compute, autograph=False)
      self._computed = compute(self._inputs, self._step, self._number)
      self._weight_norm = tf.linalg.global_norm(agent._trained_weights())

  def _draw(self, size: int) -> Callable[[slice], dict[str, np.ndarray]]:
    """Draws transitions from the agent's replay, with replacement.

    The replay's seed and current shards determine them. Its batches stay the same.
    Frames of a store are read again each time, since they would take much memory.
    Transitions of memories that a subclass has loaded are kept, since it may replace
    them.

    Returns:
      Function from positions to the transitions there, `{name: array}`, states with
      frames last. It raises `shard_reader.DataError` if the data is damaged.
    """
    agent = self._agent
    # Memories of a subclass do not have these columns.
    needed = [*agent.needs, 'return_to_go', 'discount_after_log']
    columns = columns_lib.check(needed)
    memory: Any = agent._replay.memory
    if memory.loads_uncompressed:
      random = np.random.default_rng(seeding.derive(agent._seed, 'fixed batch'))
      indices = random.choice(memory.valid_indices(), size)
      names = [e.name for e in memory.get_transition_elements()]
      arrays = memory.sample_transition_batch(size, indices)
      kept = dict(zip(names, arrays, strict=True))
      return lambda part: {name: array[part] for name, array in kept.items()}
    sampler = memory.sampler
    rows = sampler.draw(_NUMBER, size)
    kept = sampler.named_columns(rows, columns)
    kept['indices'] = memory.indices_of(rows)
    others = [name for name in columns_lib.STANDARD if name not in kept]

    def read(part):
      [batch] = sampler.read(rows[part], 1, 'stacks')
      arrays = {name: array[part] for name, array in kept.items()}
      return arrays | {name: getattr(batch, name) for name in others}

    return read

  def _compute(
    self,
    transition: Mapping[str, tf.Tensor],
    step: tf.Tensor,
    number: tf.Tensor,
  ) -> tuple[dict[str, tf.Tensor], list[tf.Tensor]]:
    """Returns tensors of batch `number` by name, and the gradient of its loss."""
    agent = self._agent
    batch = agent._batch(transition, step)
    # No update has the seed.
    batch = batch._replace(seed=tf.stack([batch.seed[0], -1 - number]))
    found, gradients = {}, []
    with agent._tracing(step):
      if agent.learns_by_loss():
        found['loss'] = loss = agent._mean_loss(batch)
        found |= {f'loss_{name}': v for name, v in agent._scalars.items()}
        given = tf.gradients(loss, agent._trained_weights())
        gradients = [tf.convert_to_tensor(g) for g in given if g is not None]
      outputs = agent.online(batch.state)
      if agent.estimates_returns and hasattr(outputs, 'q_values'):
        found['q_values'] = outputs.q_values
        if (errors := agent.td_errors(batch)) is not None:
          found['td_errors'] = errors
      with contextlib.suppress(features.NoFeaturesError):
        found['features'] = agent.features(batch.state)
        found['next_features'] = agent.features(batch.next_state)
      if not agent._acts_alone:
        rows = tf.range(self._batch_size, dtype=tf.int64)
        seeds = tf.stack([rows, tf.fill([self._batch_size], number)], axis=1)
        found['taken'] = agent._choice(agent.acting_outputs(batch.state), seeds)
    if graph_checks.assigns(tf.compat.v1.get_default_graph()):
      raise ValueError(
        f'the loss or a network of {type(agent).__name__} changes variables'
      )
    return found, gradients

  def measure(self) -> dict[str, float]:
    """Returns diagnostics of the agent as it is now, by name.

    Beside those of `agents.diagnostics`, which `of_values` and `of_features` return:

    | name               | value                                                      |
    | ------------------ | ---------------------------------------------------------- |
    | `td_error`         | mean absolute value of `LossAgent.td_errors`               |
    | `greedy_is_logged` | share of states in which the agent takes the logged action |
    | `loss`             | mean loss                                                  |
    | `loss_<name>`      | mean of a scalar that the loss logs                        |
    | `gradient_norm`    | global norm of the gradient of the mean loss               |
    | `weight_norm`      | global norm of the trained weights                         |

    Numbers that the agent does not have, or that are not finite, are left out.

    Raises:
      batch_rl.dataset.shards.shard_reader.DataError: If the data is damaged.
      MemoryError: If the device runs out of memory.
    """
    found, gradient = self._run()
    actions = found['action']
    measured: dict[str, float] = {}
    if 'q_values' in found:
      # Memories of a subclass have no returns.
      returns = found.get('return_to_go')
      after = found.get('discount_after_log', np.ones(len(actions)))
      measured |= diagnostics.of_values(
        found['q_values'], actions, returns, after <= _MAX_DISCOUNT
      )
    if 'td_errors' in found:
      measured['td_error'] = np.abs(found['td_errors']).mean()
    if 'taken' in found:
      measured['greedy_is_logged'] = (found['taken'] == actions).mean()
    if 'features' in found:
      measured |= diagnostics.of_features(
        found['features'], found['next_features']
      )
    measured |= {n: a.mean() for n, a in found.items() if n.startswith('loss')}
    if gradient:
      measured['gradient_norm'] = diagnostics.global_norm(gradient)
    measured['weight_norm'] = self._agent._sess.run(self._weight_norm)
    return {n: float(v) for n, v in measured.items() if math.isfinite(v)}

  def _run(self) -> tuple[dict[str, np.ndarray], list[np.ndarray]]:
    """Returns arrays by name, (n, ...) or (batches,), and the mean gradient."""
    agent, size = self._agent, self._batch_size
    parts = collections.defaultdict(list)
    gradient = [np.zeros(())] * len(self._computed[1])
    for number in range(self._batches):
      arrays = self._read(slice(number * size, (number + 1) * size))
      feed = {tensor: arrays[name] for name, tensor in self._inputs.items()}
      feed |= {self._step: agent.training_steps, self._number: number}
      with agent._one_line_errors():
        found, more = agent._sess.run(self._computed, feed)
      gradient = [
        g + m / self._batches for g, m in zip(gradient, more, strict=True)
      ]
      # Frames would take much memory.
      small = {name: a for name, a in arrays.items() if a.ndim == 1}
      for name, array in {**small, **found}.items():
        parts[name].append(np.atleast_1d(array))
    return {name: np.concatenate(p) for name, p in parts.items()}, gradient
