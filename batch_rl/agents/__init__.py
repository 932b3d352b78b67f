"""Agents: their base, and the agents by name."""
