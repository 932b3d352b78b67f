"""Online agents that make the data."""
