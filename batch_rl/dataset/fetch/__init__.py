"""Downloads of runs from remote copies of the dataset."""
