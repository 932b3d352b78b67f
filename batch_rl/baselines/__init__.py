"""Online agents, which log data for offline training."""

from batch_rl import dopamine_compat

dopamine_compat.activate()
