"""`python -m batch_rl.report`, from run directories to the files of a report."""

import contextlib
import io
import itertools
import json
import os
import pathlib
import re

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from batch_rl.report import __main__ as report
from batch_rl.report import normalisation, plots
from batch_rl.tests.report import made_up_runs
from batch_rl.utils import staging_directory
from batch_rl.utils.files import read_csv

REM = {'agent': 'multi_head_dqn'}


def make_report(directory, *arguments):
  """Makes a report of `<directory>/runs`; returns its exit code and directory."""
  out = directory / 'report'
  arguments = [str(directory / 'runs'), f'--out={out}', *arguments]
  return report.main(arguments), out


@pytest.fixture
def run(tmp_path, capsys, monkeypatch):
  """Returns a function that makes a report; returns code, output, directory.

  It writes empty files in place of the figures; `many_runs` renders them.
  """

  def write(plot, directory, name):
    del plot
    pathlib.Path(directory, f'{name}.png').touch()
    return '<svg></svg>'

  def make(*arguments):
    monkeypatch.setattr(plots, 'write', write)
    code, out = make_report(tmp_path, *arguments)
    captured = capsys.readouterr()
    return code, captured.out + captured.err, out

  return make


def write_runs(directory):
  """Writes two methods on two games, two runs each, and one run of each odd kind."""
  for (game, scale), i, (name, options, gain) in itertools.product(
    (('Pong', 20), ('Breakout', 100)),
    (1, 2),
    (('dqn', {}, 0.5), ('rem', REM, 1.0)),
  ):
    returns = [scale * gain * x for x in (0.1, 0.9, 0.5 + 0.1 * i)]
    path = directory / name / game / str(i)
    made_up_runs.write(path, returns, game=game, seed=i, data=i, **options)
  made_up_runs.write(directory / 'half', [3.0], seed=9, planned=3, game='Pong')
  made_up_runs.write(directory / 'nan', [np.nan], seed=8)
  (directory / 'empty').mkdir()
  (directory / 'empty' / 'run.json').write_text('{}')
  made_up_runs.write_dopamine_log(directory / 'dopamine', [1.0, 2.0, 4.0])


@pytest.fixture(scope='module')
def many_runs(tmp_path_factory):
  """Makes a report of `write_runs`; returns output and directory."""
  directory = tmp_path_factory.mktemp('many_runs')
  write_runs(directory / 'runs')
  name = f'--name={directory}/runs/dopamine=Rainbow/Pong'
  with contextlib.redirect_stdout(io.StringIO()) as output:
    code, out = make_report(directory, name)
  assert code == 0
  return output.getvalue(), out


def test_excluded_runs_are_printed_with_their_reason(many_runs):
  text, out = many_runs
  for reason in (
    'half: it is under way: 1 of 3 iterations',
    'nan: the return of iteration 0 is not finite',
    'empty: its agent',
    'Rainbow lacks 1 of 2 games',
  ):
    assert reason in text
  left_out = [row for row in read_csv(out / 'runs.csv') if row['left_out']]
  names = {os.path.basename(row['directory']) for row in left_out}
  assert names == {'half', 'nan', 'empty'}
  assert not any(row['method'] for row in left_out)


def test_scores(many_runs):
  _, out = many_runs
  final, best = (
    {(row['method'], row['game']): row for row in read_csv(path)}
    for path in (out / 'scores_final.csv', out / 'scores_best.csv')
  )
  pong = final['REM', 'Pong']
  values = [float(pong[name]) for name in ('mean', 'low', 'high')]
  assert values == pytest.approx([20 * 0.65, 20 * 0.6, 20 * 0.7])
  assert final['Rainbow', 'Pong']['low'] == ''
  assert float(best['REM', 'Breakout']['mean']) == pytest.approx(90)
  online = normalisation.load()['Breakout']['dqn_best']
  assert float(best['Online DQN (reference)', 'Breakout']['mean']) == online


