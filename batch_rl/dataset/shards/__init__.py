"""One shard of a run: names, reading, writing, and its place in the run."""
