"""Results of runs: normalised scores, their aggregates, tables and plots."""

from batch_rl import dopamine_compat

dopamine_compat.activate()
