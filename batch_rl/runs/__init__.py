"""Parts shared by online and offline runs."""

from batch_rl import dopamine_compat

dopamine_compat.activate()
