"""Offline training and evaluation."""

from batch_rl import dopamine_compat

dopamine_compat.activate()
