"""Bindings of gin: their syntax, and the values that parameters may have."""
