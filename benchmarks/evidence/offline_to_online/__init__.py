"""Online training from the weights and with the data of an offline run."""
