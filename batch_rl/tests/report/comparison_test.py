"""Grouping of runs into methods, and the selection of scores."""

import collections
import re

import numpy as np
import pytest

from batch_rl.atari import roms
from batch_rl.report import (
  aggregates,
  comparison,
  normalisation,
  plots,
  run_results,
)
from batch_rl.tests.report import made_up_runs

REM = {'agent': 'multi_head_dqn'}


def counts(rows):
  """Returns the number of runs by method and game."""
  return collections.Counter((method, run.game) for method, run in rows)


def test_seeds_and_data_are_averaged(compare):
  speed = {'updates_per_run': 50, 'tf_device': "'/gpu:0'"}
  own = {'arguments': {'wind': 3}}  # Another environment in another game.
  compared = compare(
    ([1.0, 3.0, 2.0], {'seed': 1, 'data': 1, **speed}),
    ([1.0, 0.0, 4.0], {'seed': 2, 'data': 2}),
    ([7.0, 7.0, 7.0], {'seed': 1, 'data': 1, 'game': 'Breakout', **own}),
  )
  final = {'Pong': [2.0, 4.0], 'Breakout': [7.0]}
  assert compared.scores('final') == {'DQN (Adam)': final}
  assert compared.scores('best')['DQN (Adam)']['Pong'] == [3.0, 4.0]
  assert compared.games == ['Breakout', 'Pong'] and not compared.excluded


@pytest.mark.parametrize(
  ('options', 'name'),
  [
    ({'gamma': 0.9}, 'gamma=0.9'),
    ({'sticky': 0.0}, 'sticky=0.0'),
    ({'subset': 'first(0.1)'}, 'subset=first(0.1)'),
    ({'rom_md5': 'ab' * 16}, 'rom=abababab'),
    ({'seed': 1, 'described': {'map': 1, 'wind': 3}}, 'wind=3'),
    ({'described': {'map': 1, 'goal': [0, 1, 0]}}, 'goal=[0, 1, 0]'),
    ({'arguments': {'game': 'pong', 'gravity': 2.0}}, 'gravity=2.0'),
    ({'init_checkpoint_dir': '/x'}, "weights=another run's"),
    ({'subset_hash': 'b', 'root': '/other'}, 'data=/other'),
  ],
)
def test_a_difference_makes_another_method(compare, options, name):
  one = {'seed': 1, 'described': {'map': 1} if 'described' in options else {}}
  compared = compare(([1.0], one), ([2.0], {'seed': 2, **options}))
  assert len(compared.methods) == len(compared.runs) == 2
  assert any(f'[{name}]' in method for method in compared.methods)
  assert compared.games == ['Pong']


def test_runs_share_a_method_if_all_its_settings_are_equal(compare):
  """Seeds, data, directories and speed may differ."""
  random = np.random.default_rng(0)
  of_method = dict(agent=('dqn', 'c51'), gamma=(0.9, 0.99))
  of_method |= dict(batch_size=(8, 16, 32), sticky=(0.0, 0.25))
  of_method |= dict(epsilon_eval=(0.01, 0.001), subset=(None, 'first(0.1)'))
  of_method['planned'] = 1, 2
  others = {'data': (1, 2), 'root': ('/a', '/b'), 'updates_per_run': (1, 50)}
  chosen = []
  for seed in range(60):
    options = {
      name: values[random.integers(len(values))]
      for name, values in {**of_method, **others}.items()
    }
    chosen.append(([1.0], {'seed': seed, **options}))
  compared = compare(*chosen)
  every = compared.runs + compared.unfinished
  names = {run.seed: method for method, run in every}
  methods = {}
  for _, options in chosen:
    key = tuple(options[name] for name in of_method)
    methods.setdefault(key, set()).add(names[str(options['seed'])])
  assert len(names) == 60 > len(methods) > 40
  assert all(len(found) == 1 for found in methods.values())
  assert len(set.union(*methods.values())) == len(methods)


def test_another_rom_splits_one_game_only(compare):
  current = roms.md5s('Amidar')['current']
  compared = compare(
    ([1.0], {'game': 'Amidar', 'seed': 1}),
    ([2.0], {'game': 'Amidar', 'seed': 2, 'rom_md5': current}),
    ([3.0], {'game': 'Pong'}),
  )
  assert counts(compared.runs) == {
    ('DQN (Adam)', 'Amidar'): 1,
    ('DQN (Adam)', 'Pong'): 1,
    ("DQN (Adam) [rom=ale-py's]", 'Amidar'): 1,
  }


def test_the_first_iterations_can_be_compared(compare):
  """Otherwise, another length is another method; a run under way has the planned."""
  runs = [
    ([1.0, 5.0], {'seed': 1}),
    ([2.0, 9.0, 3.0], {'seed': 2}),
    ([4.0], {'seed': 3, 'planned': 2}),
  ]
  compared = compare(*runs)
  short, long = 'DQN (Adam) [iterations=2]', 'DQN (Adam) [iterations=3]'
  assert compared.methods == [short, long]
  assert counts(compared.unfinished) == {(short, 'Pong'): 1}
  [(_, why)] = compared.excluded
  assert '1 of 2 iterations' in why
  runs = [run for _, run in compared.runs + compared.unfinished]
  compared = comparison.compare(runs, 2)
  assert compared.scores('final') == {'DQN (Adam)': {'Pong': [5.0, 9.0]}}
  [(_, why)] = compared.excluded
  assert '1 iterations, not --iterations=2' in why
  with pytest.raises(ValueError, match='iterations=0: give at least 1'):
    comparison.compare(runs, 0)
  for kind, normaliser in ('done', 'human'), ('final', 'humann'):
    with pytest.raises(ValueError, match="kind 'done'|normaliser 'humann'"):
      aggregates.summarise(compared, kind, normaliser)


