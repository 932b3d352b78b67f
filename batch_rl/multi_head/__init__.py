"""Networks, losses and agents of the ensemble family; QR-DQN."""
