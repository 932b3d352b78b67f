"""The answer of a report, and its paragraph for a paper."""

import pytest

from batch_rl.report import aggregates, comparison, methods


@pytest.mark.parametrize('score', [1.0, 1.03])  # normalised, 0.001 more
def test_a_tie_has_no_winner(compare, score):
  compared = compare(([score], {}), ([1.0], {'agent': 'c51'}))
  summary = aggregates.summarise(compared, 'final', 'dqn_final')
  answer, _ = methods.answer(compared, summary)
  assert ', as much as C51, ' in answer and 'highest' not in answer


def test_a_game_of_one_method_has_no_winner(compare):
  runs = ([1.0], {}), ([1.0], {'game': 'Alien', 'agent': 'c51'})
  compared = compare(*runs, ([2.0], {'agent': 'c51'}))
  assert 'C51, in 1 of 1 games.' in methods.answer(compared, None)[0]
  compared = comparison.compare(r for _, r in compared.runs if r.final < 2)
  assert 'share a game' in methods.answer(compared, None)[0]


def test_a_short_online_run(compare):
  text = methods.paragraph(compare(([1.0], {'data': None})), ['dqn_final'])
  assert 'is 1 (seeds 1). The number of iterations of a run is 1, and' in text
