"""Batches, subsets and episodes of a store."""
