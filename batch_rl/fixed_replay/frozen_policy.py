"""The trained policy of another run, as an input of an agent: a network without variables.

Its weights are constants of the graph, so they are neither trained nor restored from
checkpoints, and the names of the agent's variables stay the same. TensorFlow's copy of
the graph in a checkpoint (`.meta`) grows by their size. A run that resumes loads them
again, an agent that only acts does not.
"""

from typing import Any, NamedTuple

import gin
import numpy as np
import tensorflow as tf

from batch_rl.agents import backups, graph_checks, heads, policies
from batch_rl.fixed_replay import recorded_run
from batch_rl.fixed_replay.agents import fixed_replay_agent
from batch_rl.runs import games, run_record


class Outputs(NamedTuple):
  """Outputs of a frozen policy for n states.

  Attributes:
    q_values: Q-values of the run's online network, float32 (n, num_actions). An agent
      that learns no values has meaningless ones.
    probabilities: Probabilities of the actions, float32 (n, num_actions), without
      epsilon-greedy exploration. If a policy's distribution is unknown, one sampled
      action has probability 1.
  """

  q_values: tf.Tensor
  probabilities: tf.Tensor


@gin.configurable
class FrozenPolicy:
  """The policy of an offline run at the end of an iteration.

  It is loaded in the constructor, or at its first use if the agent has no data. An
  agent's `loss` calls it with states; `run.json` then identifies the policy, and the run
  does not resume with another one.

  Args:
    base_dir: Directory of the run.
    iteration: Number of the iteration; None for the last one.

  Attributes:
    identity: The run's `run_id`, the `iteration`, and a hash of its `checkpoint`; {}
      before it is loaded.

  Raises:
    ValueError: If there is no such run or checkpoint, or its agent cannot be built, or
      does not choose actions by `choose_actions`.
  """

  def __init__(self, base_dir: str, iteration: int | None = None):
    self.base_dir = base_dir
    self._chosen = 'last' if iteration is None else str(iteration)
    self.identity: dict[str, Any] = {}
    if fixed_replay_agent.has_data():
      self.load()

  def load(self) -> None:
    """Loads the policy; raises the errors of the constructor."""
    base_dir = self.base_dir
    found = recorded_run.intact_checkpoints(base_dir, self._chosen)
    [(number, checkpoint)] = found.items()
    with recorded_run.acting_agent(base_dir, checkpoint) as agent:
      if agent._acts_alone:
        raise ValueError(
          f'{base_dir} is a run of {type(agent).__name__}, which acts by an own '
          '_select_action or _q_argmax: let it override choose_actions instead.'
        )
      self._network = freeze(agent)
      self.num_actions = int(agent.num_actions)
      self.gamma = float(agent.gamma)
      self.estimates_returns = agent.estimates_returns
      self.state_shape = *agent.observation_shape, agent.stack_size
      self.dtype = tf.as_dtype(agent.observation_dtype)
    self.identity = {
      'run_id': checkpoint.run_id(),
      'iteration': number,
      'checkpoint': checkpoint.digest(),
    }

  def placeholder(self) -> tf.Tensor:
    """Returns a placeholder of states, (None, *observation_shape, stack_size)."""
    return tf.compat.v1.placeholder(self.dtype, (None, *self.state_shape))

  def __call__(
    self, agent: Any, states: tf.Tensor, seed: tf.Tensor | None = None
  ) -> Outputs:
    """Returns the outputs for states of an agent's batch, without gradient.

    Args:
      agent: Agent whose loss reads them; its run then records the policy.
      states: States, (n, *observation_shape, stack_size).
      seed: Seed for a policy that samples, int64 (2,), e.g. `batch.seed_for('pi')`.

    Raises:
      ValueError: If the policy is of another game than the agent's data, has other
        states or actions, or needs a seed.
    """
    if not self.identity:
      self.load()
    if data_dir := getattr(agent, '_replay_data_dir', None):
      record = run_record.read(self.base_dir) or {}
      games.check_game_of_run(
        self.base_dir, record, games.logged_game(data_dir)
      )
    own = agent.num_actions, tuple(states.shape[1:]), states.dtype.name
    expected = self.num_actions, tuple(self.state_shape), self.dtype.name
    if own != expected:
      text = '{} actions and states of shape {}, {}'
      raise ValueError(
        f'The policy of {self.base_dir} is for {text.format(*expected)}; '
        f'{type(agent).__name__} has {text.format(*own)}: choose a run with the same '
        'environment, observation_shape and stack_size.'
      )
    agent.frozen_policies[f'{self.base_dir}, {self._chosen}'] = self.identity
    return self.outputs(states, seed)

  def outputs(
    self, states: tf.Tensor, seed: tf.Tensor | None = None
  ) -> Outputs:
    """Returns the outputs for states, like `__call__`, outside of an agent."""
    if seed is None and self._network.draws:
      raise ValueError(
        f'The policy of {self.base_dir} samples its actions: give a seed, e.g. '
        "batch.seed_for('pi')."
      )
    seeds = tf.random.stateless_uniform(
      (tf.shape(states)[0], 2),
      (0, 0) if seed is None else seed,
      maxval=2**31 - 1,
      dtype=tf.int64,
    )
    return self._network(states, seeds)


