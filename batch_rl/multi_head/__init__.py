"""Networks, losses and agents with several outputs per action: ensembles, REM, QR-DQN."""

from batch_rl import dopamine_compat

dopamine_compat.activate()
