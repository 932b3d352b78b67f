"""Seeds of components are pure functions of the run's seed."""

import random

import numpy as np

from batch_rl.utils import seeding


def test_derived_seeds_stay_the_same_in_all_versions():
  assert seeding.derive(1, 'replay', 0) == 400487385
  assert seeding.derive(1, 'replay', 3) == 1602052867
  assert seeding.derive(7, 'mixtures', 0) == 1121228573


def test_without_a_seed_nothing_is_seeded():
  assert seeding.derive(None, 'replay') is None
  states = seeding.random_states()
  seeding.seed_libraries(None, 1)
  assert random.getstate() == states['random']
  assert str(np.random.get_state()) == str(states['numpy'])


def test_an_iteration_makes_the_same_draws_again():
  draws = []
  for iteration in (1, 2, 1):
    seeding.seed_libraries(3, iteration)
    draws.append((random.random(), np.random.random()))
  assert draws[0] == draws[2] != draws[1]
