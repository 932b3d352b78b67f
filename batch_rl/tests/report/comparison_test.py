"""Grouping of runs into methods, and the selection of scores."""

import re

import numpy as np
import pytest

from batch_rl.atari import roms
from batch_rl.report import comparison, normalisation, run_results
from batch_rl.tests.report import made_up_runs


def counts(runs):
  """Returns the number of runs, `{method: {game: number}}`."""
  return {
    method: {game: len(group) for game, group in by_game.items()}
    for method, by_game in runs.items()
  }


def test_seeds_and_data_are_averaged(compare):
  compared = compare(
    ([1.0, 3.0, 2.0], {'seed': 1, 'data': 1}),
    ([1.0, 0.0, 4.0], {'seed': 2, 'data': 2}),
    ([7.0, 7.0, 7.0], {'seed': 1, 'data': 1, 'game': 'Breakout'}),
  )
  assert counts(compared.runs) == {'DQN (Adam)': {'Pong': 2, 'Breakout': 1}}
  final, best = compared.scores('final'), compared.scores('best')
  assert final['DQN (Adam)']['Pong'].tolist() == [2.0, 4.0]
  assert best['DQN (Adam)']['Pong'].tolist() == [3.0, 4.0]
  assert compared.games == ['Breakout', 'Pong'] and not compared.excluded


@pytest.mark.parametrize(
  ('options', 'name'),
  [
    ({'gamma': 0.9}, 'gamma=0.9'),
    ({'epsilon_eval': 0.05}, 'epsilon=0.05'),
    ({'sticky': 0.0}, 'sticky=0.0'),
    ({'subset': 'first(0.1)'}, 'subset=first(0.1)'),
    ({'rom_md5': 'ab' * 16}, 'rom=abababab'),
    ({'init_checkpoint_dir': '/x'}, "weights=another run's"),
  ],
)
def test_a_difference_makes_another_method(compare, options, name):
  compared = compare(([1.0], {'seed': 1}), ([2.0], {'seed': 2, **options}))
  assert len(compared.runs) == len(compared.methods) == 2
  assert any(f'[{name}]' in method for method in compared.methods)
  assert compared.games == ['Pong']


def test_no_difference_is_hidden(compare):
  """Each combination is a separate method, however many settings differ."""
  first = {'gamma': 0.9, 'num_heads': 50, 'update_horizon': 1, 'batch_size': 8}
  compared = compare(
    ([1.0], {'seed': 1, **first}),
    ([2.0], {'seed': 2, **first}),
    ([100.0], {'seed': 3, **first, 'subset': 'first(0.1)'}),
    ([100.0], {'seed': 4, **first, 'batch_size': 16}),
    (
      [3.0],
      {'gamma': 0.8, 'num_heads': 20, 'update_horizon': 2, 'batch_size': 32},
    ),
  )
  scores = [
    by_game['Pong'].tolist() for by_game in compared.scores('final').values()
  ]
  assert sorted(scores) == [[1.0, 2.0], [3.0], [100.0], [100.0]]
  assert any('subset=first(0.1)' in method for method in compared.methods)


def test_another_rom_splits_one_game_only(compare):
  md5s = roms.md5s('Amidar')
  compared = compare(
    ([1.0], {'game': 'Amidar', 'seed': 1}),
    ([2.0], {'game': 'Amidar', 'seed': 2, 'rom_md5': md5s['current']}),
    ([3.0], {'game': 'Pong'}),
    ([4.0], {'game': 'Asterix'}),
  )
  assert counts(compared.runs) == {
    'DQN (Adam)': {'Amidar': 1, 'Asterix': 1, 'Pong': 1},
    "DQN (Adam) [rom=ale-py's]": {'Amidar': 1},
  }


def test_different_data_with_the_same_name(compare):
  compared = compare(
    ([1.0], {'seed': 1, 'subset_hash': 'a'}),
    ([2.0], {'seed': 2, 'subset_hash': 'a'}),
    ([3.0], {'seed': 1, 'subset_hash': 'b', 'root': '/other/random'}),
  )
  assert counts(compared.runs) == {
    'DQN (Adam) [data=/data]': {'Pong': 2},
    'DQN (Adam) [data=/other/random]': {'Pong': 1},
  }


def test_another_length_is_another_method(compare):
  described = ([1.0, 5.0], {'seed': 1}), ([2.0, 9.0, 3.0], {'seed': 2})
  compared = compare(*described)
  assert compared.methods == [
    'DQN (Adam) [iterations=2]',
    'DQN (Adam) [iterations=3]',
  ]


def test_the_first_iterations_can_be_compared(compare):
  compared = compare(
    ([1.0, 5.0], {'seed': 1}),
    ([2.0, 9.0, 3.0], {'seed': 2}),
    ([4.0], {'seed': 3, 'planned': 3}),
    iterations=2,
  )
  assert counts(compared.runs) == {'DQN (Adam)': {'Pong': 2}}
  assert compared.scores('final')['DQN (Adam)']['Pong'].tolist() == [5.0, 9.0]
  [(_, why)] = compared.excluded
  assert 'has 1 iterations, not --iterations=2' in why


def test_speed_and_device_do_not_count(compare):
  compared = compare(
    ([1.0], {'seed': 1, 'updates_per_run': 50, 'tf_device': "'/gpu:0'"}),
    ([1.0], {'seed': 2, 'updates_per_run': 1, 'tf_device': "'/cpu:0'"}),
  )
  assert compared.methods == ['DQN (Adam)']


