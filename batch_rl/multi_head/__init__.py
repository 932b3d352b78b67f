"""Networks, losses and agents with several outputs per action: ensembles, REM, QR-DQN."""
