"""Agents: their base, and the agents by name."""

from batch_rl import dopamine_compat

dopamine_compat.activate()
