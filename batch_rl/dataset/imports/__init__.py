"""Imports of episodes in any format, as a store."""
