"""The shard format: names, reader, writer, stitching, manifest and log."""
