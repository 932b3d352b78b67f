"""Many runs from one file: on this machine, a Ray cluster, or SLURM."""

from batch_rl import dopamine_compat

dopamine_compat.activate()