def test_the_tables_agree(many_runs):
  """Each follows from the one before: curves, runs, scores, aggregates."""
  _, out = many_runs
  curves, runs, final, best, aggregated = (
    pd.read_csv(out / f'{name}.csv', dtype={'seed': str})
    for name in ('curves', 'runs', 'scores_final', 'scores_best', 'aggregates')
  )
  runs = runs[runs.left_out.isna()].set_index('directory').sort_index()
  assert (len(runs), len(curves)) == (9, 8 * 3 + 3 + 1)
  recorded = runs[runs.method != 'Rainbow']
  assert (recorded.rom.str.len() == 32).all()
  assert recorded[['seed', 'subset_hash']].notna().all(axis=None)
  assert set(recorded.epsilon) == {'0.001'} and set(recorded.sticky) == {'0.25'}
  curves = curves[curves.finished == 1]
  by_run = curves.groupby('directory')
  best_ones = curves.loc[by_run['return'].idxmax()]
  last = curves[curves.iteration == 2].set_index('directory').sort_index()
  for column, expected in {
    'final': last['return'],
    'best': by_run['return'].max(),
    'best_iteration': best_ones.set_index('directory').iteration,
    'iterations': by_run.size(),
    'episodes_of_final': last.episodes,
    'episodes': by_run.episodes.sum(),
    **{name: by_run[name].first() for name in ('method', 'game', 'data')},
  }.items():
    found, expected = runs[column].fillna(''), expected.sort_index().fillna('')
    assert found.tolist() == expected.tolist(), column
  for scores, kind in ((final, 'final'), (best, 'best')):
    own = scores[~scores.method.str.contains('reference')]
    groups = runs.groupby(['method', 'game'])
    own = own.set_index(['method', 'game']).sort_index()
    np.testing.assert_allclose(own['mean'], groups[kind].mean())
    assert own.runs.tolist() == groups.size().tolist()
    known = normalisation.load()
    for row in scores.itertuples():
      zero, one = (known[row.game][name] for name in ('random', f'dqn_{kind}'))
      found = getattr(row, f'normalised_dqn_{kind}')
      assert found == pytest.approx((row.mean - zero) / (one - zero))
      assert row.score == kind
    for row in aggregated[aggregated.score == kind].itertuples():
      of_game = own.loc[row.method, row.names_of_games]  # Only one.
      assert (row.runs, row.games) == (of_game.runs, 1)
      mean = of_game[f'normalised_{row.normaliser}']
      if row.metric == 'Mean':
        assert row.value == pytest.approx(mean)
        assert row.runs == 1 or row.low <= row.value <= row.high
      elif row.metric.startswith('Games'):
        assert row.value == (mean > 1)


def test_the_page_needs_no_other_file(many_runs):
  text, out = many_runs
  page = (out / 'index.html').read_text()
  assert page.count('<svg') == len(list((out / 'plots').glob('*.png')))
  assert not re.search(r'(src|href)="[^#]|url\((?!#)|@import', page)
  assert 'currentColor' in page and ': #000000' not in page
  answer = re.search(r'class="answer">(.+?)</p>', page)[1]
  assert answer.replace('\N{MINUS SIGN}', '-') in text
  assert 'REM scores highest, ' in answer and ' runs of Pong' in answer
  *first, methods, notes, _, _, last = re.findall('<h2>(.+?)</h2>', page)
  assert first == ['Learning curves', 'Scores', 'Aggregates']
  assert (methods, notes, last) == ('Methods', 'Notes', 'Reference scores')
  assert page.index(answer) < page.index('<h2>')


def test_a_paper_gets_tables_and_a_paragraph(many_runs):
  _, out = many_runs
  aggregated, scores, text = (
    (out / f'{name}.tex').read_text()
    for name in ('aggregates_final_dqn_final', 'scores_final', 'methods')
  )
  assert r'\toprule' in aggregated and r'95~\%' in aggregated
  assert r'\label{tab:aggregates_final_dqn_final}' in aggregated
  assert re.findall(r'^(.+?) & .*textbf', scores, re.M) == ['REM']
  assert '$-$20.2' in scores
  assert '**' in (out / 'scores_final.md').read_text()
  assert 'seeds unknown, 1 and 2' in text and '200 samples' in text
  assert 'epsilon unknown and 0.001' in text


