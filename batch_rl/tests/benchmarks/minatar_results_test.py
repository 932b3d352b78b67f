"""The table and figure of the evidence on MinAtar, from made-up runs."""

import csv
import shutil

import numpy as np
import pandas as pd
import pytest

from batch_rl.dataset.shards import replay_log
from batch_rl.report import normalisation
from batch_rl.tests.report import made_up_runs
from benchmarks import minatar_scores
from benchmarks.evidence.minatar import results

GAME = 'MinAtar-Breakout'


@pytest.fixture(autouse=True)
def _few_bootstrap_samples(monkeypatch):
  monkeypatch.setattr(results, 'REPETITIONS', 100)


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


def rows_of(text):
  """Returns the rows of each Markdown table in a text: `{first cell: others}`."""
  tables = [block for block in text.split('\n\n') if block.startswith('| ')]
  rows = [[r.strip('| ') for r in t.splitlines()[2:]] for t in tables]
  return [{r.split(' | ')[0]: r.split(' | ')[1:] for r in t} for t in rows]


def test_results(work_dir):
  results.write(work_dir, work_dir / 'out')
  text = (work_dir / 'out' / 'summary.md').read_text()
  assert 'offline agents after 400 updates, online agents after 300' in text
  assert 'offline agents after 100 updates.' in text  # Parts of the data.
  returns, compared, returns_of_parts, parts = rows_of(text)
  assert returns == {
    'random actions': ['', '0.54'],
    'mean of the data': ['', '3.00 (1.00, 5.00)'],
    'DQN (Adam), online': ['', '5.00 (5.00, 5.00)'],
    'DQN (Adam)': ['all', '1.50 (1.00, 2.00)'],
  }
  above = {name: cells[-1] for name, cells in compared.items()}
  assert above == dict.fromkeys(['DQN (Adam)', 'DQN (Adam), online'], '1 of 2')
  assert returns_of_parts['DQN (Adam)'] == ['first_trajectories(0.2)', '7.00']
  assert list(parts) == [
    'DQN (Adam), all',
    'DQN (Adam), first_trajectories(0.2)',
  ]
  with open(work_dir / 'out' / 'evaluations.csv') as file:
    evaluations = list(csv.DictReader(file))
  assert len(evaluations) == 2 * 3 + 2 * 4 + 1
  assert [row['updates'] for row in evaluations[:3]] == ['100', '200', '300']
  with open(work_dir / 'out' / 'data.csv') as file:
    data, _ = csv.DictReader(file)
  assert (data['game'], data['run'], data['agent_steps']) == (GAME, '1', '20')
  assert (data['episodes'], data['mean_return']) == ('4', '5.0')
  assert (work_dir / 'out' / 'minatar.png').stat().st_size > 0


def test_the_record_suffices(work_dir, capsys):
  out = work_dir / 'out'
  results.write(work_dir, out)
  before = {path.name: path.read_bytes() for path in out.iterdir()}
  results.write(work_dir / 'nothing', out)
  assert 'nothing has no runs' in capsys.readouterr().out
  assert {path.name: path.read_bytes() for path in out.iterdir()} == before


def make_run(agent, run, score, subset='all', game=GAME, count=2):
  """Returns rows of evaluations: a run with a score in the last one."""
  rows = [
    (agent, game, run, subset, n, score * (n == count))
    for n in range(1, count + 1)
  ]
  return pd.DataFrame(rows, columns=[*results.RUN, 'updates', 'mean_return'])


def make_data(**columns):
  return pd.DataFrame({'game': GAME, 'run': [1, 2, 3], **columns})


DATA = make_data(
  seed=7, agent_steps=20, mean_return=2.0, fingerprint=['0012', '0345', '6789']
)
ZERO, ONE = (
  normalisation.load()[GAME][name] for name in ('random', 'dqn_final')
)


