"""DQN with several separate networks: online REM."""

from collections.abc import Callable, Sequence
from typing import Any

import gin
import numpy as np
import tensorflow as tf

from batch_rl.multi_head import atari_helpers, multi_head_dqn_agent
from batch_rl.utils import gin_signatures, seeding


@gin.configurable
@gin_signatures.forwards_to(
  multi_head_dqn_agent.MultiHeadDQNAgent, without=('num_heads',)
)
class MultiNetworkDQNAgent(multi_head_dqn_agent.MultiHeadDQNAgent):
  """A `MultiHeadDQNAgent` whose heads are networks that share no weights.

  While it trains online it acts on one mixture of the networks throughout an
  episode, drawn when the episode begins (online REM, Agarwal et al., 2020):

  | strategy   | the episode's mixture                                        |
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
    network: Callable[..., tf.keras.Model] = atari_helpers.MultiNetworkQNetwork,
    num_networks: int = 4,
    transform_strategy: str = 'STOCHASTIC',
    devices: Sequence[str] | None = None,
    acting_seed: int | None = None,
    **kwargs: Any,
  ):
    """Builds the agent's graph.

    Args:
      sess: runs the graph; None makes a session.
      num_actions: number of actions.
      network: builds the networks from `(num_actions, num_networks, devices,
        name=...)`; its `call` returns a `MultiHeadNetworkType`.
      num_networks: number of networks.
      transform_strategy: 'IDENTITY', 'AVERAGE' or 'STOCHASTIC'; see this class
        for acting and `MultiHeadDQNAgent` for training.
      devices: TensorFlow devices that the networks are dealt out to in turn.
        None means every GPU there is. Where there is no device to deal to, and
        for the rest of the graph, Dopamine's `tf_device` holds.
      acting_seed: of the episodes' mixtures; None derives one from the run's.
      **kwargs: `MultiHeadDQNAgent` and Dopamine's `DQNAgent` document the rest.

    Raises:
      ValueError: if `num_networks` is below 1, or as `MultiHeadDQNAgent`.
    """
    if num_networks < 1:
      raise ValueError(f'num_networks={num_networks} must be at least 1')
    if devices is None:
      gpus = tf.config.list_physical_devices('GPU')
      devices = [f'/gpu:{i}' for i in range(len(gpus))]
    self._devices = tuple(devices)
    if acting_seed is None:
      acting_seed = seeding.derive('acting mixture')
    self._acting_rng = np.random.default_rng(acting_seed)
    self._mean_mixture = np.full(num_networks, 1 / num_networks, np.float32)
    self._episode_mixture = self._mean_mixture
    super().__init__(
      sess,
      num_actions,
      network=network,
      num_heads=num_networks,
      transform_strategy=transform_strategy,
      **kwargs,
    )

  def _create_network(self, name: str) -> tf.keras.Model:
    return self.network(
      self.num_actions, self.num_heads, self._devices, name=name
    )

  def _build_networks(self) -> None:
    super()._build_networks()
    with tf.device('/cpu:*'):  # where Python runs
      mixture = tf.numpy_function(self._acting_mixture, [], tf.float32)
    mixture.set_shape((self.num_heads,))
    q_values = tf.tensordot(self._net_outputs.q_heads, mixture, axes=1)
    self._q_argmax = tf.argmax(q_values, axis=1)[0]

  def _acting_mixture(self) -> np.ndarray:
    """Returns the mixture to act on now, float32 (num_heads,)."""
    return self._mean_mixture if self.eval_mode else self._episode_mixture

  def begin_episode(self, observation: np.ndarray) -> int:
    """Draws the episode's mixture and returns the first action.

    Args:
      observation: the first observation, of shape `observation_shape`.

    Returns:
      The action.
    """
    if not self.eval_mode:
      self._episode_mixture = draw_acting_mixture(
        self._acting_rng, self.num_heads, self.transform_strategy
      )
    return super().begin_episode(observation)

  def bundle_and_checkpoint(
    self, checkpoint_dir: str, iteration_number: int
  ) -> dict[str, Any] | None:
    """Saves as `DQNAgent` does, and on which mixture it acts and will act.

    Args:
      checkpoint_dir: directory of the TensorFlow checkpoint.
      iteration_number: names the checkpoint.

    Returns:
      What `unbundle` takes; None if there is no such directory.
    """
    bundle = super().bundle_and_checkpoint(checkpoint_dir, iteration_number)
    if bundle is not None:
      bundle['_episode_mixture'] = self._episode_mixture  # set by name
      bundle['acting_rng_state'] = self._acting_rng.bit_generator.state
    return bundle

  def unbundle(
    self,
    checkpoint_dir: str,
    iteration_number: int,
    bundle_dictionary: dict[str, Any] | None,
  ) -> bool:
    """Restores what `bundle_and_checkpoint` has saved; see `DQNAgent`."""
    if not super().unbundle(
      checkpoint_dir, iteration_number, bundle_dictionary
    ):
      return False
    if state := (bundle_dictionary or {}).get('acting_rng_state'):
      self._acting_rng.bit_generator.state = state
    return True


def draw_acting_mixture(
  rng: np.random.Generator, num_networks: int, transform_strategy: str
) -> np.ndarray:
  """Draws the weights of the networks in one episode's behaviour.

  Args:
    rng: source of the draw.
    num_networks: number of networks.
    transform_strategy: 'IDENTITY': one network, uniformly; 'AVERAGE': all
      alike; 'STOCHASTIC': U(0, 1) draws divided by their sum.

  Returns:
    float32 array, (num_networks,), that sums to 1.
  """
  if transform_strategy == 'IDENTITY':
    weights = np.eye(num_networks)[rng.integers(num_networks)]
  elif transform_strategy == 'STOCHASTIC':
    weights = 1.0 - rng.random(num_networks)  # (0, 1]: the sum is never 0
  else:
    weights = np.ones(num_networks)
  return (weights / weights.sum()).astype(np.float32)
