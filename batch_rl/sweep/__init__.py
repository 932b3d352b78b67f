"""Many runs from one file: on this machine, a Ray cluster, or SLURM."""
