"""Checks, statistics, plots and videos of logged data."""
