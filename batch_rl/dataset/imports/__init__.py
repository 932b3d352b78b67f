"""Imports of episodes in any format, as shards or as a store."""
