import math

import pytest

from batch_rl.atari import roms
from batch_rl.report import normalisation, published
from batch_rl.utils.files import read_csv

ONE_PERCENT = 'random_trajectories(0.01)'


def records(compared):
  (table,), notes = published.beside(compared)
  assert all(table.text['game'])  # Sorting by a column moves rows.
  return table.records, notes


def test_every_figure_has_a_source_a_game_and_one_value():
  folder = normalisation.SCORES_DIRECTORY
  rows = read_csv(folder / 'published_sources.csv')
  assert all(row['seen_in'] for row in rows)
  sources = {row['source'] for row in rows}
  figures = read_csv(folder / 'published.csv')
  keys = [tuple(row.values())[:5] + (row['source'],) for row in figures]
  assert len(set(keys)) == len(keys)
  for row in figures:
    assert row['source'] in sources and row['checkpoint'] in ('final', 'best')
    assert row['game'] == roms.canonical_name(row['game'])
    assert math.isfinite(float(row['value'])), row
    assert row['measure'] in ('return', 'gamer-normalised')


def test_gamer_normalised_figures_become_returns():
  found = published.load()['Breakout', 0.01]
  shown = {(s.method, s.source): s.returns for s in found}
  mean, spread = shown['Decision Transformer', 'Chen et al., 2021']['final']
  # Gamer 30, random 2; published: 267.5 ± 97.5.
  assert mean == pytest.approx(2 + 267.5 * 28 / 100)
  assert spread == pytest.approx(97.5 * 28 / 100)
  assert shown['REM', 'Chen et al., 2021']['final'][1] is None
  assert shown['NFQ', 'd3rlpy-benchmarks']['best'] == (6.4, 1.0)


@pytest.mark.parametrize(
  ('options', 'share'),
  [
    ({}, 1.0),
    ({'subset': 'random_trajectories(0.01)'}, 0.01),
    ({'subset': 'random_trajectories(seed=3, fraction=0.1)'}, 0.1),
    ({'subset': 'first_trajectories(0.01)', 'shards': 50}, 0.01),
    ({'subset': 'first_trajectories(0.01)', 'shards': 11}, None),
    ({'subset': 'first_of_shards(0.01)'}, 0.01),
    ({'subset': 'first_fraction(0.01)'}, None),
    ({'subset': 'first_transitions(500000)'}, None),
    ({'subset': 'best_trajectories(0.01)'}, None),
    ({'subset': 'shards(0, 9) & random_trajectories(0.01)'}, None),
    ({'subset': 'of_another_version(0.01)'}, None),
    ({'subset': 'random_trajectories(0.01)', 'data': None}, None),
  ],
)
def test_share_of_the_data(compare, options, share):
  ((_, run),) = compare(([1.0], options)).runs
  assert published.share(run) == share


def test_methods_are_matched_by_name(compare):
  options = {'agent': 'CQL', 'subset': ONE_PERCENT}
  compared = compare(
    *[([1.0, x, 5.0], {'seed': x, **options}) for x in (7, 9)],
    ([2.0, 3.0, 4.0], {'agent': 'Mine', 'subset': ONE_PERCENT}),
    ([2.0], {'agent': 'BC', 'subset': ONE_PERCENT, 'game': 'Alien'}),
  )
  found, _ = records(compared)
  assert {row['game'] for row in found} == {'Pong'}
  cql = [row for row in found if row['method'] == 'CQL']
  assert {row['published_method'] for row in cql} == {'CQL (QR-DQN)'}
  sources = {row['source'] for row in cql}
  assert sources == {'d3rlpy-benchmarks', 'Chen et al., 2021'}
  for row in cql:
    assert (row['runs'], row['final'], row['best']) == ('2', 5.0, 8.0)
    assert row['best_spread'] == pytest.approx(math.sqrt(2))
  (mine,) = [row for row in found if row['method'] == 'Mine']
  assert mine['published_method'] == mine['source'] == ''
  assert mine['final_spread'] is mine['published_final'] is None
  others = {row['published_method'] for row in found if not row['method']}
  published_there = {s.method for s in published.load()['Pong', 0.01]}
  assert others == published_there - {'CQL (QR-DQN)'}


def test_notes_name_differences_and_gaps(compare):
  options = {'subset': ONE_PERCENT, 'sticky': 0.0, 'epsilon_eval': 0.01}
  compared = compare(([1.0, 2.0], options))
  _, (own, benchmarks, chen) = records(compared)
  assert 'best is of 2 evaluations' in own
  assert 'sticky 0.25 (own: 0.0)' in benchmarks
  assert 'epsilon 0.001 (own: 0.01)' in benchmarks
  assert benchmarks.endswith('Unknown: rom.')
  assert 'sticky' not in chen.partition('Differs in')[2]
  assert f'(own: {ONE_PERCENT})' in chen
