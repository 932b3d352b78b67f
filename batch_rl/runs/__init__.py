"""Parts shared by online and offline runs."""
