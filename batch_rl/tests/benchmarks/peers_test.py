"""Losses of other libraries, as `python -um benchmarks.peers` printed them."""

import pytest

from benchmarks.peers import ours

# By d3rlpy 2.8.1 and TorchRL 0.14.1; and the number of arrays with a gradient.
LOSSES = {
  'd3rlpy DiscreteCQL': (4.32393, 4),
  'd3rlpy DiscreteCQL, quantiles': (24.50021, 4),
  'd3rlpy DiscreteBCQ': (4.37305, 8),
  'TorchRL DiscreteCQLLoss': (3.79650, 4),
  'TorchRL DiscreteIQLLoss': (200.14447, 12),
}


@pytest.mark.parametrize('peer', LOSSES)
def test_losses_are_those_of_other_libraries(peer):
  (case,) = (case for case in ours.CASES if case.peer == peer)
  loss, gradients = ours.compute_loss(case, ours.draw_inputs(seed=1))
  expected, count = LOSSES[peer]
  assert loss == pytest.approx(expected, rel=1e-6, abs=1e-5)
  assert len(gradients) == count
