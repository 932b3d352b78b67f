"""C51 (Bellemare et al., 2017): one-step Rainbow, uniform replay."""

from typing import Any

import tensorflow as tf
from dopamine.tf.agents.rainbow import rainbow_agent

from batch_rl.agents import value_agent
from batch_rl.multi_head import atoms


class RainbowAgent(value_agent.ValueAgent, rainbow_agent.RainbowAgent):
  """Dopamine's Rainbow with the head `Categorical`.

  Raises:
    ValueError: If another head is given, or `replay_scheme` is not 'uniform'.
  """

  def __init__(self, *args: Any, replay_scheme: str = 'uniform', **kwargs: Any):
    self._check_replay_scheme(replay_scheme)
    super().__init__(*args, replay_scheme=replay_scheme, **kwargs)

  def own_head(self) -> atoms.Categorical:
    """Returns a `Categorical` on the support of Dopamine's agent."""
    return _Head(self._support, self._num_atoms)


class _Head(atoms.Categorical):
  """A `Categorical` on the support of Dopamine's agent."""

  def __init__(self, support: tf.Tensor, num_atoms: int):
    self._support = support
    self.num_atoms = self.num_outputs = num_atoms

  @property
  def support(self) -> tf.Tensor:
    """Returns the atoms, float32 (num_atoms,)."""
    return self._support
