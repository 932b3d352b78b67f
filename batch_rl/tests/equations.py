"""The papers' equations in NumPy and float64, slow and plain.

Tests compare the agents with these equations, which are written from the papers,
not from the package. A loss is a function `(networks, batch, actions) -> float`: the
mean over the minibatch, by all weights. Its gradient is that of central differences.
`offline_equations` has the losses of later offline algorithms.

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
quantiles or atoms, outputs an action.
"""

import dataclasses
import math

import numpy as np

# The data.


@dataclasses.dataclass(frozen=True)
class Minibatch:
  """Transitions of an update, and what is drawn for it.

  Attributes:
    state, next_state: States, (B, 4) or with further axes of length 1.
    action: Integers (B,).
    reward: n-step returns R without the bootstrap, (B,).
    terminal: Whether the episode ended within the n steps, (B,).
    discount: Factor gamma^n of the bootstrap.
    next_action: Integers (B,).
    return_to_go: Discounted return of the trajectory from the state on, (B,).
    mixtures: Weights of heads, one alpha per column, (K, M), of REM.
    taus, next_taus: Levels of quantiles for s and s', (B, N), of IQN.
  """

  state: np.ndarray
  next_state: np.ndarray
  action: np.ndarray
  reward: np.ndarray
  terminal: np.ndarray
  discount: float
  next_action: np.ndarray | None = None
  return_to_go: np.ndarray | None = None
  mixtures: np.ndarray | None = None
  taus: np.ndarray | None = None
  next_taus: np.ndarray | None = None

  def target(self, j: int, value_of_next_state: float) -> float:
    """y_j = R_j if the episode ended, else R_j + gamma^n V(s'_j)."""
    if self.terminal[j]:
      return self.reward[j]
    return self.reward[j] + self.discount * value_of_next_state


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


# CartPole's networks.

STATE_BOUNDS = np.array([2.4, 5.0, math.pi / 12, 2 * math.pi])


def forward(arrays, states):
  """Returns the outputs of three dense layers, with a ReLU after each but the last.

  `arrays` are kernel (inputs, outputs), bias (outputs,), kernel, ...; states, (B, 4),
  are scaled from their bounds to [-1, 1].
  """
  x = states.reshape(len(states), 4) / STATE_BOUNDS
  torso = np.maximum(x @ arrays[0] + arrays[1], 0)
  features = np.maximum(torso @ arrays[2] + arrays[3], 0)
  return torso, features, features @ arrays[4] + arrays[5]


class Networks:
  """The networks of an agent.

  Args:
    weights: Arrays of each network, kernel, bias, kernel, ..., by its name; 'target' is
      the target copy.
    fixed: Networks behind a stop of the gradient; None for these.
  """

  def __init__(self, weights, fixed=None):
    self._weights = weights
    self.fixed = fixed or self

  def q(self, name, states, actions):
    """Returns the outputs, (B, A), or (B, A, N) if there are several an action."""
    outputs = forward(self._weights[name], states)[2]
    if outputs.shape[1] == actions:
      return outputs
    return outputs.reshape(len(states), actions, -1)

  def heads(self, name, states, actions):
    """Returns the Q-values of all heads or separate networks, (B, A, K)."""
    arrays = self._weights[name]
    outputs = [
      forward(arrays[i : i + 6], states)[2].reshape(len(states), actions, -1)
      for i in range(0, len(arrays), 6)
    ]
    return np.concatenate(outputs, axis=2)

  def features(self, states):
    """Returns the inputs of the online network's last layer, (B, units)."""
    return forward(self._weights['online'], states)[1]

  def behaviour(self, states):
    """Returns the logits of BCQ's G, on the torso of the online network, (B, A)."""
    torso = forward(self._weights['online'], states)[0]
    kernel, bias, last_kernel, last_bias = self._weights['behaviour']
    return np.maximum(torso @ kernel + bias, 0) @ last_kernel + last_bias

  def dueling(self, name, states):
    """Wang et al., Equation 9, (B, A)."""
    torso, _, advantages = forward(self._weights[name], states)
    kernel, bias, last_kernel, last_bias = self._weights[name][6:]
    value = np.maximum(torso @ kernel + bias, 0) @ last_kernel + last_bias
    return value + advantages - advantages.mean(axis=1, keepdims=True)

  def quantiles(self, name, states, taus):
    """IQN, Equation 4: psi(s) * phi(tau) in the place of psi(s), (B, A, N)."""
    arrays = self._weights[name]
    kernel, bias = arrays[6:]
    rows = []
    for psi, levels in zip(forward(arrays, states)[0], taus, strict=True):
      columns = []
      for tau in levels:
        cosines = np.cos(math.pi * np.arange(len(kernel)) * tau)
        x = psi * np.maximum(cosines @ kernel + bias, 0)
        x = np.maximum(x @ arrays[2] + arrays[3], 0)
        columns.append(x @ arrays[4] + arrays[5])
      rows.append(np.stack(columns, axis=1))
    return np.stack(rows)


