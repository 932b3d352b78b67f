"""Reader of RL Unplugged's Atari files: episodes in TFRecords, without TensorFlow."""
