"""Replay memories with logged data."""
