"""Atari 2600 ROMs and environments under the dataset's protocol."""
