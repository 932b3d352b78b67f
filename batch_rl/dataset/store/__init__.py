"""Stores: whole runs with compressed frames and random access."""

from batch_rl.dataset.store.store import Store, convert
from batch_rl.dataset.store.store_directory import list_shards

__all__ = ['Store', 'convert', 'list_shards']
