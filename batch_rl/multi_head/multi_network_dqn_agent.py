"""DQN with several separate networks: Ensemble-DQN and REM, online or offline."""

from typing import Any

import gin
import numpy as np
import tensorflow as tf

from batch_rl.agents import heads, value_agent
from batch_rl.multi_head import ensembles, networks
from batch_rl.utils import seeding


@gin.configurable
class MultiNetworkDQNAgent(value_agent.ValueAgent):
  """A DQN whose head is `SeparateNetworks`, which share no weights.

  In online training it acts on one mixture of the networks throughout an episode,
  drawn when the episode begins (online REM, Agarwal et al., 2020):

  | strategy   | mixture of the episode                                       |
  | ---------- | ------------------------------------------------------------ |
  | IDENTITY   | one network, as in Bootstrapped DQN (Osband et al., 2016)    |
  | AVERAGE    | the mean                                                     |
  | STOCHASTIC | a random point of the simplex: U(0, 1) draws over their sum  |

  In `eval_mode` it acts on the mean of the networks.
  """

  def __init__(
    self,
    sess: tf.compat.v1.Session | None,
    num_actions: int,
    num_networks: int = 4,
    transform_strategy: str = 'STOCHASTIC',
    num_convex_combinations: int = 1,
    network: heads.Network = networks.MultiNetworkQNetwork,
    seed: int | None = None,
    use_deep_exploration: bool = True,
    **kwargs: Any,
  ):
    """Builds the agent's graph.

    Args:
      sess: TensorFlow session; None creates one.
      num_actions: Number of actions.
      num_networks: Number of networks.
      transform_strategy: One of 'IDENTITY', 'AVERAGE' and 'STOCHASTIC'; see this
        class for acting and `Ensemble` for training.
      num_convex_combinations: Number of mixtures per batch; above 1 only with
        STOCHASTIC.
      network: Function `(num_actions, num_networks, name=...)` that builds the
        networks; their `call` returns a `MultiHeadNetworkType`. Or a plain network,
        see `networks`, for each.
      seed: Seed of the run, from which the seed of the episodes' mixtures is derived;
        None for an unseeded agent.
      use_deep_exploration: Whether each episode of online training has its own
        mixture. False acts on the mean of the networks.
      **kwargs: Arguments of `ValueAgent`.

    Raises:
      ValueError: If `Ensemble` refuses an argument.
    """
    self.num_networks = num_networks
    self.transform_strategy = transform_strategy
    self.num_convex_combinations = num_convex_combinations
    rng = np.random.default_rng(seeding.derive(seed, 'acting mixture'))
    self.acting_rng_state = rng.bit_generator.state
    self._mean_mixture = np.ones(num_networks, np.float32) / num_networks
    self._episode_mixture = self._mean_mixture
    self._use_deep_exploration = use_deep_exploration
    super().__init__(sess, num_actions, network=network, seed=seed, **kwargs)

  def own_head(self) -> ensembles.SeparateNetworks:
    """Returns the ensemble of separate networks."""
    return ensembles.SeparateNetworks(
      self.num_networks, self.transform_strategy, self.num_convex_combinations
    )

  _build_target_q_op = ensembles.build_targets
  _TARGETS = *value_agent.ValueAgent._TARGETS, _build_target_q_op

  def choose_actions(
    self, outputs: networks.MultiHeadNetworkType, seed: tf.Tensor
  ) -> tf.Tensor:
    """Returns the policy's actions on the acting mixture; see `LossAgent`.

    Targets of an update, and a policy whose outputs have no `q_heads`, such as
    `Constrained`, use the mean of the networks.
    """
    is_target = self._calls is not None
    if is_target or not hasattr(outputs, 'q_heads'):
      return super().choose_actions(outputs, seed)
    with tf.device('/cpu:*'):  # Python functions run on the CPU
      mixture = tf.numpy_function(self._acting_mixture, [], tf.float32)
    mixture.set_shape((self.num_networks,))
    q_values = tf.tensordot(outputs.q_heads, mixture, axes=1)
    return super().choose_actions(outputs._replace(q_values=q_values), seed)

  _CHOICES = *value_agent.ValueAgent._CHOICES, choose_actions

  def _acting_mixture(self) -> np.ndarray:
    """Returns the current acting mixture, float32 (num_networks,)."""
    explores = self._use_deep_exploration and not self.eval_mode
    return self._episode_mixture if explores else self._mean_mixture

  def begin_episode(self, observation: np.ndarray) -> int:
    """Draws the episode's mixture and returns the first action.

    Args:
      observation: First observation, of shape `observation_shape`.

    Returns:
      The action.
    """
    if not self.eval_mode:
      rng = np.random.default_rng()
      rng.bit_generator.state = self.acting_rng_state
      self._episode_mixture = draw_acting_mixture(
        rng, self.num_networks, self.transform_strategy
      )
      self.acting_rng_state = rng.bit_generator.state
    return super().begin_episode(observation)

  def bundle_and_checkpoint(
    self, checkpoint_dir: str, iteration_number: int
  ) -> dict[str, Any] | None:
    """Saves as `DQNAgent` does, with the mixture and the state of its generator."""
    bundle = super().bundle_and_checkpoint(checkpoint_dir, iteration_number)
    if bundle is not None:
      # DQNAgent.unbundle restores entries named like attributes.
      for name in ('_episode_mixture', 'acting_rng_state'):
        bundle[name] = getattr(self, name)
    return bundle


def draw_acting_mixture(
  rng: np.random.Generator, num_networks: int, transform_strategy: str
) -> np.ndarray:
  """Draws the weights of the networks for acting in one episode.

  Args:
    rng: Generator of the draw.
    num_networks: Number of networks.
    transform_strategy: Kind of mixture. 'IDENTITY' is one uniformly random network,
      'AVERAGE' the mean, 'STOCHASTIC' U(0, 1) draws divided by their sum.

  Returns:
    The weights, float32 (num_networks,); they sum to 1.
  """
  if transform_strategy == 'IDENTITY':
    weights = np.eye(num_networks)[rng.integers(num_networks)]
  elif transform_strategy == 'STOCHASTIC':
    weights = 1.0 - rng.random(num_networks)  # (0, 1]: the sum is never 0
  else:
    weights = np.ones(num_networks)
  return (weights / weights.sum()).astype(np.float32)