def test_runs_under_way_do_not_count(compare):
  compared = compare(
    ([1.0, 2.0], {'seed': 1}), ([1.0], {'seed': 2, 'planned': 2})
  )
  assert counts(compared.runs) == {'DQN (Adam)': {'Pong': 1}}
  assert counts(compared.unfinished) == {'DQN (Adam)': {'Pong': 1}}
  [(_, why)] = compared.excluded
  assert '1 of 2 iterations' in why


@pytest.mark.parametrize(
  ('shorter', 'end'), [([1.0], 'seed'), ([3.0], 'seed, but other returns')]
)
def test_a_repeated_run_counts_once(compare, shorter, end):
  """The longer one counts; the reason says whether the returns are equal."""
  compared = compare(([1.0, 2.0], {}), (shorter, {}))
  assert counts(compared.runs) == {'DQN (Adam)': {'Pong': 1}}
  assert [run.done for _, run in comparison.rows(compared.runs)] == [2]
  [(_, reason)] = compared.excluded
  assert reason.endswith(f'same settings and {end}')


def test_runs_from_different_weights_both_count(compare):
  compared = compare(
    *[([1.0], {'init_checkpoint_dir': f'/runs/{name}'}) for name in 'ab']
  )
  [games] = counts(compared.runs).values()
  assert games == {'Pong': 2} and not compared.excluded


def test_a_copy_that_was_continued_with_other_settings_counts(compare):
  compared = compare(
    ([1.0, 2.0], {'gamma': 0.9}),
    ([1.0, 3.0], {'gamma': 0.5}),
    ([1.0, 2.0], {'gamma': 0.9, 'root': '/moved'}),
  )
  assert len(compared.methods) == 2
  [(_, reason)] = compared.excluded
  assert 'repeats' in reason


def test_logs_of_different_length_are_not_averaged(tmp_path):
  runs = []
  for name, returns in (('a', [1.0, 2.0]), ('b', [3.0]), ('c', [1.0, 2.0])):
    made_up_runs.write_dopamine_log(tmp_path / name, returns)
    runs.append(run_results.read_run(str(tmp_path / name), 'Rainbow', 'Pong'))
  compared = comparison.compare(runs)
  assert counts(compared.runs) == {
    'Rainbow [iterations=1]': {'Pong': 1},
    'Rainbow [iterations=2]': {'Pong': 1},
  }
  assert 'repeats' in compared.excluded[0][1]  # c is a copy of a


def test_methods_are_sorted_by_number(compare):
  compared = compare(
    *[([1.0], {'seed': n, 'num_heads': n}) for n in (100, 9, 20)]
  )
  assert [re.findall(r'\d+', name) for name in compared.methods] == [
    ['9'],
    ['20'],
    ['100'],
  ]


def test_methods_are_in_the_order_of_the_paper(compare):
  rem = {'agent': 'multi_head_dqn', 'transform_strategy': "'STOCHASTIC'"}
  compared = compare(
    ([1.0], {'data': None}),
    ([1.0], rem),
    ([1.0], {'agent': 'quantile'}),
    ([1.0], {'optimizer': 'RMSProp'}),
    ([1.0], {}),
  )
  assert compared.methods == [
    'DQN (Nature)',
    'DQN (Adam)',
    'QR-DQN',
    'REM',
    'DQN (Adam), online',
  ]


def test_matrices_have_the_games_that_all_methods_share(compare):
  compared = compare(
    ([5.0], {'seed': 1}),
    ([9.0], {'seed': 2}),
    ([6.0], {'seed': 1, 'game': 'Breakout'}),
    ([7.0], {'seed': 1, 'agent': 'c51'}),
    ([8.0], {'seed': 1, 'game': 'Breakout', 'agent': 'c51'}),
    ([8.0], {'seed': 1, 'game': 'Alien', 'agent': 'c51'}),
  )
  found = comparison.matrices(compared, 'final', 'dqn_final')
  assert found.games == ['Breakout', 'Pong']
  expected = [
    normalisation.normalise(np.array([value]), game, 'dqn_final')[0]
    for value, game in ((6.0, 'Breakout'), (5.0, 'Pong'))
  ]
  np.testing.assert_allclose(found.scores['DQN (Adam)'], [expected])
  assert found.scores['C51'].shape == (1, 2)
  notes = ' '.join(found.notes)
  assert 'DQN (Adam) lacks 1 of 3 games' in notes and 'Alien' in notes
  assert 'the first 1 count' in notes


def test_a_method_of_few_games_does_not_remove_the_others(compare):
  games = ('Pong', 'Breakout', 'Seaquest')
  compared = compare(
    *[([1.0], {'game': game}) for game in games],
    ([1.0], {'game': 'Pong', 'agent': 'c51'}),
  )
  found = comparison.matrices(compared, 'final', 'dqn_final')
  assert found.games == sorted(games) and list(found.scores) == ['DQN (Adam)']
  assert 'C51 has 1 of 3 games and is left out' in found.notes


def test_methods_without_common_games(compare):
  compared = compare(([1.0], {}), ([1.0], {'game': 'Alien', 'agent': 'c51'}))
  found = comparison.matrices(compared, 'final', 'dqn_final')
  assert not found.scores and 'choose with --agents' in ' '.join(found.notes)


def test_environments_without_normalisers(compare):
  compared = compare(([5.0], {}))
  [by_game] = compared.runs.values()
  by_game['CartPole'] = by_game.pop('Pong')
  found = comparison.matrices(compared, 'final', 'human')
  assert found.scores == {} and 'CartPole' in found.notes[0]
