"""Results of runs: normalised scores, their aggregates, tables and plots."""

from typing import TYPE_CHECKING

from batch_rl import dopamine_compat
from batch_rl.utils import lazy_exports

if TYPE_CHECKING:
  from .aggregates import Estimate, Summary, summarise
  from .comparison import Comparison, compare
  from .normalisation import normalise
  from .plots import learning_curves
  from .run_results import RunResults, find_runs, read_run

__all__ = [
  'Comparison', 'Estimate', 'RunResults', 'Summary', 'compare', 'find_runs',
  'learning_curves', 'normalise', 'read_run', 'summarise',
]  # fmt: skip
lazy_exports.install(__name__)
dopamine_compat.activate()