def test_plots(many_runs):
  _, out = many_runs
  names = {path.stem for path in (out / 'plots').glob('*.png')}
  assert names == {path.stem for path in (out / 'plots').glob('*.pdf')}
  assert names == {
    *('curves', 'efficiency_final_dqn_final'),
    *('metrics_final_dqn_final', 'metrics_best_dqn_best'),
    *('profiles_final_dqn_final', 'profiles_best_dqn_best'),
    *('improvement_final_dqn_final', 'improvement_best_dqn_best'),
  }
  for path in (out / 'plots').glob('*.png'):
    image = Image.open(path)
    assert image.width == 1100  # All have the width of a text.
    pixels = np.asarray(image.convert('L'))
    assert pixels.std() > 5 and min(pixels.shape) > 150  # Something is drawn.
    assert pixels[[0, -1]].min() > 250  # Nothing touches the edges.
    assert pixels[:, [0, -1]].min() > 250
    content = path.with_suffix('.pdf').read_bytes()
    assert b'/TrueType' in content or b'/CIDFontType2' in content
    assert b'/Type3' not in content  # Publishers refuse it.


def test_games_and_iterations_can_be_chosen(run, tmp_path):
  write_runs(tmp_path / 'runs')
  code, text, out = run('--games=Pong', '--iterations=1', '--agents=^DQN')
  assert code == 0 and 'Breakout' not in text
  scores = read_csv(out / 'scores_final.csv')
  [dqn] = [row for row in scores if row['method'] == 'DQN (Adam)']
  assert dqn['runs'] == '3'  # Including the run under way.
  assert float(dqn['mean']) == pytest.approx((1.0 + 1.0 + 3.0) / 3)


def test_published_scores_are_beside_those_of_the_same_data(run, tmp_path):
  subsets = 'random_trajectories(0.01)', 'random_trajectories(0.3)'
  for subset in (*subsets, 'best_trajectories(0.01)'):
    made_up_runs.write(tmp_path / 'runs' / subset, [3.0], 'CQL', subset=subset)
  code, text, out = run('--normaliser=gamer')
  assert code == 0 and 'd3rlpy-benchmarks (github.com' in text
  page = (out / 'index.html').read_text()
  assert page.count('Published scores') == page.count('CQL (QR-DQN)') // 2 == 1
  rows = read_csv(out / 'published.csv')
  sources = {row['source'] for row in rows if row['method']}
  assert sources == {'d3rlpy-benchmarks', 'Chen et al., 2021'}
  (found,) = {
    float(row['value'])
    for row in read_csv(out / 'aggregates.csv')
    if (row['normaliser'], row['metric']) == ('gamer', 'Mean')
  }
  assert found == pytest.approx(100 * (3 + 21) / (15 + 21))
  assert (out / 'plots' / 'efficiency_final_gamer.png').exists()
  assert run('--agents=best|0.3')[0] == 0
  assert 'Published' not in (out / 'index.html').read_text()


def test_one_damaged_file_leaves_out_its_run(run, tmp_path):
  made_up_runs.write(tmp_path / 'runs' / 'a', [3.0])
  path = made_up_runs.write(tmp_path / 'runs' / 'b', [3.0], seed=2) / 'run.json'
  path.write_text('[' * 100_000)
  code, text, out = run()
  (line,) = [line for line in text.splitlines() if str(path) in line]
  assert code == 0 and line.startswith('Left out: ') and 'is damaged' in line
  assert len(read_csv(out / 'scores_final.csv')) > 0
  assert f'{path} is damaged' in (out / 'index.html').read_text()
  (tmp_path / 'runs' / 'a' / 'run.json').write_text('[]')
  code, text, _ = run()
  assert code == 2 and text.count('\n') == 1
  assert 'run.json is damaged' in text
  for file in (tmp_path / 'runs').glob('*/run.json'):
    file.unlink()
  code, text, _ = run()
  assert code == 2 and f'{tmp_path}/runs' in text


def test_an_environment_without_normalisers(run, tmp_path):
  """Two methods are equal, and a run is under way."""
  made_up_runs.write(tmp_path / 'runs' / 'c', [3.0, 4.0], planned=9)
  for name, agent in ('a', 'dqn'), ('b', 'bc'):
    path = tmp_path / 'runs' / name
    made_up_runs.write(path, [3.0, 4.0], agent, optimizer='RMSProp')
    record = json.loads((path / 'run.json').read_text())
    record['environment'] = {'game': 'CartPole'}
    (path / 'run.json').write_text(json.dumps(record))
  code, text, out = run()
  assert code == 0 and 'CartPole' in text and 'under way: 2 of 9' in text
  assert 'Highest mean return: DQN (Nature) and bc, in 1 of 1 games.' in text
  assert 'scores: the methods share no game for which' in text


