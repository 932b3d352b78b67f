"""C51 (Bellemare et al., 2017): one-step Rainbow, uniform replay."""

import functools
from typing import Any

from dopamine.tf.agents.rainbow import rainbow_agent

from batch_rl.agents import value_agent
from batch_rl.multi_head import atoms
from batch_rl.utils.user_code import gin_signatures


class RainbowAgent(value_agent.ValueAgent, rainbow_agent.RainbowAgent):
  """Dopamine's Rainbow with the head `Categorical`.

  Raises:
    ValueError: If another head is given, `Categorical` refuses the atoms, or
      `replay_scheme` is not 'uniform'.
  """

  def __init__(self, *args: Any, replay_scheme: str = 'uniform', **kwargs: Any):
    self._check_replay_scheme(replay_scheme)
    find = functools.partial(gin_signatures.configured_value, type(self))
    names = 'num_atoms', 'vmin', 'vmax'
    self._atoms = atoms.Categorical(*(kwargs.get(n, find(n)) for n in names))
    kwargs['vmin'] = self._atoms.vmin  # Dopamine refuses an integer.
    super().__init__(*args, replay_scheme=replay_scheme, **kwargs)

  def own_head(self) -> atoms.Categorical:
    """Returns a `Categorical` on the agent's atoms."""
    self._support = self._atoms.support  # Dopamine reads a vmin of 0 as None.
    return self._atoms
