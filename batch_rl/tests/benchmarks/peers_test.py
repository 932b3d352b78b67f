"""Losses of other libraries, as `python -um benchmarks.peers` printed them."""

import pytest

from benchmarks.peers import ours

# By d3rlpy 2.8.1 and TorchRL 0.14.1.
LOSSES = {
  'd3rlpy DiscreteCQL': 4.32393,
  'd3rlpy DiscreteCQL, quantiles': 24.50021,
  'd3rlpy DiscreteBCQ': 4.87747,
  'TorchRL DiscreteCQLLoss': 3.79650,
}


@pytest.mark.parametrize(
  'case',
  [c for c in ours.CASES if c.peer in LOSSES],
  ids=lambda case: case.peer,
)
def test_losses_are_those_of_other_libraries(case):
  loss, gradients = ours.compute_loss(case, ours.draw_inputs(seed=1))
  assert loss == pytest.approx(LOSSES[case.peer], abs=1e-5)
  assert len(gradients) == (6 if 'BCQ' in case.peer else 4)
