"""Online agents, which log data for offline training."""
