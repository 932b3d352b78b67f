"""The papers' equations in NumPy and float64, slow and plain.

Tests compare the agents with these equations, which are written from the papers,
not from the package. Every loss is the mean over the minibatch and comes with its
gradient with respect to the outputs of the online network, derived by hand.

Papers:
  DQN: Mnih et al., Human-level control through deep reinforcement learning,
    Nature 2015.
  C51: Bellemare, Dabney and Munos, A Distributional Perspective on
    Reinforcement Learning, ICML 2017.
  QR-DQN: Dabney, Rowland, Bellemare and Munos, Distributional Reinforcement
    Learning with Quantile Regression, AAAI 2018.
  Ensemble-DQN, REM: Agarwal, Schuurmans and Norouzi, An Optimistic Perspective
    on Offline Reinforcement Learning, ICML 2020.
  Averaged-DQN: Anschel, Baram and Shimkin, Averaged-DQN: Variance Reduction
    and Stabilization for Deep Reinforcement Learning, ICML 2017.
  Adam: Kingma and Ba, Adam: A Method for Stochastic Optimization, ICLR 2015.
  RMSProp, centered: Graves, Generating Sequences With Recurrent Neural
    Networks, 2013, Equations 38 to 41.

Letters in the shapes: B transitions, A actions, K heads (networks), M mixtures, N
quantiles or atoms. The losses take

  the outputs of the online network at the states, (B, A), (B, A, K) or (B, A, N);
  the outputs of the target network at the next states, in the same shape;
  the rest of the minibatch;
  for quantiles kappa, the error at which the Huber loss becomes linear.
"""

import dataclasses
import math
from typing import NamedTuple

import numpy as np


class Loss(NamedTuple):
  """A loss and its gradient."""

  value: float  # mean over the minibatch
  gradient: np.ndarray  # d value / d outputs of the online network


@dataclasses.dataclass(frozen=True)
class Transitions:
  """A minibatch without states: the input of a loss besides network outputs."""

  actions: np.ndarray  # integers, (B,)
  rewards: np.ndarray  # n-step returns R without the bootstrap, (B,)
  terminals: np.ndarray  # whether the episode ended within the n steps, (B,)
  discount: float  # factor gamma^n of the bootstrap

  def __len__(self):
    return len(self.actions)

  def target(self, j, value_of_next_state):
    """y_j = R_j if the episode ended, else R_j + gamma^n V(s'_j)."""
    if self.terminals[j]:
      return self.rewards[j]
    return self.rewards[j] + self.discount * value_of_next_state


# The data.


def n_step(rewards, terminals, start, horizon, gamma):
  """R = r_t + gamma r_{t+1} + ... for `horizon` steps or to the episode's end.

  Returns R, and whether the episode ended within the n steps, in which case nothing is
  bootstrapped. `rewards` and `terminals` have one value per step, (T,).
  """
  total = 0.0
  for k in range(horizon):
    total += gamma**k * rewards[start + k]
    if terminals[start + k]:
      return total, True
  return total, False


# The losses.


def huber(error, kappa=1.0):
  """Dabney et al., Equation 9: u^2 / 2 up to kappa, then a straight line.

  With kappa = 1 it is Mnih et al.'s clipping of the error term to [-1, 1].
  """
  if abs(error) <= kappa:
    return 0.5 * error**2
  return kappa * (abs(error) - 0.5 * kappa)


def huber_slope(error, kappa=1.0):
  """Returns the derivative of `huber`: the error, clipped."""
  return min(max(error, -kappa), kappa)


def dqn(q, target_q, transitions):
  """Mnih et al., Algorithm 1: y_j = r_j + gamma max_a' Q^(s', a')."""
  value, gradient = 0.0, np.zeros_like(q)
  for j in range(len(transitions)):
    a = transitions.actions[j]
    y = transitions.target(j, max(target_q[j]))
    value += huber(y - q[j, a])
    gradient[j, a] = -huber_slope(y - q[j, a])
  return Loss(value / len(transitions), gradient / len(transitions))


def ensemble_dqn(q, target_q, transitions):
  """Agarwal et al., Ensemble-DQN: every head has its own target.

  1/K sum_k huber(Q_k(s, a) - r - gamma max_a' Q'_k(s', a'))
  """
  num_heads = q.shape[2]
  value, gradient = 0.0, np.zeros_like(q)
  for k in range(num_heads):
    head = dqn(q[:, :, k], target_q[:, :, k], transitions)
    value += head.value / num_heads
    gradient[:, :, k] = head.gradient / num_heads
  return Loss(value, gradient)


