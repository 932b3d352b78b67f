"""The equations of later offline algorithms, in NumPy and float64, slow and plain.

Written from the papers, not from the package, like `equations`. `configs` has the
sources.
"""

import functools
import math
from typing import Any

import numpy as np

from batch_rl.tests import equations
from batch_rl.tests.equations import dqn, huber, mean, softmax, td_loss


def double_dqn(networks, batch, actions):
  """van Hasselt et al., 2016: Q'(s', argmax Q(s', .))."""
  q = networks.q('online', batch.state, actions)
  next_q = networks.q('online', batch.next_state, actions)
  target_q = networks.q('target', batch.next_state, actions)
  pairs = zip(target_q, next_q, strict=True)
  return td_loss(q, [row[online.argmax()] for row, online in pairs], batch)


def sarsa(networks, batch, actions):
  """Gulcehre et al., 2021: Q'(s', a'), a' from the data."""
  q = networks.q('online', batch.state, actions)
  target_q = networks.q('target', batch.next_state, actions)
  pairs = zip(target_q, batch.next_action, strict=True)
  return td_loss(q, [row[a] for row, a in pairs], batch)


def monte_carlo(networks, batch, actions):
  """Regression of the discounted return of the trajectory."""
  q = networks.q('online', batch.state, actions)
  triples = zip(batch.return_to_go, q, batch.action, strict=True)
  return mean([huber(total - row[a]) for total, row, a in triples])


def dueling_dqn(networks, batch, actions):
  """DQN with the dueling network."""
  q = networks.dueling('online', batch.state)
  target_q = networks.dueling('target', batch.next_state)
  return td_loss(q, target_q.max(axis=1), batch)


def bc(networks, batch, actions):
  """-log softmax(f(s, .))_a."""
  p = softmax(networks.q('online', batch.state, actions))
  return mean([-np.log(p[j, a]) for j, a in enumerate(batch.action)])


def bcq(networks, batch, actions, threshold=0.3):
  """Fujimoto et al., 2019: Algorithm 1, and its generator's regularisation."""
  q = networks.q('online', batch.state, actions)
  next_q = networks.q('online', batch.next_state, actions)
  target_q = networks.q('target', batch.next_state, actions)
  g = softmax(networks.behaviour(batch.next_state))
  values = []
  for j in range(len(q)):
    allowed = [a for a in range(actions) if g[j, a] / max(g[j]) > threshold]
    values.append(target_q[j, max(allowed, key=lambda a, j=j: next_q[j, a])])
  logits = networks.behaviour(batch.state)
  p = softmax(logits)
  imitation = [-np.log(p[j, a]) for j, a in enumerate(batch.action)]
  regular = [0.01 * mean(row**2) for row in logits]
  return td_loss(q, values, batch) + mean(imitation) + mean(regular)


def cql_penalty(q, batch):
  """Kumar et al., 2020, Equation 4: log sum_a exp Q(s, a) - Q(s, a_data)."""
  pairs = zip(q, batch.action, strict=True)
  return mean([np.log(sum(np.exp(row))) - row[a] for row, a in pairs])


def dr3_penalty(networks, batch):
  """Kumar et al., 2021: phi(s) . phi(s')."""
  now, after = map(networks.features, (batch.state, batch.next_state))
  return mean([a @ b for a, b in zip(now, after, strict=True)])


def dqn_dr3(networks, batch, actions):
  return dqn(networks, batch, actions) + 0.03 * dr3_penalty(networks, batch)


def cql(networks, batch, actions):
  """QR-DQN and the penalty on the means of its quantiles."""
  q = networks.q('online', batch.state, actions).mean(axis=2)
  loss = equations.qr_dqn(networks, batch, actions)
  return loss + 1.0 * cql_penalty(q, batch)