def differentiate(loss, weights, change=1e-6):
  """Returns central differences of a loss, like `weights` without the target copy."""
  moved = {name: [w.copy() for w in some] for name, some in weights.items()}
  networks = Networks(moved, fixed=Networks(weights))
  gradients = {}
  for name, arrays in moved.items():
    if name == 'target':
      continue
    gradients[name] = [np.zeros_like(array) for array in arrays]
    for array, gradient in zip(arrays, gradients[name], strict=True):
      for i in np.ndindex(array.shape):
        before, values = array[i], []
        for array[i] in (before + change, before - change):
          values.append(loss(networks))
        array[i] = before
        gradient[i] = (values[0] - values[1]) / (2 * change)
  return gradients


# The losses.


def mean(losses):
  return sum(losses) / len(losses)


def huber(error, kappa=1.0):
  """Dabney et al., Equation 9: u^2 / 2 up to kappa, then a straight line.

  With kappa = 1 it is Mnih et al.'s clipping of the error term to [-1, 1].
  """
  if abs(error) <= kappa:
    return 0.5 * error**2
  return kappa * (abs(error) - 0.5 * kappa)


def td_loss(q, values, batch):
  """Mean of huber(r + gamma V(s') - Q(s, a)), for Q (B, A) and V (B,)."""
  targets = [batch.target(j, value) for j, value in enumerate(values)]
  triples = zip(targets, q, batch.action, strict=True)
  return mean([huber(y - row[a]) for y, row, a in triples])


def dqn(networks, batch, actions):
  """Mnih et al., Algorithm 1: y_j = r_j + gamma max_a' Q^(s', a')."""
  q = networks.q('online', batch.state, actions)
  target_q = networks.q('target', batch.next_state, actions)
  return td_loss(q, target_q.max(axis=1), batch)


def ensemble_dqn(networks, batch, actions):
  """Agarwal et al., Ensemble-DQN: every head has its own target.

  1/K sum_k huber(Q_k(s, a) - r - gamma max_a' Q'_k(s', a'))
  """
  q = networks.heads('online', batch.state, actions)
  values = networks.heads('target', batch.next_state, actions).max(axis=1)
  heads = range(q.shape[2])
  return mean([td_loss(q[:, :, k], values[:, k], batch) for k in heads])


def averaged_ensemble_dqn(networks, batch, actions):
  """Ensemble-DQN with one target for all heads, that of their mean.

    y = r + gamma max_a' 1/K sum_k Q'_k(s', a')

  Anschel et al., Algorithm 2, take the mean over the last K networks; Agarwal
  et al. take it over the heads.
  """
  q = networks.heads('online', batch.state, actions)
  target_q = networks.heads('target', batch.next_state, actions)
  values = target_q.mean(axis=2).max(axis=1)
  return mean([td_loss(q[:, :, k], values, batch) for k in range(q.shape[2])])


def rem(networks, batch, actions):
  """Agarwal et al., REM: one error of a random mixture of the heads.

    huber(sum_k alpha_k Q_k(s, a) - r - gamma max_a' sum_k alpha_k Q'_k(s', a'))

  with the same alpha for both networks and the whole minibatch. The expectation
  over alpha is the mean over the mixtures of the minibatch.
  """
  q = networks.heads('online', batch.state, actions)
  target_q = networks.heads('target', batch.next_state, actions)
  values = (target_q @ batch.mixtures).max(axis=1)
  pairs = zip(batch.mixtures.T, values.T, strict=True)
  return mean([td_loss(q @ alpha, value, batch) for alpha, value in pairs])


