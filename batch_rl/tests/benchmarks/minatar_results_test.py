"""The table and figure of the evidence on MinAtar, from made-up runs."""

import shutil

import numpy as np
import pandas as pd
import pytest

from batch_rl.dataset.shards import replay_log
from batch_rl.report import aggregates
from batch_rl.tests.report import made_up_runs
from benchmarks import minatar_scores
from benchmarks.evidence.minatar import results

GAME = 'MinAtar-Breakout'


@pytest.fixture(autouse=True)
def _few_bootstrap_samples(monkeypatch):
  monkeypatch.setattr(aggregates, 'REPETITIONS', 100)


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


def test_results_whose_record_suffices_and_is_kept(work_dir):
  out = work_dir / 'out'
  with pytest.raises(ValueError, match='nothing'):
    results.write(work_dir / 'nothing', out)
  results.write(work_dir, out)
  text = (out / 'summary.md').read_text()
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
  evaluations = made_up_runs.read_csv(out / 'evaluations.csv')
  assert len(evaluations) == 2 * 3 + 2 * 4 + 1
  assert [row['updates'] for row in evaluations[:3]] == ['100', '200', '300']
  data, _ = made_up_runs.read_csv(out / 'data.csv')
  assert (data['game'], data['run'], data['agent_steps']) == (GAME, '1', '20')
  assert (data['episodes'], data['mean_return']) == ('4', '5.0')
  assert (out / 'minatar.png').stat().st_size > 0

  before = {path.name: path.read_bytes() for path in out.iterdir()}
  results.write(work_dir / 'nothing', out)
  shutil.rmtree(work_dir / 'data')
  folder = work_dir / 'offline/dqn_adam' / GAME
  (folder / 'run-2').rename(folder / 'run-7')
  with pytest.raises(ValueError, match='MinAtar-Breakout 7'):
    results.write(work_dir, out)
  assert {path.name: path.read_bytes() for path in out.iterdir()} == before
  found = pd.read_csv(out / 'evaluations.csv', keep_default_na=False)
  shorter = found.groupby(results.RUN).head(2)
  for old, new in (found, shorter), (shorter, found):
    assert results.add_evaluations(old, new).equals(found)
  with pytest.raises(ValueError, match='MinAtar-Breakout 1'):
    results.add_evaluations(found, pd.concat([found, found]))
  data = pd.read_csv(out / 'data.csv', dtype={'fingerprint': str})
  with pytest.raises(ValueError, match='MinAtar-Breakout 1'):
    results.add_data(data, data.assign(fingerprint='9'))


def test_scores_of_online_runs(work_dir):
  final, best = minatar_scores.online_scores(str(work_dir))
  assert (final.score, final.value) == ('dqn_final', 5)
  assert (best.game, best.value, best.standard_error) == (GAME, 5, 0)
  with pytest.raises(ValueError, match='offline'):
    minatar_scores.online_scores(str(work_dir / 'offline'))