def test_aggregates():
  """Normalised scores are those of the report: 0 is random, 1 the online DQN."""
  runs = [
    make_run(agent, run, score, subset)
    for run in (1, 2, 3)
    for agent, score, subset in (
      ('DQN (Adam), online', ONE, ''),
      ('BC', ZERO, 'all'),
      ('DQN (Adam)', (ZERO + ONE) / 2, 'all'),
    )
  ]
  references = 'DQN (Adam), online', 'DQN (Adam)', 'C51'
  text = results.section(pd.concat(runs), DATA, references)
  _, compared = rows_of(text)
  nothing, certain = '0.00 [0.00, 0.00]', '1.00 [1.00, 1.00]'
  assert compared == {
    'DQN (Adam)': ['0.50 [0.50, 0.50]', nothing, '', '3 of 3'],
    'BC': [nothing, nothing, nothing, '0 of 3'],
    'DQN (Adam), online': [certain, '', certain, '3 of 3'],
  }
  _, single = rows_of(results.section(pd.concat(runs[:3]), DATA, references))
  assert single['DQN (Adam)'] == ['0.50', '1 of 1']
  elsewhere = make_run('BC', 1, ZERO, game='MinAtar-Asterix')
  text = results.section(pd.concat([*runs, elsewhere]), DATA)
  assert 'DQN (Adam) lacks 1 of 2 games' in text
  text = results.section(pd.concat([runs[0], elsewhere]), DATA)
  assert len(rows_of(text)) == 1  # There is nothing to compare.


def test_runs_are_compared_after_equally_many_updates():
  runs = [make_run('BC', 1, 5.0, count=3), make_run('REM', 1, 7.0, count=5)]
  runs.append(make_run('DQN (Adam), online', 1, 9.0, subset='', count=1))
  text = results.section(pd.concat(runs), DATA)
  assert 'offline agents after 3 updates, online agents after 1 updates' in text
  returns, compared = rows_of(text)
  assert returns['BC'] == ['all', '5.00'] and returns['REM'] == ['all', '0.00']
  assert compared['REM'][0] == f'{(0 - ZERO) / (ONE - ZERO):.2f}'


def test_new_runs_replace_shorter_ones_and_others_are_kept(capsys):
  subset = "best_trajectories(0.1, by='a, b')"
  first = pd.concat(
    [make_run('BC', 10, 1.00004), make_run('BC', 2, 2.0, subset)]
  )
  recorded = results.add_evaluations(first[:0], first)
  longer = make_run('BC', 2, 3.0, subset, count=3)
  online = make_run('BC', 2, 4.0, subset='', count=1)
  found = results.add_evaluations(recorded, pd.concat([longer, online]))
  assert found[['run', 'subset', 'mean_return']].to_numpy().tolist() == [
    [2, '', 4.0],
    [2, subset, 0.0],
    [2, subset, 0.0],
    [2, subset, 3.0],
    [10, 'all', 0.0],
    [10, 'all', 1.0],
  ]
  assert not capsys.readouterr().out
  shorter = make_run('BC', 2, 8.0, subset, count=1)
  for new in first[:0], shorter:
    assert results.add_evaluations(found, new).equals(found)
  assert 'kept as recorded: BC' in capsys.readouterr().out
  with pytest.raises(
    ValueError, match='several runs of BC on MinAtar-Breakout 2'
  ):
    results.add_evaluations(found, pd.concat([longer, longer]))


def test_data_may_grow_but_not_differ():
  more = DATA.assign(run=[1, 4, 5], fingerprint=['0012', '1', '2'])
  found = results.add_data(DATA, more)
  assert found.fingerprint.tolist() == ['0012', '0345', '6789', '1', '2']
  grown = DATA.assign(fingerprint='9', agent_steps=30)
  assert results.add_data(DATA, grown).equals(grown)
  assert results.add_data(grown, DATA).equals(grown)
  for other in (
    DATA.assign(fingerprint='9'),
    DATA.assign(fingerprint='9', agent_steps=30, seed=8),
  ):
    with pytest.raises(
      ValueError, match='The data of MinAtar-Breakout 1 are not'
    ):
      results.add_data(DATA, other)


def test_a_contradiction_leaves_the_record(work_dir):
  out = work_dir / 'out'
  with pytest.raises(ValueError, match='no evaluations in .*nothing'):
    results.write(work_dir / 'nothing', out)
  assert not out.exists()
  results.write(work_dir, out)
  before = {path.name: path.read_bytes() for path in out.iterdir()}
  shutil.rmtree(work_dir / 'data')
  (work_dir / 'offline/dqn_adam' / GAME / 'run-2').rename(
    work_dir / 'offline/dqn_adam' / GAME / 'run-7'
  )
  with pytest.raises(
    ValueError, match='runs on MinAtar-Breakout 7, whose data are'
  ):
    results.write(work_dir, out)
  assert {path.name: path.read_bytes() for path in out.iterdir()} == before


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
