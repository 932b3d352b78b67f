"""Networks, losses and agents with several outputs an action: ensembles, REM, QR-DQN."""
