"""Modules, functions and gin parameters of the user's own code."""
