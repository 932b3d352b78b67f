import dataclasses

import numpy as np
import pytest

from batch_rl.dataset.imports import episode_import


def make(*reward, terminal=True, total=None):
  unclipped = np.array(reward, np.float32)
  action = np.zeros(len(reward), np.int32)
  return episode_import.StoredEpisode(
    *('x', True, terminal, action, np.clip(unclipped, -1, 1)),
    *(unclipped, total, None, 0),
  )


@pytest.mark.parametrize(
  'episode, inferred, kept',
  [
    (make(1, 0, total=1), None, {'transition': 2, 'observation': 1}),
    (make(1, 1, terminal=False, total=1), None, {'observation': 2}),
    (make(1, terminal=False), None, {'transition': 0, 'observation': 0}),
    (make(0), None, {'transition': 1, 'observation': 0}),
    (make(1, 3), 'transition', {'transition': 2}),
    (make(2, 3, total=5), 'transition', {'transition': 2}),
    (make(2, 3, 1, total=3), 'transition', {'transition': 3}),  # clipped
    (make(4, 3, total=4), 'observation', {'observation': 1}),
    (make(4, 3, total=1), 'observation', {'observation': 1}),  # clipped
    (make(4, 3, total=9), None, {'transition': 2, 'observation': 1}),
    # The return of a long episode is near that of either kind.
    (make(*[1] * 1501, total=1500), 'observation', {'observation': 1500}),
    (make(2, 1, total=2), None, {'transition': 2}),  # or clipped
  ],
)
def test_last_steps(episode, inferred, kept):
  assert episode.infer_last_step() == inferred
  for last_step, rows in kept.items():
    assert episode.rows_kept(last_step) == rows
  if inferred:
    (other,) = {'transition', 'observation'} - {inferred}
    with pytest.raises(episode_import.LastStepError, match=inferred):
      episode.rows_kept(other)
    rows = len(episode.action) - (other == 'observation')
    assert episode.rows_kept(other, is_chosen=True) == rows


def test_clipped_rewards_are_finite():
  with pytest.raises(ValueError, match='x lacks a finite reward'):
    dataclasses.replace(make(1), reward=np.array([np.nan], np.float32))


class Reader:
  """A reader whose parts are lists of episodes, or errors."""

  last_step = None

  def __init__(self, *parts):
    self.content = parts
    self.parts = [episode_import.Part(i, 'x', 1) for i, _ in enumerate(parts)]

  def read(self, part, frames):
    assert not frames
    if isinstance(content := self.content[part.number], Exception):
      raise content
    yield from content


def test_the_first_part_that_tells_decides():
  silent, tells, damage = [make(0)], [make(4, 3, total=4)], ValueError('damage')
  choose = episode_import.choose_last_step
  for first in (0, 1):
    reader = Reader(*[damage, silent, tells][first:])
    part = reader.parts[1 - first]
    assert choose(reader, 'auto', part) == ('observation', False)
    assert choose(reader, 'transition', part) == ('transition', False)
  reader = Reader(silent, damage)
  assert choose(reader, 'auto', reader.parts[0]) == ('observation', True)
  with pytest.raises(ValueError, match='damage'):
    choose(reader, 'auto', reader.parts[1])
