"""Agents that learn values of actions, made of parts.

| part     | question                              | choices                             |
| -------- | ------------------------------------- | ----------------------------------- |
| head     | what is predicted, with which loss?   | `Scalar`; `multi_head`: `Ensemble`, |
|          |                                       | `Quantiles`, `ImplicitQuantiles`,   |
|          |                                       | `Categorical`, `HLGauss`, `TwoHot`  |
| backup   | what is the target?                   | `backups`: `Max`, `Double`, ...     |
| terms    | what is added to the loss?            | `terms`: `CQL`, `DR3`, `Imitation`  |
| policy   | which action is taken?                | `policies`: `Greedy`, `Softmax`, ...|
"""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import gin
import tensorflow as tf
from dopamine.discrete_domains import atari_lib
from dopamine.tf.agents.dqn import dqn_agent
from dopamine.tf.agents.rainbow import rainbow_agent

from batch_rl.agents import (
  backups,
  dueling,
  graph_checks,
  heads,
  loss_agent,
  policies,
)
from batch_rl.agents import terms as terms_lib

# Dopamine's plain network, which gin does not know by a name otherwise.
gin.external_configurable(atari_lib.NatureDQNNetwork, 'AtariNetwork')


class ValueAgent(loss_agent.LossAgent, dqn_agent.DQNAgent):
  """A DQN made of a head, a backup, terms and a policy.

  A part is a gin parameter, such as `FixedReplayDQNAgent.terms = [@CQL(), @DR3()]`, or
  set by a subclass as a class attribute.

  Args:
    *args: Arguments of Dopamine's agent.
    head: Head; None for the class's, here `Scalar`.
    backup: Backup; None for the class's, here `Max`.
    terms: Terms of the loss; None for the class's, here none.
    policy: Policy; None for the class's, here `Greedy`.
    dueling: Whether a plain network becomes a `DuelingNetwork`.
    **kwargs: Arguments of Dopamine's agent and `LossAgent`.

  Raises:
    ValueError: If a part is not of its kind, or a network with several outputs an
      action is to be dueling.
  """

  head: heads.Head = heads.Scalar()
  backup: backups.Backup = backups.Max()
  terms: Sequence[terms_lib.Term] = ()
  # Online outputs, batch and targets of the last `ValueAgent.loss` that was traced.
  _traced: tuple[Any, loss_agent.Batch, heads.Returns] | None = None

  # Targets for a `_build_train_op` of a subclass. `loss` does not call them.
  _TARGETS: tuple[Callable[..., Any], ...] = (
    dqn_agent.DQNAgent._build_target_q_op,
    rainbow_agent.RainbowAgent._build_target_distribution,
  )

  def __init__(
    self,
    *args: Any,
    head: heads.Head | None = None,
    backup: backups.Backup | None = None,
    terms: Sequence[terms_lib.Term] | None = None,
    policy: policies.Policy | None = None,
    dueling: bool = False,
    **kwargs: Any,
  ):
    self._is_dueling = dueling
    given = {'head': head, 'backup': backup, 'terms': terms, 'policy': policy}
    for name, part in given.items():
      if part is not None:
        setattr(self, name, part)
    self._check_parts()
    needs = [self.needs, self.backup.needs, *(t.needs for t in self.terms)]
    lists = [[names] if isinstance(names, str) else names for names in needs]
    self.needs = tuple(dict.fromkeys(name for names in lists for name in names))
    self.uses_target = self.uses_target and self.backup.uses_target
    super().__init__(*args, **kwargs)

  def __setattr__(self, name: str, value: Any) -> None:
    """Refuses a part that comes after the graph of the update."""
    parts = 'head', 'backup', 'terms', 'policy'
    if name in parts and '_train_op' in vars(self):
      raise ValueError(
        f'{type(self).__name__}.{name} is set too late: set it before super().__init__, '
        'or as an attribute of the class.'
      )
    super().__setattr__(name, value)

  def _check_parts(self):
    agent = type(self).__name__
    if not isinstance(self.terms, list | tuple):
      raise ValueError(
        f'{agent}.terms is a {type(self.terms).__name__}: give a list, e.g. [@CQL()].'
      )
    for name, part, kind, example in (
      ('head', self.head, heads.Head, '@Quantiles()'),
      ('backup', self.backup, backups.Backup, '@Double()'),
      ('policy', self.policy, policies.Policy, '@Softmax()'),
      *(('terms', term, terms_lib.Term, '@CQL()') for term in self.terms),
    ):
      if not isinstance(part, kind):
        raise ValueError(
          f'{agent}.{name} has {part!r}: give an object derived from '
          f'{kind.__module__}.{kind.__name__}; in gin with @ and (), e.g. {example}.'
        )

  def _check_replay_scheme(self, replay_scheme: str) -> None:
    """Refuses priorities, which fixed replays and logged memories do not have."""
    if replay_scheme != 'uniform':
      raise ValueError(
        f'{type(self).__name__}.replay_scheme={replay_scheme!r} is not supported: give '
        "'uniform', since the data have no priorities."
      )

  def own_head(self) -> heads.Head | None:
    """Returns the head built from the agent's own arguments; None by default."""

  def _build_networks(self):
    if own := self.own_head():
      if self.head is not ValueAgent.head:
        raise ValueError(
          f'{type(self).__name__} has a head of its own, so it cannot take '
          f'@{type(self.head).__name__}(): remove the binding, or choose another agent.'
        )
      self.head = own
    super()._build_networks()

  def _create_network(self, name: str) -> tf.keras.Model:
    network = self.network
    if self._is_dueling:
      if not heads.is_plain(network, self.head.arguments):
        called = getattr(network, '__name__', network)
        raise ValueError(
          f'{type(self).__name__}.dueling: {called} has outputs of its own; '
          'bind network to a plain one, e.g. @AtariNetwork.'
        )
      network = functools.partial(
        dueling.DuelingNetwork, network, self.num_actions
      )
    return self.head.create_network(network, self.num_actions, name)

  def build_networks(self) -> None:
    """Makes the networks of the terms."""
    for term in self.terms:
      term.build_networks(self)

  def loss(self, batch: loss_agent.Batch) -> tf.Tensor:
    """Returns the head's loss against the backup's targets, plus the terms."""
    self._check_targets()
    targets = self.backup(self, batch)
    # A user's backup that overrides `__call__` may have left the gradient.
    backups.check_returns(targets, f'{type(self.backup).__name__}.__call__')
    targets = targets.without_gradient()
    seed = batch.seed_for('online')
    outputs = self.head.outputs(self.online, batch.state, seed)
    self._traced = outputs, batch, targets
    losses = self.head.loss(outputs, batch, targets)
    for term in self.terms:
      name, values = type(term).__name__, term(self, batch)
      graph_checks.check_losses(values, batch.action, f'{name}.__call__')
      self._log_numbered(name, values)
      losses += term.weight * values
    return losses

  def _log_numbered(self, name: str, value: tf.Tensor) -> None:
    """Logs a scalar as `name`, or `name_2` etc., e.g. in a second view's loss."""
    free, number = name, 1
    while free in self._scalars:
      number += 1
      free = f'{name}_{number}'
    self.log_scalar(free, value)

  def td_errors(self, batch: loss_agent.Batch) -> tf.Tensor | None:
    """Returns mean target - mean prediction, float32 (n,), over the head's k values.

    They are those of the last call of `ValueAgent.loss`, whose batch a subclass may have
    changed; None if a subclass's `loss` does not call it.
    """
    if self._traced is None:
      return None
    outputs, batch, targets = self._traced
    predicted = self.head.returns(outputs, batch).of_actions(batch.action)
    return targets.mean() - predicted.mean()

  def _update(self, batch):
    self._traced = None
    result = super()._update(batch)
    for name in ('backup', 'terms'):
      if name in vars(self) and not self._traced and self._ignores(name, batch):
        raise ValueError(
          f'{type(self).__name__}.{name} has no effect, since its loss neither reads it '
          'nor calls super().loss(batch): remove the setting.'
        )
    return result

  def _ignores(self, name: str, batch: loss_agent.Batch) -> bool:
    """Returns whether `loss` can be traced without a part."""
    with self._tracing(batch.step):
      return graph_checks.is_ignored(self, name, lambda: self.loss(batch))

  def _expected_outputs(self):
    shape = self.num_actions, self.head.num_outputs
    return super()._expected_outputs() | dict.fromkeys(self.head.reads, shape)

  def _check_targets(self) -> None:
    """Refuses targets as Dopamine's agents define them."""
    for name in ('_build_target_q_op', '_build_target_distribution'):
      if getattr(type(self), name, None) not in (None, *self._TARGETS):
        raise ValueError(
          f'{type(self).__name__} overrides {name}, which its loss does not call: '
          'override loss(batch) instead, or _build_train_op, too.'
        )