def averaged_ensemble_dqn(q, target_q, transitions):
  """Ensemble-DQN with one target for all heads, that of their mean.

    y = r + gamma max_a' 1/K sum_k Q'_k(s', a')

  Anschel et al., Algorithm 2, take the mean over the last K networks; Agarwal
  et al. take it over the heads.
  """
  mean = sum(target_q[:, :, k] for k in range(q.shape[2])) / q.shape[2]
  same = np.stack([mean] * q.shape[2], axis=2)
  return ensemble_dqn(q, same, transitions)


def rem(q, target_q, transitions, mixtures):
  """Agarwal et al., REM: one error of a random mixture of the heads.

    huber(sum_k alpha_k Q_k(s, a) - r - gamma max_a' sum_k alpha_k Q'_k(s', a'))

  with the same alpha for both networks and the whole minibatch. The expectation
  over alpha is the mean over `mixtures`, one alpha per column, (K, M).
  """
  num_heads, num_mixtures = mixtures.shape
  value, gradient = 0.0, np.zeros_like(q)
  for m in range(num_mixtures):
    alpha = mixtures[:, m]
    mixed = sum(alpha[k] * q[:, :, k] for k in range(num_heads))
    target = sum(alpha[k] * target_q[:, :, k] for k in range(num_heads))
    mixture = dqn(mixed, target, transitions)
    value += mixture.value / num_mixtures
    for k in range(num_heads):
      gradient[:, :, k] += alpha[k] * mixture.gradient / num_mixtures
  return Loss(value, gradient)


def simplex_points(numbers):
  """Agarwal et al., REM: numbers of U(0, 1), divided by their sum."""
  return np.stack([column / sum(column) for column in numbers.T], axis=1)


def quantile_huber(error, tau, kappa=1.0):
  """Dabney et al., Equation 10: |tau - 1[u < 0]| huber(u).

  With kappa = 0 it is quantile regression's |tau - 1[u < 0]| |u|, Equation 8.
  """
  loss = huber(error, kappa) if kappa > 0 else abs(error)
  return abs(tau - (error < 0)) * loss


def quantile_huber_slope(error, tau, kappa=1.0):
  """Returns the derivative of `quantile_huber` with respect to the error."""
  slope = huber_slope(error, kappa) if kappa > 0 else np.sign(error)
  return abs(tau - (error < 0)) * slope


def quantile_regression(theta, targets, kappa=1.0):
  """Dabney et al., Algorithm 1: sum_i E_j rho_tau^_i(T theta_j - theta_i).

  tau^_i = (tau_{i-1} + tau_i) / 2 with tau_i = i / N, by Lemma 2.
  """
  value, gradient = 0.0, np.zeros(len(theta))
  for i in range(len(theta)):
    tau = (i / len(theta) + (i + 1) / len(theta)) / 2
    for target in targets:
      u = target - theta[i]
      value += quantile_huber(u, tau, kappa) / len(targets)
      gradient[i] -= quantile_huber_slope(u, tau, kappa) / len(targets)
  return Loss(value, gradient)


def qr_dqn(theta, target_theta, transitions, kappa=1.0):
  """Dabney et al., Algorithm 1."""
  value, gradient = 0.0, np.zeros_like(theta)
  for b in range(len(transitions)):
    a = transitions.actions[b]
    q = [sum(quantiles) / len(quantiles) for quantiles in target_theta[b]]
    greedy = target_theta[b, q.index(max(q))]
    targets = [transitions.target(b, quantile) for quantile in greedy]
    one = quantile_regression(theta[b, a], targets, kappa)
    value += one.value
    gradient[b, a] = one.gradient
  return Loss(value / len(transitions), gradient / len(transitions))


def softmax(logits):
  """p_i = exp(l_i) / sum_j exp(l_j), over the last axis."""
  powers = np.exp(logits - logits.max(axis=-1, keepdims=True))
  return powers / powers.sum(axis=-1, keepdims=True)


def project(atoms, probabilities, support):
  """Bellemare et al., Algorithm 1: mass is shared between the two neighbours.

  Args:
    atoms: Positions of the mass, (N,).
    probabilities: Mass at each atom, (N,).
    support: Ascending, evenly spaced positions to move the mass to, (N,).

  Returns:
    The mass at each point of `support`, (N,).
  """
  v_min, v_max = support[0], support[-1]
  spacing = (v_max - v_min) / (len(support) - 1)
  projected = np.zeros(len(support))
  for atom, probability in zip(atoms, probabilities, strict=True):
    b = (min(max(atom, v_min), v_max) - v_min) / spacing
    lower, upper = math.floor(b), math.ceil(b)
    if lower == upper:
      # As printed the algorithm loses this mass: both its shares are zero.
      projected[lower] += probability
    else:
      projected[lower] += probability * (upper - b)
      projected[upper] += probability * (b - lower)
  return projected


