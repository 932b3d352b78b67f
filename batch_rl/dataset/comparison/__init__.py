"""Comparison of copies of a run, and their fingerprints."""
