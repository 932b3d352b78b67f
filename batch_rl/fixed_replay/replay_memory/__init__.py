"""The replay memory that holds logged shards."""