def test_a_repeated_run_counts_once(compare, tmp_path):
  """The longest finished one does; runs from other weights or code are others."""
  weights = [{'init_checkpoint_dir': f'/runs/{name}'} for name in 'ab']
  compared = compare(
    ([1.0, 2.0], {}),
    ([1.0], {'root': '/moved', 'data': 2, 'subset_hash': 'Pong 1 None'}),
    ([1.0, 2.0, 3.0], {'planned': 5}),  # A copy that goes on.
    *[([1.0, 2.0], {'seed': 5, **options}) for options in weights],
    *[([1.0, 2.0], {'seed': 6, 'code': {'own': digits}}) for digits in 'ab'],
    *[([1.0, 2.0], {'seed': None, 'data': 2})] * 2,  # unseeded
  )
  assert [run.done for _, run in compared.runs] == [2] * 7
  assert sorted(counts(compared.runs).values()) == [2, 5]
  assert [r[:12] for _, r in compared.excluded] == ['duplicate of'] * 2
  copies = [run_results.read_run(str(tmp_path / f'run{i}')) for i in (0, 2)]
  assert [run.done for _, run in comparison.compare(copies, 3).runs] == [3]
  with pytest.raises(ValueError, match='run2: duplicate of .*/run0'):
    plots.learning_curves(tmp_path / 'run0', tmp_path / 'run2')


def test_logs_of_different_length_are_not_averaged(tmp_path):
  runs = []
  logs = {'a': [1.0, 2.0], 'b': [3.0], 'c': [1.0, 2.0], 'd': [0.0, 0.0]}
  for name, returns in (logs | {'e': [0.0, 0.0]}).items():
    made_up_runs.write_dopamine_log(tmp_path / name, returns)
    runs.append(run_results.read_run(str(tmp_path / name), 'Rainbow', 'Pong'))
  compared = comparison.compare(runs)
  names = ('Rainbow [iterations=1]', 1), ('Rainbow [iterations=2]', 3)
  assert counts(compared.runs) == {(name, 'Pong'): n for name, n in names}
  [(_, reason)] = compared.excluded  # c is a copy of a; d and e may not be.
  assert 'duplicate of' in reason


def test_methods_are_in_the_order_of_the_paper_and_of_numbers(compare):
  rem = [{**REM, 'seed': n, 'num_heads': n} for n in (100, 9, 20)]
  others = {'agent': 'quantile'}, {'optimizer': 'RMSProp'}, {}
  settings = {'data': None}, *rem, *others
  compared = compare(*[([1.0], options) for options in settings])
  assert [re.sub(r' \[.*=', ' ', name) for name in compared.methods] == [
    *('DQN (Nature)', 'DQN (Adam)', 'QR-DQN'),
    *('REM 9]', 'REM 20]', 'REM 100]', 'DQN (Adam), online'),
  ]


def test_aggregates_are_over_the_games_that_all_methods_share(compare):
  compared = compare(
    ([5.0], {'seed': 1}),
    ([9.0], {'seed': 2}),
    ([6.0], {'seed': 1, 'game': 'Breakout'}),
    ([7.0], {'seed': 1, 'agent': 'c51'}),
    ([8.0], {'seed': 1, 'game': 'Breakout', 'agent': 'c51'}),
    ([8.0], {'seed': 1, 'game': 'Alien', 'agent': 'c51'}),
    ([8.0], {'seed': 1, 'game': 'CartPole', 'rom_md5': 'ab' * 16}),
  )
  found = aggregates.summarise(compared, 'final', 'dqn_final')
  assert found.games == ['Breakout', 'Pong']
  expected = [
    normalisation.normalise(value, game, 'dqn_final')
    for value, game in ((6.0, 'Breakout'), (5.0, 'Pong'))
  ]
  np.testing.assert_allclose(found.scores['DQN (Adam)'], [expected])
  assert found.metrics['DQN (Adam)'].value[-1] == 0  # Games above the DQN.
  notes = ' '.join(found.notes)
  assert 'DQN (Adam) lacks 1 of 3 games' in notes and 'Alien' in notes
  assert 'has only 1 of up to 2 runs of Breakout; further runs of' in notes
  assert 'games without this score do not count: CartPole' in notes


def test_no_common_games(compare):
  compared = compare(([1.0], {}), ([1.0], {'game': 'Alien', 'agent': 'c51'}))
  found = aggregates.summarise(compared, 'final', 'dqn_final')
  assert not found.scores and '--agents' in ' '.join(found.notes)
  assert found.sample == 'no game'
