"""Diagnostics of offline learning: over-estimated values, and features that collapse.

All are functions of what an agent computes for n states, and return numbers by name.
"""

from collections.abc import Iterable

import numpy as np


def of_values(
  q_values: np.ndarray,
  actions: np.ndarray,
  returns: np.ndarray | None = None,
  is_known: np.ndarray | None = None,
) -> dict[str, float]:
  """Compares values with each other, and with logged returns.

  Args:
    q_values: Q(s, a), float (n, num_actions).
    actions: Logged actions, integers (n,).
    returns: Discounted logged returns G from (s, a) on, float (n,); None if unknown.
    is_known: Whether the log has all rewards that matter to a return, bool (n,); other
      returns are left out.

  Returns:
    `q_logged`: mean Q(s, a_logged). `q_max`: mean max_a Q(s, a). `q_gap`: their
    difference. `return_to_go`: mean G. `overestimation`: mean Q(s, a_logged) - G.
  """
  logged = np.take_along_axis(q_values, actions[:, None], axis=1)[:, 0]
  found = {'q_logged': logged.mean(), 'q_max': q_values.max(axis=1).mean()}
  found['q_gap'] = found['q_max'] - found['q_logged']
  if returns is not None and is_known is not None and is_known.any():
    found['return_to_go'] = returns[is_known].mean()
    found['overestimation'] = (logged - returns)[is_known].mean()
  return found


def of_features(
  features: np.ndarray, next_features: np.ndarray
) -> dict[str, float]:
  """Tells how many dimensions the features of a network use.

  Args:
    features: Features phi(s), the inputs of the last layer, float (n, k).
    next_features: Features phi(s') of the next states, float (n, k).

  Returns:
    `srank`: effective rank of phi. `feature_dot_product`: mean phi(s) . phi(s'), the
    co-adaptation that DR3 (Kumar et al., 2021, arXiv 2112.04716) reduces. `dead_units`:
    share of the k features that are 0 in all n states, the tau-dormant units of Sokar
    et al. (2023, arXiv 2302.12902) with tau = 0.
  """
  products = np.einsum('nk,nk->n', features, next_features, dtype=np.float64)
  return {
    'srank': effective_rank(features),
    'feature_dot_product': products.mean(),
    'dead_units': (features == 0).all(axis=0).mean(),
  }


def effective_rank(features: np.ndarray, delta: float = 0.01) -> float:
  """Returns srank_delta, the effective rank of features.

  The smallest k with sum_{i <= k} sigma_i / sum_i sigma_i >= 1 - delta, where
  sigma_1 >= sigma_2 >= ... are the singular values (Kumar et al., 2021, Implicit
  Under-Parameterization, arXiv 2010.14498).

  Args:
    features: Features of n states, float (n, k).
    delta: Share of the sum of the singular values to leave out.

  Returns:
    The rank, 0 if all features are 0; NaN if one is not finite.
  """
  if not np.isfinite(features).all():
    return np.nan
  matrix = features.astype(np.float64)
  if len(matrix) > matrix.shape[1]:
    matrix = matrix.T
  # Much faster than singular values. Its rounding errors are far below delta.
  squares = np.linalg.eigvalsh(matrix @ matrix.T)
  sums = np.cumsum(np.sqrt(np.maximum(squares, 0))[::-1])
  if not sums[-1]:
    return 0.0
  return float(np.searchsorted(sums, (1 - delta) * sums[-1]) + 1)


def global_norm(arrays: Iterable[np.ndarray]) -> float:
  """Returns the square root of the sum of all squares."""
  return float(np.linalg.norm([np.linalg.norm(array) for array in arrays]))
