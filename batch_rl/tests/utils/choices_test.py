"""Names chosen from a list."""

import pytest

from batch_rl.utils import choices


def test_an_unknown_choice_names_the_nearest():
  assert choices.choose('agent', 'dqn', ['dqn', 'quantile']) == 'dqn'
  with pytest.raises(ValueError, match='did you mean quantile'):
    choices.choose('agent', 'quantil', ['dqn', 'quantile'])
  with pytest.raises(ValueError, match='choose a, b'):
    choices.choose('agent', 'zzzz', ['b', 'a'])
