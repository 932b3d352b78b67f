"""The table and figure of the evidence on MinAtar, from made-up runs."""

import csv

import numpy as np
import pandas as pd
import pytest

from batch_rl.dataset.shards import replay_log
from batch_rl.report import comparison, normalisation
from batch_rl.tests.report import made_up_runs
from benchmarks import minatar_scores
from benchmarks.evidence.minatar import results

GAME = 'MinAtar-Breakout'


@pytest.fixture
def work_dir(tmp_path):
  """Two online runs, and offline runs on them and on a part of one."""
  settings = {'game': GAME, 'rom_md5': 'none', 'sticky': 0.1}
  steps = {'training_steps': 400}
  for run in (1, 2):
    path = f'dqn_adam/{GAME}/run-{run}'
    made_up_runs.write(
      tmp_path / 'online' / path, [run, 3, 5], data=None, **settings, **steps
    )
    made_up_runs.write(
      tmp_path / 'offline' / path / 'seed-1',
      [1, 2, 3, run],
      **settings,
      **steps,
    )
  made_up_runs.write(
    tmp_path / 'subsets' / path / 'seed-1',
    [7],
    subset='first_trajectories(0.2)',
    **settings,
    **steps,
  )
  for run, reward in ((1, 1.0), (2, 0.2)):
    with replay_log.ReplayLog(
      str(tmp_path / 'data' / GAME / str(run) / 'replay_logs'),
      (2,),
      np.uint8,
      stack_size=1,
      metadata={'environment': {'game': GAME}, 'seed': 7},
    ) as log:
      for step in range(20):
        log.add(np.zeros(2, np.uint8), 0, reward, step % 5 == 4)
  return tmp_path


def test_results(work_dir):
  results.write(work_dir, work_dir / 'out')
  rows = (work_dir / 'out' / 'summary.md').read_text().splitlines()
  cells = {
    tuple(row.split(' | ')[:2]): row.split(' | ')[2] for row in rows[4:9]
  }
  assert cells == {
    ('| random actions', ''): '0.54 |',
    ('| mean of the data', ''): '3.00 (1.00, 5.00) |',
    ('| DQN (Adam), online', ''): '5.00 (5.00, 5.00) |',
    ('| DQN (Adam)', 'all'): '1.50 (1.00, 2.00) |',
    ('| DQN (Adam)', 'first_trajectories(0.2)'): '7.00 |',
  }
  whole, parts = (i for i, row in enumerate(rows) if 'above the data' in row)
  above_data = [row.split(' | ')[-1] for row in rows[whole + 2 : whole + 4]]
  assert above_data == ['1 of 2 |', '1 of 2 |']
  assert [row.split(' | ')[0] for row in rows[parts + 2 :]] == [
    '| DQN (Adam) [subset=all]',
    '| DQN (Adam) [subset=first_trajectories(0.2)]',
  ]
  with open(work_dir / 'out' / 'evaluations.csv') as file:
    evaluations = list(csv.DictReader(file))
  assert len(evaluations) == 2 * 3 + 2 * 4 + 1
  assert evaluations[1]['updates'] == '200'
  with open(work_dir / 'out' / 'data.csv') as file:
    data, _ = csv.DictReader(file)
  assert (data['game'], data['run'], data['agent_steps']) == (GAME, '1', '20')
  assert (data['episodes'], data['mean_return']) == ('4', '5.0')
  assert (work_dir / 'out' / 'minatar.png').stat().st_size > 0


def make_run(agent, run, score, subset='all', game=GAME):
  """Returns rows of evaluations: a run of two."""
  rows = [(agent, game, run, subset, n, score * n) for n in (0, 1)]
  return pd.DataFrame(rows, columns=[*results.RUN, 'updates', 'mean_return'])


DATA = pd.DataFrame({'game': GAME, 'run': [1, 2, 3], 'mean_return': 2.0})


