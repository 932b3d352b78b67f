"""gin files of the online agents; a package, so that gin finds them anywhere."""
