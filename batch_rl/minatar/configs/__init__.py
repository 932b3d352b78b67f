"""gin files of MinAtar; a package, so that gin finds them anywhere."""
