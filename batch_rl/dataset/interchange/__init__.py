"""Import from and export to other dataset formats."""
