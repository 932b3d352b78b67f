"""Logged data: the shard format and tools."""
