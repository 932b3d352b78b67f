"""Files, locks, JSON, limits of the machine, seeds and other general helpers."""
