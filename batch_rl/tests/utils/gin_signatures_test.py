"""A mixin passes its seed on to the constructors that take one."""

import gin
import pytest

from batch_rl.utils import gin_signatures


class Unseeded:
  """As Dopamine's `DQNAgent`."""

  def __init__(self, size=1):
    self.size = size
    self.seed = None


@gin.configurable
@gin_signatures.forwards_to(Unseeded)
class Seeded(Unseeded):
  """As `MultiHeadDQNAgent`."""

  def __init__(self, seed=None, **kwargs):
    super().__init__(**kwargs)
    self.seed = seed


class Forwarding(Seeded):
  """As a user's subclass of it."""

  def __init__(self, extra=None, **kwargs):
    super().__init__(**kwargs)
    self.extra = extra


class ForwardingUnseeded(Unseeded):
  """As a user's subclass of `DQNAgent`."""

  def __init__(self, extra=None, **kwargs):
    super().__init__(**kwargs)
    self.extra = extra


class Mixin:
  """As `FixedReplayAgentMixin`."""

  def __init__(self, seed=None, **kwargs):
    if gin_signatures.next_accepts(self, Mixin, 'seed'):
      kwargs['seed'] = seed
    super().__init__(**kwargs)


@pytest.mark.parametrize(
  ('agent', 'seed'),
  [(Unseeded, None), (Seeded, 7), (Forwarding, 7), (ForwardingUnseeded, None)],
)
def test_the_seed_reaches_the_constructor_that_takes_it(agent, seed):
  mixed = type('Mixed', (Mixin, agent), {})(seed=7, size=2)
  assert (mixed.seed, mixed.size) == (seed, 2)
