"""The equations of later offline algorithms, in NumPy and float64, slow and plain.

Written from the papers, not from the package, like `equations`. A loss is a function of
all weights, so that its gradient is that of central differences. `configs` has the
sources.

Letters in the shapes: B transitions, A actions, N outputs an action.
"""

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from batch_rl.tests import equations
from batch_rl.tests.equations import huber, softmax


@dataclasses.dataclass(frozen=True)
class Minibatch:
  """Transitions of an update, and what is drawn for it.

  Attributes:
    state, next_state: float64 (B, 4).
    action, next_action: Integers (B,).
    reward, terminal, return_to_go: (B,).
    discount: gamma^n.
    taus, next_taus: Levels of quantiles for s and s', (B, N), of IQN.
  """

  state: np.ndarray
  next_state: np.ndarray
  action: np.ndarray
  next_action: np.ndarray
  reward: np.ndarray
  terminal: np.ndarray
  return_to_go: np.ndarray
  discount: float
  taus: np.ndarray
  next_taus: np.ndarray

  def transitions(self) -> equations.Transitions:
    return equations.Transitions(
      self.action, self.reward, self.terminal, self.discount
    )


class Networks:
  """The networks of an agent.

  Args:
    weights: Arrays of each network, kernel, bias, kernel, ..., by its name; 'target' is
      the target copy.
    fixed: Networks behind a stop of the gradient; None for these.
  """

  def __init__(
    self,
    weights: Mapping[str, list[np.ndarray]],
    fixed: 'Networks | None' = None,
  ):
    self._weights = weights
    self.fixed = fixed or self

  def _pass(self, name, states):
    arrays = self._weights[name]
    layers = list(zip(arrays[::2], arrays[1::2], strict=True))
    return equations.forward(layers[:3], states), layers[3:]

  def q(self, name: str, states: np.ndarray, actions: int) -> np.ndarray:
    """Returns the outputs, (B, A), or (B, A, N) if there are several an action."""
    outputs = self._pass(name, states)[0].outputs
    if outputs.shape[1] == actions:
      return outputs
    return outputs.reshape(len(states), actions, -1)

  def features(self, states: np.ndarray) -> np.ndarray:
    """Returns the inputs of the online network's last layer, (B, units)."""
    return self._pass('online', states)[0].inputs[2]

  def behaviour(self, states: np.ndarray) -> np.ndarray:
    """Returns the logits of BCQ's G, on the torso of the online network, (B, A)."""
    torso = self._pass('online', states)[0].inputs[1]
    kernel, bias, last_kernel, last_bias = self._weights['behaviour']
    return np.maximum(torso @ kernel + bias, 0) @ last_kernel + last_bias

  def dueling(self, name: str, states: np.ndarray) -> np.ndarray:
    """Wang et al., Equation 9, (B, A)."""
    run, (hidden, last) = self._pass(name, states)
    value = np.maximum(run.inputs[1] @ hidden[0] + hidden[1], 0)
    value = value @ last[0] + last[1]
    return value + run.outputs - run.outputs.mean(axis=1, keepdims=True)

  def quantiles(
    self, name: str, states: np.ndarray, taus: np.ndarray
  ) -> np.ndarray:
    """IQN, Equation 4: psi(s) * phi(tau) in the place of psi(s), (B, A, N)."""
    run, ((kernel, bias),) = self._pass(name, states)
    arrays = self._weights[name]
    rows = []
    for psi, levels in zip(run.inputs[1], taus, strict=True):
      columns = []
      for tau in levels:
        cosines = np.cos(math.pi * np.arange(len(kernel)) * tau)
        x = psi * np.maximum(cosines @ kernel + bias, 0)
        x = np.maximum(x @ arrays[2] + arrays[3], 0)
        columns.append(x @ arrays[4] + arrays[5])
      rows.append(np.stack(columns, axis=1))
    return np.stack(rows)


def _mean(losses):
  return sum(losses) / len(losses)


def _target(batch, j, value):
  return batch.transitions().target(j, value)


def dqn(networks, batch, actions, value=lambda j, q, target_q: max(target_q)):
  """Huber(r + gamma V(s') - Q(s, a)), with `value` of (row, Q(s'), Q'(s'))."""
  q = networks.q('online', batch.state, actions)
  next_q = networks.q('online', batch.next_state, actions)
  target_q = networks.q('target', batch.next_state, actions)
  return _mean(
    [
      huber(_target(batch, j, value(j, next_q[j], target_q[j])) - q[j, a])
      for j, a in enumerate(batch.action)
    ]
  )


def double_dqn(networks, batch, actions):
  """van Hasselt et al., 2016: Q'(s', argmax Q(s', .))."""
  return dqn(
    networks, batch, actions, lambda _, q, target_q: target_q[q.argmax()]
  )


def sarsa(networks, batch, actions):
  """Gulcehre et al., 2021: Q'(s', a'), a' from the data."""
  following = batch.next_action
  return dqn(networks, batch, actions, lambda j, _, q: q[following[j]])


