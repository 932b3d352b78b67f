"""The parts that online and offline runs share."""
