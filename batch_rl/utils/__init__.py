"""Helpers that know nothing of reinforcement learning: files, machine, seeds."""