def test_aggregates():
  """Normalised scores are those of the report: 0 is random, 1 the online DQN."""
  zero, one = (
    normalisation.load()[GAME][name] for name in ('random', 'dqn_final')
  )
  runs = [
    make_run(agent, run, score, subset)
    for run in (1, 2, 3)
    for agent, score, subset in (
      ('DQN (Adam), online', one, ''),
      ('BC', zero, 'all'),
      ('DQN (Adam)', (zero + one) / 2, 'all'),
    )
  ]

  def rows_of(runs):
    compared = comparison.compare(results.as_runs(pd.concat(runs)))
    text = results.aggregates_table(compared, DATA)
    return [row.split(' | ') for row in text.splitlines()[4:] if row]

  nothing, certain = '0.00 [0.00, 0.00]', '1.00 [1.00, 1.00]'
  assert rows_of(runs) == [
    ['| DQN (Adam)', '0.50 [0.50, 0.50]', nothing, '', '3 of 3 |'],
    ['| BC', nothing, nothing, nothing, '0 of 3 |'],
    ['| DQN (Adam), online', certain, '', certain, '3 of 3 |'],
  ]
  assert ['| DQN (Adam)', '0.50', '1 of 1 |'] in rows_of(runs[:3])
  elsewhere = make_run('BC', 1, zero, game='MinAtar-Asterix')
  [*_, [note]] = rows_of([*runs, elsewhere])
  assert ' lacks 1 of 2 games' in note


def test_parts_of_the_data_are_compared_after_as_many_updates(tmp_path):
  runs = [make_run('BC', run, 5.0) for run in (1, 2, 3)]
  runs += [make_run('REM', 1, 5.0)]
  part = make_run('BC', 1, 7.0, 'random_trajectories(0.1)')
  longer = [
    make_run('BC', run, 5.0).assign(updates=[2, 3]) for run in (1, 2, 3)
  ]
  pd.concat([*runs, *longer, part]).to_csv(
    tmp_path / 'evaluations.csv', index=False
  )
  DATA.to_csv(tmp_path / 'data.csv', index=False)
  results.write(tmp_path / 'nothing', tmp_path)
  *_, table = (tmp_path / 'summary.md').read_text().split('| --- ')
  rows = [row.split(' | ') for row in table.splitlines()[1:]]
  zero, one = (
    normalisation.load()[GAME][name] for name in ('random', 'dqn_final')
  )
  expected = [f'{(score - zero) / (one - zero):.2f}' for score in (5, 7)]
  assert [(name, value[:4]) for name, value, *_ in rows] == [
    ('| BC [subset=all]', expected[0]),
    ('| BC [subset=random_trajectories(0.1)]', expected[1]),
  ]


def test_new_runs_replace_their_rows_and_keep_others(tmp_path):
  path = tmp_path / 'evaluations.csv'
  first = pd.concat([make_run('BC', 1, 1.0), make_run('BC', 2, 2.0)])
  results.update(path, first, results.RUN)
  shorter = make_run('BC', 2, 3.0)[1:]
  online = make_run('BC', 2, 4.0, subset='')
  updated = results.update(path, pd.concat([shorter, online]), results.RUN)
  found = updated[['run', 'subset', 'mean_return']].to_numpy().tolist()
  assert found == [
    [1, 'all', 0.0],
    [1, 'all', 1.0],
    [2, '', 0.0],
    [2, '', 4.0],
    [2, 'all', 3.0],
  ]
  text = path.read_bytes()
  again = results.update(path, first[:0], results.RUN)
  assert again.equals(updated) and path.read_bytes() == text


def test_table_of_settings(tmp_path):
  for rate, value in ((0.1, 3), (0.2, 5)):
    made_up_runs.write(
      tmp_path / f'settings/dqn_adam/learning_rate={rate},epsilon=1/run-1',
      [1, value],
      game=GAME,
      rom_md5='none',
      sticky=0.1,
    )
  assert results.settings_table(tmp_path).splitlines()[2:] == [
    '| learning_rate 0.1, epsilon 1 | 3.00 | 3.00 |',
    '| learning_rate 0.2, epsilon 1 | 5.00 | 5.00 |',
  ]


def test_scores_of_online_runs(work_dir, capsys):
  final, best = minatar_scores.online_scores(str(work_dir))
  assert (final.score, final.value) == ('dqn_final', 5)
  assert (best.game, best.value, best.standard_error) == (GAME, 5, 0)
  assert '2 runs of 3 iterations' in final.source
  with pytest.raises(ValueError, match='no finished run of an online DQN'):
    minatar_scores.online_scores(str(work_dir / 'offline'))
  made_up_runs.write(
    work_dir / 'online' / 'longer',
    [1] * 4,
    game=GAME,
    rom_md5='none',
    data=None,
  )
  with pytest.raises(ValueError, match='runs of 3 and of 4 iterations of MinA'):
    minatar_scores.online_scores(str(work_dir))
