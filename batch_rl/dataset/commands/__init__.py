"""The subcommands of `python -m batch_rl.dataset`."""