def cal_ql(networks, batch, actions):
  """Nakamoto et al., 2023: CQL's penalty on max(Q(s, a), logged return)."""
  q = networks.q('online', batch.state, actions).mean(axis=2)
  penalties = [
    np.log(sum(np.exp(np.maximum(q[j], batch.return_to_go[j])))) - q[j, a]
    for j, a in enumerate(batch.action)
  ]
  return equations.qr_dqn(networks, batch, actions) + 1.0 * mean(penalties)


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
    y = bonus + batch.target(j, policy @ (after[j] - scaled))
    losses.append(huber(y - q[j, a]))
  return mean(losses)


def iqn(networks, batch, actions, samples=3, kappa=0.5, munchausen=None):
  """Dabney et al., 2018, Equation 3; or Munchausen-IQN, with (alpha, tau, clip).

  Munchausen-IQN (Vieillard et al., 2020) sums over the actions at each level.
  The mean of Z over levels is over the midpoints of `samples` equal parts.
  """
  levels = np.tile((np.arange(samples) + 0.5) / samples, (len(batch.state), 1))
  theta = networks.quantiles('online', batch.state, batch.taus)
  z = networks.quantiles('target', batch.next_state, batch.next_taus)
  z_mean = networks.quantiles('target', batch.next_state, levels).mean(axis=2)
  now = networks.quantiles('target', batch.state, levels).mean(axis=2)
  losses = []
  for j, a in enumerate(batch.action):
    policy = np.eye(actions)[z_mean[j].argmax()]
    scaled, bonus = np.zeros(actions), 0.0
    if munchausen:
      alpha, tau, clip = munchausen
      bonus = alpha * min(max(soft_value(now[j], tau)[1][a], clip), 0)
      policy, scaled = soft_value(z_mean[j], tau)
    loss = 0.0
    for i, tau_i in enumerate(batch.taus[j]):
      for samples in z[j].T:
        y = bonus + batch.target(j, policy @ (samples - scaled))
        rho = equations.quantile_huber(y - theta[j, a, i], tau_i, kappa) / kappa
        loss += rho / len(z[j].T)
    losses.append(loss)
  return mean(losses)


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
    y = batch.target(j, target_p[j, q.argmax()] @ support)
    losses.append(-labels(y) @ np.log(p[j, a]))
  return mean(losses)


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


def hl_gauss(networks, batch, actions, is_double=False):
  """Cross-entropy with the `histogram` of the target."""
  edges = np.linspace(-10, 10, 52)
  support = (edges[1:] + edges[:-1]) / 2
  labels = functools.partial(histogram, edges=edges)
  return _classification(networks, batch, actions, support, labels, is_double)


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
  return mean(losses)


def iql(networks, batch, actions):
  """Kostrikov et al., 2022: Equation 6 with the Huber loss, and `_actor`."""
  q = networks.q('online', batch.state, actions)
  fixed_v = networks.fixed.q('value', batch.next_state, 1)[:, 0]
  critic = td_loss(q, fixed_v, batch)
  return critic + _actor(networks, batch, actions, 'target', 0.7, 3.0)


def weighted_bc(networks, batch, actions):
  """Logged returns, their mean, and the exponential of the advantage."""
  critic = monte_carlo(networks, batch, actions)
  return critic + _actor(networks, batch, actions, 'online', 0.5, 3.0)


# By the config that it is the equation of, an example's name, or an option of DQN.
LOSSES: dict[str, Any] = dict(bc=bc, cql=cql, bcq=bcq, dr3=dqn_dr3)
LOSSES |= dict(cql_dr3=cql_dr3, iqn=iqn, munchausen_dqn=munchausen_dqn)
LOSSES['munchausen_iqn'] = functools.partial(iqn, munchausen=(0.9, 0.5, -1.0))
LOSSES |= dict(hl_gauss=hl_gauss, hl_gauss_cql=hl_gauss_cql, two_hot=two_hot)
LOSSES |= dict(sarsa=sarsa, monte_carlo=monte_carlo, iql=iql)
LOSSES |= dict(weighted_bc=weighted_bc, double=double_dqn, dueling=dueling_dqn)
LOSSES['cal_ql'] = cal_ql
