"""MinAtar (Young and Tian, 2019): five small games, a network, configs."""

from batch_rl import dopamine_compat

dopamine_compat.activate()