def monte_carlo(networks, batch, actions):
  """Regression of the discounted return of the trajectory."""
  q = networks.q('online', batch.state, actions)
  pairs = zip(batch.return_to_go, q, batch.action, strict=True)
  return _mean([huber(total - row[a]) for total, row, a in pairs])


def dueling_dqn(networks, batch, actions):
  """DQN with the dueling network."""
  q = networks.dueling('online', batch.state)
  target_q = networks.dueling('target', batch.next_state)
  return equations.dqn(q, target_q, batch.transitions()).value


def bc(networks, batch, actions):
  """-log softmax(f(s, .))_a."""
  p = softmax(networks.q('online', batch.state, actions))
  return _mean([-np.log(p[j, a]) for j, a in enumerate(batch.action)])


def bcq(networks, batch, actions, threshold=0.3):
  """Fujimoto et al., 2019: Algorithm 1, and its generator's regularisation."""
  g = softmax(networks.behaviour(batch.next_state))

  def constrained(j, q, target_q):
    allowed = [a for a in range(actions) if g[j, a] / max(g[j]) > threshold]
    return target_q[max(allowed, key=lambda a: q[a])]

  logits = networks.behaviour(batch.state)
  p = softmax(logits)
  return dqn(networks, batch, actions, constrained) + _mean(
    [
      -np.log(p[j, a]) + 0.01 * _mean(logits[j] ** 2)
      for j, a in enumerate(batch.action)
    ]
  )


def cql_penalty(q, batch):
  """Kumar et al., 2020, Equation 4: log sum_a exp Q(s, a) - Q(s, a_data)."""
  return _mean(
    [np.log(sum(np.exp(q[j]))) - q[j, a] for j, a in enumerate(batch.action)]
  )


def dr3_penalty(networks, batch):
  """Kumar et al., 2021: phi(s) . phi(s')."""
  now, after = map(networks.features, (batch.state, batch.next_state))
  return _mean([a @ b for a, b in zip(now, after, strict=True)])


def dqn_dr3(networks, batch, actions):
  return dqn(networks, batch, actions) + 0.03 * dr3_penalty(networks, batch)


def cql(networks, batch, actions):
  """QR-DQN and the penalty on the means of its quantiles."""
  theta = networks.q('online', batch.state, actions)
  target = networks.q('target', batch.next_state, actions)
  loss = equations.qr_dqn(theta, target, batch.transitions()).value
  return loss + 1.0 * cql_penalty(theta.mean(axis=2), batch)


def cal_ql(networks, batch, actions):
  """Nakamoto et al., 2023: CQL's penalty on max(Q(s, a), logged return)."""
  theta = networks.q('online', batch.state, actions)
  target = networks.q('target', batch.next_state, actions)
  q = theta.mean(axis=2)
  penalties = [
    np.log(sum(np.exp(np.maximum(q[j], batch.return_to_go[j])))) - q[j, a]
    for j, a in enumerate(batch.action)
  ]
  loss = equations.qr_dqn(theta, target, batch.transitions()).value
  return loss + 1.0 * _mean(penalties)


def cql_dr3(networks, batch, actions):
  return cql(networks, batch, actions) + 0.03 * dr3_penalty(networks, batch)


def soft_value(q, tau):
  """Vieillard et al., 2020: the policy softmax(q / tau), and tau log of it."""
  scaled = q - q.max()
  scaled -= tau * np.log(np.sum(np.exp(scaled / tau)))
  return softmax(q / tau), scaled


def munchausen_dqn(networks, batch, actions, alpha=0.9, tau=0.03, clip=-1.0):
  """Vieillard et al., 2020, Equation 1, with the log-policy clipped to [clip, 0]."""
  q = networks.q('online', batch.state, actions)
  now = networks.q('target', batch.state, actions)
  after = networks.q('target', batch.next_state, actions)
  losses = []
  for j, a in enumerate(batch.action):
    bonus = alpha * min(max(soft_value(now[j], tau)[1][a], clip), 0)
    policy, scaled = soft_value(after[j], tau)
    y = bonus + _target(batch, j, policy @ (after[j] - scaled))
    losses.append(huber(y - q[j, a]))
  return _mean(losses)


def iqn(networks, batch, actions, samples=3, kappa=0.5, munchausen=None):
  """Dabney et al., 2018, Equation 3; or Munchausen-IQN, with (alpha, tau, clip).

  The mean of Z over levels is over the midpoints of `samples` equal parts.
  """
  levels = np.tile((np.arange(samples) + 0.5) / samples, (len(batch.state), 1))
  theta = networks.quantiles('online', batch.state, batch.taus)
  z = networks.quantiles('target', batch.next_state, batch.next_taus)
  mean = networks.quantiles('target', batch.next_state, levels).mean(axis=2)
  now = networks.quantiles('target', batch.state, levels).mean(axis=2)
  losses = []
  for j, a in enumerate(batch.action):
    policy, scaled, bonus = (
      np.eye(actions)[mean[j].argmax()],
      np.zeros(actions),
      0,
    )
    if munchausen:
      alpha, tau, clip = munchausen
      bonus = alpha * min(max(soft_value(now[j], tau)[1][a], clip), 0)
      policy, scaled = soft_value(mean[j], tau)
    loss = 0.0
    for i, tau_i in enumerate(batch.taus[j]):
      for b in range(actions):
        for sample in z[j, b]:
          y = bonus + _target(batch, j, sample - scaled[b])
          error = y - theta[j, a, i]
          rho = equations.quantile_huber(error, tau_i, kappa) / kappa
          loss += policy[b] * rho / len(z[j, b])
    losses.append(loss)
  return _mean(losses)