def quantile_huber(error, tau, kappa=1.0):
  """Dabney et al., Equation 10: |tau - 1[u < 0]| huber(u).

  With kappa = 0 it is quantile regression's |tau - 1[u < 0]| |u|, Equation 8.
  """
  loss = huber(error, kappa) if kappa > 0 else abs(error)
  return abs(tau - (error < 0)) * loss


def quantile_regression(theta, targets, kappa=1.0):
  """Dabney et al., Algorithm 1: sum_i E_j rho_tau^_i(T theta_j - theta_i).

  tau^_i = (tau_{i-1} + tau_i) / 2 with tau_i = i / N, by Lemma 2.
  """
  loss = 0.0
  for i in range(len(theta)):
    tau = (i / len(theta) + (i + 1) / len(theta)) / 2
    for target in targets:
      loss += quantile_huber(target - theta[i], tau, kappa) / len(targets)
  return loss


def qr_dqn(networks, batch, actions, kappa=1.0):
  """Dabney et al., Algorithm 1."""
  theta = networks.q('online', batch.state, actions)
  target_theta = networks.q('target', batch.next_state, actions)
  losses = []
  for j, a in enumerate(batch.action):
    greedy = target_theta[j, target_theta[j].mean(axis=1).argmax()]
    targets = [batch.target(j, quantile) for quantile in greedy]
    losses.append(quantile_regression(theta[j, a], targets, kappa))
  return mean(losses)


def softmax(logits):
  """p_i = exp(l_i) / sum_j exp(l_j), over the last axis."""
  powers = np.exp(logits - logits.max(axis=-1, keepdims=True))
  return powers / powers.sum(axis=-1, keepdims=True)


def project(atoms, probabilities, support):
  """Bellemare et al., Algorithm 1: mass is shared between the two neighbours.

  Returns the mass at the ascending, evenly spaced positions `support`, all (N,).
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


def c51(networks, batch, actions, support):
  """Bellemare et al., Algorithm 1: -sum_i m_i log p_i(s, a)."""
  p = softmax(networks.q('online', batch.state, actions))
  next_p = softmax(networks.q('target', batch.next_state, actions))
  losses = []
  for j, a in enumerate(batch.action):
    greedy = next_p[j, (next_p[j] @ support).argmax()]
    m = project([batch.target(j, z) for z in support], greedy, support)
    losses.append(-m @ np.log(p[j, a]))
  return mean(losses)


# The optimisers.


@dataclasses.dataclass
class CenteredRMSProp:
  """Graves, Equations 38 to 41, without momentum, for one array of weights.

  n <- decay n + (1 - decay) g^2, starting with 1 in TensorFlow
  m <- decay m + (1 - decay) g, starting with 0
  w <- w - learning_rate g / sqrt(n - m^2 + epsilon)
  """

  learning_rate: float
  decay: float
  epsilon: float
  n: np.ndarray | float = 1.0
  m: np.ndarray | float = 0.0

  def step(self, w, g):
    """Returns the new weights."""
    self.n = self.decay * self.n + (1 - self.decay) * g**2
    self.m = self.decay * self.m + (1 - self.decay) * g
    root = np.sqrt(self.n - self.m**2 + self.epsilon)
    return w - self.learning_rate * g / root


@dataclasses.dataclass
class Adam:
  """Kingma and Ba, Algorithm 1 in the order of computation of their Section 2.

  m <- beta1 m + (1 - beta1) g
  v <- beta2 v + (1 - beta2) g^2
  w <- w - learning_rate sqrt(1 - beta2^t) / (1 - beta1^t) m
         / (sqrt(v) + epsilon)

  where epsilon is the paper's "epsilon hat"; for one array of weights.
  """

  learning_rate: float
  epsilon: float
  beta1: float = 0.9
  beta2: float = 0.999
  t: int = 0
  m: np.ndarray | float = 0.0
  v: np.ndarray | float = 0.0

  def step(self, w, g):
    """Returns the new weights."""
    self.t += 1
    self.m = self.beta1 * self.m + (1 - self.beta1) * g
    self.v = self.beta2 * self.v + (1 - self.beta2) * g**2
    rate = self.learning_rate * math.sqrt(1 - self.beta2**self.t)
    rate /= 1 - self.beta1**self.t
    return w - rate * self.m / (np.sqrt(self.v) + self.epsilon)
