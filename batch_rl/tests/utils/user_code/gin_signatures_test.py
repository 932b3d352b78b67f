"""The parameters that gin and constructors know, and where seeds go."""

import inspect

import gin
import pytest

from batch_rl.fixed_replay import run_experiment
from batch_rl.utils.user_code import gin_signatures


class Learner:
  def __init__(self, actions, gamma=0.9, period=4):
    self.settings = actions, gamma, period


class LearnerMixin(gin_signatures.ForwardedParameters):
  def __init__(self, actions, directory=None, **kwargs):
    super().__init__(actions, **kwargs)
    self.directory = directory


@gin.configurable
class Offline(LearnerMixin, Learner):
  """As `FixedReplayDQNAgent`."""


@gin_signatures.forwards_to(Learner)
class Seeded(Learner):
  def __init__(self, actions, seed=None, **kwargs):
    super().__init__(actions, **kwargs)
    self.seed = seed


def test_the_seed_reaches_the_constructor_that_takes_it():
  class Mixin:
    def __init__(self, actions, seed, **kwargs):
      if gin_signatures.next_accepts(self, Mixin, 'seed'):
        kwargs['seed'] = seed
      super().__init__(actions, **kwargs)

  for agent, seed in ((Learner, None), (Seeded, 7)):

    class Mixed(Mixin, agent):
      pass

    mixed = Mixed(6, 7, period=2)
    assert mixed.settings == (6, 0.9, 2)
    assert getattr(mixed, 'seed', None) == seed


class PenaltyMixin:
  def __init__(self, *args, weight=1.0, **kwargs):
    super().__init__(*args, **kwargs)
    self.weight = weight


@gin.configurable
class WithOwnParameter(Offline):
  def __init__(self, *args, extra=2, **kwargs):
    super().__init__(*args, **kwargs)
    self.extra = extra


@gin.configurable
class WithMixin(PenaltyMixin, WithOwnParameter):
  """As a user's agent without a constructor of its own."""


@gin.configurable
class WithOtherDefault(WithMixin):
  def __init__(self, actions, period=9, **kwargs):
    super().__init__(actions, period=period, **kwargs)


def names(cls):
  return list(inspect.signature(cls).parameters)


def test_a_subclass_has_the_parameters_of_all_constructors():
  assert names(Offline) == ['actions', 'directory', 'gamma', 'period']
  own = ['actions', 'directory', 'extra', 'gamma', 'period']
  assert names(WithOwnParameter) == own
  assert set(names(WithMixin)) == {*own, 'weight'}
  assert names(WithOtherDefault)[:2] == ['actions', 'period']
  # The class after a mixin is not known yet.
  assert 'kwargs' in names(LearnerMixin)


def test_all_parameters_and_no_others_are_bound_and_passed_on():
  gin.parse_config("""
    WithMixin.weight = 3
    WithMixin.extra = 4
    WithMixin.gamma = 0.5
    Offline.period = 7
    Offline.gamma = 0.1
  """)
  for parameter in ('extar', 'gama', 'directroy'):
    with pytest.raises(ValueError, match=f"named '{parameter}'"):
      gin.parse_config(f'WithMixin.{parameter} = 1')
  agent = WithMixin(6, 'data')
  assert (agent.weight, agent.extra, agent.directory) == (3, 4, 'data')
  assert agent.settings == (6, 0.5, 7)
  with pytest.raises(TypeError, match='wieght'):
    WithMixin(6, wieght=1)


def test_the_value_that_a_parameter_will_have():
  def value(cls):
    return gin_signatures.configured_value(cls, 'period')

  assert [value(WithMixin), value(WithOtherDefault)] == [4, 9]
  gin.bind_parameter('Offline.period', 7)
  assert [value(WithMixin), value(WithOtherDefault)] == [7, 9]
  gin.bind_parameter('WithOtherDefault.period', 8)
  assert [value(WithMixin), value(WithOtherDefault)] == [7, 8]
  with pytest.raises(ValueError, match='Learner has no parameter perido'):
    gin_signatures.configured_value(Learner, 'perido')
  # Behind a decorator.
  runner, name = run_experiment.FixedReplayRunner, 'max_steps_per_episode'
  assert gin_signatures.configured_value(runner, name) == 27_000
  gin.bind_parameter(f'Runner.{name}', 7)
  assert gin_signatures.configured_value(runner, name) == 7