def munchausen_iqn(networks, batch, actions):
  return iqn(networks, batch, actions, munchausen=(0.9, 0.03, -1.0))


def _classification(networks, batch, actions, support, labels, is_double=False):
  """Cross-entropy with `labels` of r + gamma Q'(s', argmax_a Q'(s', a)).

  With `is_double` the argmax is of the online network.
  """
  p = softmax(networks.q('online', batch.state, actions))
  target_p = softmax(networks.q('target', batch.next_state, actions))
  next_p = softmax(networks.q('online', batch.next_state, actions))
  losses = []
  for j, a in enumerate(batch.action):
    q = (next_p if is_double else target_p)[j] @ support
    y = _target(batch, j, target_p[j, q.argmax()] @ support)
    losses.append(-labels(y) @ np.log(p[j, a]))
  return _mean(losses)


def two_hot(networks, batch, actions, atoms=51, vmax=10.0):
  """Farebrother et al., 2024, Section 3.1: the two neighbours share the target."""
  support = np.linspace(-vmax, vmax, atoms)
  return _classification(
    *(networks, batch, actions, support),
    lambda y: equations.project([y], [1.0], support),
  )


def histogram(y, edges, ratio=0.75):
  """Farebrother et al., 2024, Section 3.1: a Gaussian's mass in each bin."""
  sigma = ratio * (edges[1] - edges[0])
  y = min(max(y, edges[0]), edges[-1])
  phi = [math.erf((edge - y) / (sigma * math.sqrt(2))) for edge in edges]
  return np.diff(phi) / (phi[-1] - phi[0])


def hl_gauss(
  networks, batch, actions, bins=51, vmax=10.0, ratio=0.75, is_double=False
):
  """Cross-entropy with the `histogram` of the target."""
  edges = np.linspace(-vmax, vmax, bins + 1)
  support = (edges[1:] + edges[:-1]) / 2
  return _classification(
    *(networks, batch, actions, support),
    lambda y: histogram(y, edges, ratio),
    is_double,
  )


def hl_gauss_cql(networks, batch, actions):
  """Double HL-Gauss, and CQL's penalty on the means of its histograms."""
  p = softmax(networks.q('online', batch.state, actions))
  edges = np.linspace(-10, 10, 52)
  q = p @ ((edges[1:] + edges[:-1]) / 2)
  loss = hl_gauss(networks, batch, actions, is_double=True)
  return loss + 0.1 * cql_penalty(q, batch)


def _actor(networks, batch, actions, critic, expectile, beta):
  """Kostrikov et al., 2022, Equations 5 and 7, with Q of the network `critic`.

  Equation 5 alone trains V, and neither trains the critic.
  """
  v = networks.q('value', batch.state, 1)[:, 0]
  p = softmax(networks.q('policy', batch.state, actions))
  fixed_q = networks.fixed.q(critic, batch.state, actions)
  fixed_v = networks.fixed.q('value', batch.state, 1)[:, 0]
  losses = []
  for j, a in enumerate(batch.action):
    u = fixed_q[j, a] - v[j]
    value_loss = abs(expectile - (u < 0)) * u**2
    weight = min(math.exp(beta * (fixed_q[j, a] - fixed_v[j])), 100)
    losses.append(value_loss - weight * np.log(p[j, a]))
  return _mean(losses)


def iql(networks, batch, actions):
  """Kostrikov et al., 2022: Equation 6 with the Huber loss, and `_actor`."""
  fixed_v = networks.fixed.q('value', batch.next_state, 1)[:, 0]
  critic = dqn(networks, batch, actions, lambda j, *_: fixed_v[j])
  return critic + _actor(networks, batch, actions, 'target', 0.7, 3.0)


def weighted_bc(networks, batch, actions):
  """Logged returns, their mean, and the exponential of the advantage."""
  critic = monte_carlo(networks, batch, actions)
  return critic + _actor(networks, batch, actions, 'online', 0.5, 3.0)


# By the config that it is the equation of, an example's name, or an option of DQN.
LOSSES: dict[str, Any] = {
  'bc': bc,
  'cql': cql,
  'bcq': bcq,
  'dr3': dqn_dr3,
  'cql_dr3': cql_dr3,
  'iqn': iqn,
  'munchausen_dqn': munchausen_dqn,
  'munchausen_iqn': munchausen_iqn,
  'hl_gauss': hl_gauss,
  'hl_gauss_cql': hl_gauss_cql,
  'two_hot': two_hot,
  'sarsa': sarsa,
  'monte_carlo': monte_carlo,
  'iql': iql,
  'weighted_bc': weighted_bc,
  'double': double_dqn,
  'dueling': dueling_dqn,
  'cal_ql': cal_ql,
}
