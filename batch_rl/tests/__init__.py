"""Tests. They import Dopamine, which works after any package of agents."""

import batch_rl.agents  # noqa: F401
