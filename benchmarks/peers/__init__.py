"""Losses and updates of this package beside those of d3rlpy and TorchRL."""
