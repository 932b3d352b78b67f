"""The answer of a report, and its paragraph for a paper."""

import pytest

from batch_rl.report import aggregates, methods


@pytest.mark.parametrize('score', [1.0, 1.03])  # normalised, 0.001 more
def test_a_tie_has_no_winner(compare, score):
  compared = compare(([score], {}), ([1.0], {'agent': 'c51'}))
  summary = aggregates.summarise(compared, 'final', 'dqn_final')
  answer, _ = methods.answer(compared, summary)
  assert ', as much as C51, ' in answer and 'highest' not in answer


def test_a_short_online_run(compare):
  text = methods.paragraph(compare(([1.0], {'data': None})), ['dqn_final'])
  assert (
    'is 1 (seeds 1). The number of iterations of a run is 1, and an' in text
  )