class FrozenNetwork(NamedTuple):
  """A function of states in a graph of its own.

  Attributes:
    graph: Graph, with constants as weights.
    inputs: Name of its placeholder of states; and of their seeds, int64 (n, 2), if the
      policy draws.
    outputs: Names of its `Outputs`.
    draws: Whether the policy draws its actions from an unknown distribution.
  """

  graph: tf.compat.v1.GraphDef
  inputs: list[str]
  outputs: list[str]
  draws: bool

  def __call__(self, states: tf.Tensor, seeds: tf.Tensor) -> Outputs:
    """Returns the outputs in the current graph, without gradient."""
    fed = tf.identity(states), tf.identity(seeds)
    found = tf.graph_util.import_graph_def(
      self.graph,
      dict(zip(self.inputs, fed, strict=False)),
      [f'{name}:0' for name in self.outputs],
      name='frozen',
    )
    return Outputs(*map(tf.stop_gradient, found))


def freeze(agent: Any) -> FrozenNetwork:
  """Returns the values and the policy of an agent with their current weights.

  Args:
    agent: Offline agent that acts by `choose_actions`.

  Raises:
    ValueError: If it acts by a Python function.
  """
  session, placeholder = agent._sess, tf.compat.v1.placeholder
  with session.graph.as_default():
    shape = None, *agent.observation_shape, agent.stack_size
    states = placeholder(agent.observation_dtype, shape)
    seeds = placeholder(tf.int64, (None, 2))
    # As in an update: separate networks then act on their mean, without Python.
    with agent._tracing(agent.training_steps):
      outputs = agent.acting_outputs(states)
      choice = policies.ActionChoice(agent, outputs)
    draws, probabilities = choice.draws, None
    if draws and not agent._chooses():
      probabilities = _own_probabilities(agent.policy, outputs)
      draws = probabilities is None
    if probabilities is None:
      # A function, since a loop of the imported graph could not be in an update.
      actions = tf.function(choice, autograph=False)(outputs, seeds)
      probabilities = tf.one_hot(actions, agent.num_actions)
    found = map(tf.identity, (agent.online(states).q_values, probabilities))
    names = [tensor.op.name for tensor in found]
  graph = tf.compat.v1.graph_util.convert_variables_to_constants(
    session, session.graph.as_graph_def(), names
  )
  _drop_unused_functions(graph)
  # The agent that reads it may be on another device.
  functions = (node for f in graph.library.function for node in f.node_def)
  for node in (*graph.node, *functions):
    node.device = ''
    if node.op in graph_checks.PYTHON:
      raise ValueError(
        f'The policy of {type(agent).__name__} calls a Python function ({node.op}), which '
        'cannot be kept: use TensorFlow operations.'
      )
  inputs = [states.op.name, *([seeds.op.name] if draws else [])]
  return FrozenNetwork(graph, inputs, names, draws)


def _own_probabilities(policy, outputs):
  """Returns a policy's probabilities; None if a subclass overrides only `__call__`."""
  defined = {'probabilities', '__call__'}
  owner = next(c for c in type(policy).__mro__ if defined & vars(c).keys())
  return (
    policy.probabilities(outputs) if 'probabilities' in vars(owner) else None
  )


def _drop_unused_functions(graph: tf.compat.v1.GraphDef) -> None:
  """Drops functions that no node calls, such as those of the agent's own acting."""
  unused = {f.signature.name: f for f in graph.library.function}
  nodes, used = list(graph.node), []
  while nodes:
    for value in nodes.pop().attr.values():
      for called in (value.func, *value.list.func):
        if function := unused.pop(called.name, None):
          used.append(function)
          nodes += function.node_def
  graph.library.CopyFrom(type(graph.library)(function=used))


@gin.configurable
class PolicyOfRun(backups.Backup):
  """sum_a pi(a | s') Z'(s', a): the trained policy pi of another run.

  With it, an agent learns the values of that policy: fitted Q evaluation (Le et al.,
  2019, arXiv 1903.08738).

  Args:
    base_dir: Directory of the run.
    iteration: Number of the iteration; None for the last one.
    returns: Lowest and highest possible return, to which targets are clipped, as in
      google-research/policy_eval; None for no limits. Without limits, values may diverge
      if the data lack actions of the policy.

  Attributes:
    policy: The policy.

  Raises:
    ValueError: As `FrozenPolicy`, or if `returns` is not a range.
  """

  def __init__(
    self,
    base_dir: str,
    iteration: int | None = None,
    returns: tuple[float, float] | None = None,
  ):
    if returns is not None and not (
      np.shape(returns) == (2,) and returns[0] < returns[1]
    ):
      raise ValueError(
        f'PolicyOfRun.returns={returns!r} is not allowed: give the lowest and the highest '
        'return, e.g. (0.0, 100.0), or None.'
      )
    self._returns = returns
    self.policy = FrozenPolicy(base_dir, iteration)

  def __call__(self, agent: Any, batch: Any) -> heads.Returns:
    """Returns the targets of `Backup`, (n, k), clipped."""
    targets = super().__call__(agent, batch)
    if self._returns is None:
      return targets
    clipped = tf.clip_by_value(targets.values, *self._returns)
    return targets._replace(values=clipped)

  def next_returns(self, agent: Any, batch: Any) -> heads.Returns:
    """Returns the target network's returns under the policy."""
    seed = batch.seed_for('policy of a run')
    pi = self.policy(agent, batch.next_state, seed).probabilities
    return agent.head.under(pi, backups.next_outputs(agent, batch)[1])
