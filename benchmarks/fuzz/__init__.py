"""Damages files and reads them: nothing wrong may get through silently."""
