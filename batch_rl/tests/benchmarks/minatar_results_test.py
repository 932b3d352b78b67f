"""The table and figure of the evidence on MinAtar, from made-up runs."""

import csv

import numpy as np
import pytest

from batch_rl.dataset.shards import replay_log
from batch_rl.report import normalisation
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
  above_data = [row.split(' | ')[-1] for row in rows[-2:]]
  assert above_data == ['1 of 2 |', '1 of 2 |']
  with open(work_dir / 'out' / 'evaluations.csv') as file:
    evaluations = list(csv.DictReader(file))
  assert len(evaluations) == 2 * 3 + 2 * 4 + 1
  assert evaluations[1]['updates'] == '200'
  with open(work_dir / 'out' / 'data.csv') as file:
    data, _ = csv.DictReader(file)
  assert (data['game'], data['run'], data['agent_steps']) == (GAME, '1', '20')
  assert (data['episodes'], data['mean_return']) == ('4', '5.0')
  assert (work_dir / 'out' / 'minatar.png').stat().st_size > 0


def make_run(agent, number, score, subset='all'):
  return results.Run(agent, GAME, number, subset, np.ones(1), np.array([score]))


def make_data(number):
  return results.Data(GAME, number, 1, 20, 4, 2.0, 0.1, '')


def test_aggregates():
  """Normalised scores are those of the report: 0 is random, 1 the online DQN."""
  zero, one = (
    normalisation.load()[GAME][name] for name in ('random', 'dqn_final')
  )
  runs = [make_run('DQN (Adam), online', k, one, subset='') for k in (1, 2, 3)]
  runs += [make_run('BC', k, zero) for k in (1, 2, 3)]
  runs += [make_run('DQN (Adam)', k, (zero + one) / 2) for k in (1, 2, 3)]
  runs += [make_run('BC', 1, 100, subset='random_trajectories(0.1)')]
  text = results.aggregates_table(runs, [make_data(k) for k in (1, 2, 3)])
  cells = [row.split(' | ') for row in text.splitlines()[4:]]
  nothing, certain = '0.00 [0.00, 0.00]', '1.00 [1.00, 1.00]'
  assert cells == [
    ['| DQN (Adam), online', certain, '', certain, '3 of 3 |'],
    ['| DQN (Adam)', '0.50 [0.50, 0.50]', nothing, '', '3 of 3 |'],
    ['| BC', nothing, nothing, nothing, '0 of 3 |'],
  ]
  assert not results.aggregates_table(runs[3:], [])
  single = results.aggregates_table(runs[::3], [make_data(1)])
  assert '| DQN (Adam) | 0.50 | 1 of 1 |' in single


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
