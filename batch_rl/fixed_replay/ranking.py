"""Ranks of policies by their scores, and the quality of these ranks."""

import numpy as np
import pandas as pd

LOWER_IS_BETTER = ('td_error',)


def goodness(method: str, scores: np.ndarray) -> np.ndarray:
  """Returns scores so that higher is better; those that are not finite are worst."""
  signed = -scores if method in LOWER_IS_BETTER else scores
  return np.where(np.isfinite(signed), signed, -np.inf)


def rank_correlation(good: np.ndarray, returns: np.ndarray) -> float:
  """Returns Spearman's rank correlation; ties have their mean rank.

  Args:
    good: Scores, higher is better, float (n,).
    returns: True returns, float (n,).

  Returns:
    In [-1, 1]; NaN if all scores or all returns are equal.
  """
  ranks = pd.DataFrame({'good': good, 'returns': returns}).rank()
  return float(ranks.corr().iloc[0, 1])


def regret(good: np.ndarray, returns: np.ndarray) -> float:
  """Returns regret@1: (best - chosen) / (best - worst) of the true returns.

  The chosen policy has the highest score; of several, the first.

  Args:
    good: Scores, higher is better, float (n,).
    returns: True returns, float (n,).

  Returns:
    In [0, 1]; 0 if all returns are equal.
  """
  best, worst = returns.max(), returns.min()
  if best == worst:
    return 0.0
  return float((best - returns[np.argmax(good)]) / (best - worst))