def c51(logits, target_logits, transitions, support):
  """Bellemare et al., Algorithm 1: -sum_i m_i log p_i(s, a)."""
  p, next_p = softmax(logits), softmax(target_logits)
  value, gradient = 0.0, np.zeros_like(logits)
  for b in range(len(transitions)):
    a = transitions.actions[b]
    q = [sum(support * distribution) for distribution in next_p[b]]
    atoms = [transitions.target(b, z) for z in support]
    m = project(atoms, next_p[b, q.index(max(q))], support)
    value -= sum(m * np.log(p[b, a]))
    # d log p_i / d l_j = 1[i = j] - p_j, and m sums to one.
    gradient[b, a] = p[b, a] - m
  return Loss(value / len(transitions), gradient / len(transitions))


# CartPole's network.


STATE_BOUNDS = np.array([2.4, 5.0, math.pi / 12, 2 * math.pi])


class Activations(NamedTuple):
  """Results of the forward pass that the backward pass needs."""

  inputs: list  # of each layer, (B, width)
  sums: list  # inputs of the ReLU of each layer but the last, (B, width)
  outputs: np.ndarray  # of the last layer, (B, outputs)


def forward(layers, states):
  """Applies dense layers, with a ReLU after each but the last.

  Args:
    layers: List of (kernel (inputs, outputs), bias (outputs,)).
    states: States (B, 4); they are scaled from their bounds to [-1, 1].
  """
  x = states / STATE_BOUNDS
  inputs, sums = [], []
  for kernel, bias in layers:
    inputs.append(x)
    sums.append(x @ kernel + bias)
    x = np.maximum(sums[-1], 0)
  return Activations(inputs, sums[:-1], sums[-1])


def backward(layers, activations, gradient):
  """Returns d loss / d layers, in the shape of `layers`, by the chain rule.

  `gradient` is d loss / d outputs, (B, outputs).
  """
  gradients = []
  for i in reversed(range(len(layers))):
    if i < len(layers) - 1:
      gradient = gradient * (activations.sums[i] > 0)
    gradients.insert(
      0, (activations.inputs[i].T @ gradient, gradient.sum(axis=0))
    )
    kernel, _ = layers[i]
    gradient = gradient @ kernel.T
  return gradients


# The optimisers.


@dataclasses.dataclass
class CenteredRMSProp:
  """Graves, Equations 38 to 41, without momentum.

  n <- decay n + (1 - decay) g^2, starting with `start`, which is 1 in TensorFlow
  m <- decay m + (1 - decay) g, starting with 0
  w <- w - learning_rate g / sqrt(n - m^2 + epsilon)
  """

  learning_rate: float
  decay: float
  epsilon: float
  start: float = 1.0
  averages: list | None = None  # (n, m) of each array

  def step(self, weights, gradients):
    """Returns the new weights, a list of arrays."""
    decay = self.decay
    self.averages = [
      (decay * n + (1 - decay) * g**2, decay * m + (1 - decay) * g)
      for (n, m), g in zip(
        self.averages or [(self.start, 0)] * len(weights),
        gradients,
        strict=True,
      )
    ]
    return [
      w - self.learning_rate * g / np.sqrt(n - m**2 + self.epsilon)
      for w, g, (n, m) in zip(weights, gradients, self.averages, strict=True)
    ]


@dataclasses.dataclass
class Adam:
  """Kingma and Ba, Algorithm 1 in the order of computation of their Section 2.

  m <- beta1 m + (1 - beta1) g
  v <- beta2 v + (1 - beta2) g^2
  w <- w - learning_rate sqrt(1 - beta2^t) / (1 - beta1^t) m
         / (sqrt(v) + epsilon)

  where epsilon is the paper's "epsilon hat".
  """

  learning_rate: float
  epsilon: float
  beta1: float = 0.9
  beta2: float = 0.999
  t: int = 0
  moments: list | None = None  # (m, v) of each array

  def step(self, weights, gradients):
    """Returns the new weights, a list of arrays."""
    self.t += 1
    beta1, beta2 = self.beta1, self.beta2
    self.moments = [
      (beta1 * m + (1 - beta1) * g, beta2 * v + (1 - beta2) * g**2)
      for (m, v), g in zip(
        self.moments or [(0, 0)] * len(weights), gradients, strict=True
      )
    ]
    rate = self.learning_rate * math.sqrt(1 - beta2**self.t)
    rate /= 1 - beta1**self.t
    return [
      w - rate * m / (np.sqrt(v) + self.epsilon)
      for w, (m, v) in zip(weights, self.moments, strict=True)
    ]
