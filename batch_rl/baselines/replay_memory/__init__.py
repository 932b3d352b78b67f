"""A replay memory that also writes a log."""