@pytest.mark.parametrize(
  ('arguments', 'message'),
  [
    (['--games=Pnog'], '--games=Pnog'),
    (['--agents=('], '--agents=('),
    (['--iterations=0'], '--iterations=0'),
    (['--name=x'], '--name=x'),
    (['--agents=Nothing'], 'only DQN (Adam), C51.'),
    (['--games=Pong', '--agents=C51'], 'only DQN (Adam).'),
    (['--games=Pong', '--iterations=9'], 'There are no runs to report'),
    (['--iterations=9'], '--iterations=9'),
    (['--name=/no/such=A/B'], '--name=/no/such'),
    (['--out='], 'empty name'),
  ],
)
def test_mistakes(run, tmp_path, arguments, message):
  made_up_runs.write(tmp_path / 'runs' / 'a', [3.0])
  made_up_runs.write(tmp_path / 'runs' / 'b', [3.0], 'c51', game='Breakout')
  code, text, out = run(*arguments)
  assert code == 2 and message in text and text.count('\n') == 1
  assert not out.exists()


def test_a_report_replaces_another(run, tmp_path):
  """A killed one, too, but not one that another process writes."""
  made_up_runs.write(tmp_path / 'runs' / 'a', [3.0])
  made_up_runs.write(tmp_path / 'runs' / 'b', [3.0], agent='c51')
  _, _, out = run()
  assert (out / 'plots' / 'improvement_final_dqn_final.png').exists()
  killed = staging_directory.StagingDirectory(str(out), True)
  (pathlib.Path(killed.create('report')) / 'old.csv').touch()
  code, text, _ = run()
  assert code == 2 and 'report is being written by process' in text
  killed._lock.close()
  assert run('--agents=DQN', '--games=pong')[0] == 0
  assert not (out / 'plots' / 'improvement_final_dqn_final.png').exists()
  assert not (out / 'old.csv').exists()
  assert {path.name for path in tmp_path.iterdir()} == {'report', 'runs'}


def test_names_that_are_paths_not_unicode_or_special_characters(run, tmp_path):
  """They harm neither page nor tables. The folder nearest to a run counts."""
  for folder in ('log', 'minatar'):
    made_up_runs.write_dopamine_log(tmp_path / 'runs/a' / folder, [1.0])
  minatar = f'--name={tmp_path}/runs/a/minatar=DQN/MinAtar/Breakout'
  name = '_<b>A|B< b> $x_1$ & 100% 2²'
  directory = tmp_path / 'runs' / os.fsdecode(b'caf\xff')
  path = made_up_runs.write(directory, [3.0], 'mine.\x1b[31mA\udcff')
  record = (path / 'run.json').read_text()
  record = record.replace("game_name = 'Pong'", "game_name = '../../Pong'")
  record = record.replace('"game": "Pong"', '"game": "../../Pong"')
  (path / 'run.json').write_text(record)
  code, text, out = run(minatar, f'--name={tmp_path}/runs/a={name}/Pong')
  assert code == 0 and 'MinAtar-Breakout' in text, text
  assert (out / 'plots' / 'curves.png').exists()
  assert '&lt;b&gt;A|B' in (out / 'index.html').read_text()
  scores = (out / 'scores_final.md').read_text()
  assert r'&lt;b&gt;A\|B' in scores and '<b>' not in scores
  assert r'\$x\_1\$ \& 100\%' in (out / 'scores_final.tex').read_text()
  assert r'caf\udcff' in (out / 'runs.csv').read_text()
  assert r'mine.\x1b[31mA\udcff' in text and '\x1b' not in text


@pytest.mark.parametrize('name', ['thesis.txt', 'plots/notes.md'])
def test_other_files_are_not_overwritten(run, tmp_path, name):
  made_up_runs.write(tmp_path / 'runs' / 'a', [3.0])
  path = tmp_path / 'report' / name
  path.parent.mkdir(parents=True)
  (tmp_path / 'report' / 'index.html').write_text('A page of mine')
  path.write_text('Chapter 1')
  code, text, _ = run()
  assert code == 2 and name in text
  assert path.read_text() == 'Chapter 1'
