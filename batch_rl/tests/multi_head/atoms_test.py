"""C51's projection against a slow NumPy version written from the paper."""

import numpy as np
import pytest
import tensorflow as tf

from batch_rl.multi_head import atoms
from batch_rl.tests import equations


@pytest.mark.parametrize('num_atoms', [2, 11, 51])
def test_projection_is_that_of_the_paper(num_atoms):
  random = np.random.default_rng(0)
  support = np.linspace(-10, 10, num_atoms)
  rewards = random.choice([-30, -1, 0, 0.3, 1, 30], size=16)
  discounts = random.choice([0.0, 0.99, 0.970299], size=16)
  probabilities = random.dirichlet(np.ones(num_atoms), size=16)
  moved = rewards[:, None] + discounts[:, None] * support
  with tf.compat.v1.Session() as session:
    ours = session.run(
      atoms.project(
        *(tf.constant(a, tf.float32) for a in (moved, probabilities, support))
      )
    )
  expected = [
    equations.project(values, masses, support)
    for values, masses in zip(moved, probabilities, strict=True)
  ]
  np.testing.assert_allclose(ours, expected, atol=2e-5)
  np.testing.assert_allclose(ours.sum(axis=1), 1, rtol=1e-5)


@pytest.mark.parametrize(
  'arguments', [{'num_atoms': 1}, {'vmin': 2.0, 'vmax': 2.0}, {'vmax': -1.0}]
)
def test_a_support_without_extent_is_refused(arguments):
  with pytest.raises(ValueError, match='at least two atoms'):
    atoms.Categorical(**arguments)
