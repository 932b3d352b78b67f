"""Subsets of stores: the rows that can be drawn, and the hash of the data."""

import dataclasses

import numpy as np
import pytest

from batch_rl.dataset.sampling import sampler, sequences, subsets
from batch_rl.tests import ring_logs, shards
from batch_rl.tests.dataset.store import stores
from batch_rl.tests.known_runs import open_store


@pytest.mark.parametrize('count', [1, 30, 31, 198, 199, 1 << 63])
def test_first_and_last_transitions_are_exact(known_run, opened, count):
  every = np.flatnonzero(known_run.is_step).tolist()
  for kind, expected in ('first', every[:count]), ('last', every[-count:]):
    draws = sampler.Sampler(opened, 4, subset=f'{kind}_transitions({count})')
    assert draws.valid_rows().tolist() == expected


def hash_of(packed, text=None):
  return sampler.Sampler(packed, 4, subset=text).subset_hash()


# Hash, selected trajectories and number of their steps. Published results name subset
# and hash, so none may change. NumPy promises that the numbers of PCG64 stay the same,
# but not what `Generator.permutation` makes of them (NEP 19).
PINNED = {
  None: ('583541641c7c4a49', range(12), 161),
  'random_trajectories(0.5)': ('d3345362d0e6ed28', [2, 4, 5, 7, 9, 11], 69),
  'shards(1, 3) & random_trajectories(0.5, seed=2)': (
    '6fe919fa85253a9d',
    [5, 6, 8],
    43,
  ),
  'best_trajectories(0.5)': ('8f3f6a3f3fa7bc40', [1, 2, 4, 5, 8, 11], 83),
  'worst_trajectories(0.3)': ('7e4a855c43b9481f', [0, 3, 6, 9], 49),
  'first_transitions(60)': ('cde08a93d8f0cdce', range(5), 60),
  'first_of_shards(0.3)': ('54ccd9154668102a', [0, 3, 5, 6, 8, 9], 48),
  'first_fraction(0.2)': ('f35d86204bbe7d9b', range(3), 32),
  'last_fraction(0.2)': ('e1c1dab4b1fc2389', range(9, 12), 32),
}


@pytest.fixture(scope='module')
def fixed(tmp_path_factory):
  """A run of twelve episodes that no generator of random numbers has made."""
  directory = tmp_path_factory.mktemp('fixed')
  episodes = [
    [
      shards.Row(1 + step, step % 3, (episode * step) % 3 - 1.0, step == last)
      for step in range(last + 1)
    ]
    for episode, last in enumerate([9, 14, 6, 21, 11, 17, 8, 12, 19, 7, 15, 10])
  ]
  ring_logs.write_run(directory, shards.with_padding(episodes, 4), capacity=50)
  return open_store(directory)


@pytest.mark.parametrize('text', PINNED)
def test_subsets_and_hashes_are_those_of_earlier_versions(fixed, text):
  data = subsets.trajectories(fixed)
  chosen = data if text is None else subsets.select(data, text)
  digits, selected, num_steps = PINNED[text]
  assert chosen.selected.tolist() == list(selected)
  assert chosen.num_steps == num_steps
  assert hash_of(fixed, text) == digits


def test_the_hash_depends_on_the_selection_not_on_the_text(opened):
  for one, other in (
    ('shards(0,2)', ' shards(first=0, stop=2)'),
    ('random_trajectories(0.5)', 'random_trajectories(0.5, seed=0)'),
    ('first_transitions(60)', 'first_transitions(70) & first_transitions(60)'),
    ('shards(0)', None),
    ('last_transitions(1000)', None),
    ('trajectories_by_return(highest=1)', 'trajectories_by_return(-9, 1.5)'),
    (' trajectories_by_return( 2.5 )', 'trajectories_by_return(3, 99)'),
    ('random_trajectories(1.0)', None),
  ):
    assert hash_of(opened, one) == hash_of(opened, other), one


@pytest.mark.parametrize('column', ['action', 'reward', 'terminal'])
def test_other_data_has_another_hash(known_run, opened, tmp_path, column):
  """The selected rows are the same, their contents are not."""
  changed, old = list(known_run.rows), known_run.rows[100]
  value = {'action': 7, 'reward': old.reward + 1, 'terminal': 1}[column]
  changed[100] = dataclasses.replace(old, **{column: value})
  ring_logs.write_run(tmp_path, changed, capacity=50)
  other = open_store(tmp_path)
  for text in (None, 'shards(0, 2)', 'first_transitions(60)'):
    assert hash_of(other, text) != hash_of(opened, text)
  some = open_store(known_run.directory, suffixes=[0, 2])
  assert hash_of(some) != hash_of(opened)


def test_subsets_are_the_same_if_frames_are_damaged(tmp_path, monkeypatch):
  """Two of the six trajectories are within shard 1, and others reach into it."""
  shards.write_run(tmp_path, [30, 25, 5, 6, 60, 33], capacity=50)
  whole = open_store(tmp_path)
  stores.damage_frames(monkeypatch, 1)
  packed = open_store(tmp_path, skip_damaged=True)
  assert packed.damaged == {1}
  assert sampler.Sampler(whole, 4).num_trajectories == 6
  assert sampler.Sampler(packed, 4).num_trajectories == 4  # drawn from
  for half in ('best_trajectories(0.5)', 'worst_trajectories(0.5)'):
    chosen = sampler.Sampler(packed, 4, subset=half)
    intact = sampler.Sampler(whole, 4, subset=half)
    assert [*chosen.trajectories.selected] == [*intact.trajectories.selected]
    assert 0 < chosen.num_transitions < intact.num_transitions
    assert sequences.SequenceSampler(packed, 3, subset=half).num_steps
