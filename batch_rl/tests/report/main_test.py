"""`python -m batch_rl.report`, from runs on disk to what a reader gets."""

import csv
import itertools
import json
import re

import numpy as np
import pytest
from PIL import Image

from batch_rl.report import __main__ as report
from batch_rl.report import (
  aggregates,
  comparison,
  normalisation,
  plots,
  run_results,
)
from batch_rl.tests.report import made_up_runs, run_results_test

REM = {'agent': 'multi_head_dqn', 'transform_strategy': "'STOCHASTIC'"}


@pytest.fixture
def run(tmp_path, capsys):
  """Returns a function that makes a report; returns code, output, directory."""

  def make(*arguments):
    out = tmp_path / 'report'
    arguments = [str(tmp_path / 'runs'), f'--out={out}', *arguments]
    code = report.main([*arguments, '--repetitions=100'])
    captured = capsys.readouterr()
    return code, captured.out + captured.err, out

  return make


@pytest.fixture
def many_runs(tmp_path):
  """Two methods, two games, two runs each, and one of everything odd."""
  for game, scale in (('Pong', 20), ('Breakout', 100)):
    for i in (1, 2):
      for name, options, gain in (('dqn', {}, 0.5), ('rem', REM, 1.0)):
        returns = [scale * gain * x for x in (0.1, 0.9, 0.5 + 0.1 * i)]
        made_up_runs.write(
          tmp_path / 'runs' / name / game / str(i),
          returns,
          game=game,
          seed=i,
          data=i,
          **options,
        )
  made_up_runs.write(
    tmp_path / 'runs' / 'half', [3.0], seed=9, planned=3, game='Pong'
  )
  made_up_runs.write(tmp_path / 'runs' / 'nan', [np.nan], seed=8)
  (tmp_path / 'runs' / 'empty').mkdir()
  (tmp_path / 'runs' / 'empty' / 'run.json').write_text('{}')
  run_results_test.write_dopamine_log(
    tmp_path / 'runs' / 'dopamine', [1.0, 2.0, 4.0]
  )
  return tmp_path / 'runs'


def rows(path):
  with path.open(newline='') as file:
    return list(csv.DictReader(file))


def test_a_report(run, many_runs):
  code, text, out = run(f'--name={many_runs}/dopamine=Rainbow/Pong')
  assert code == 0
  # Every oddity is named with its reason.
  assert re.search(r'half: is under way: 1 of 3 iterations', text)
  assert re.search(r'nan: the return of iteration 0 is nan', text)
  assert re.search(r'empty: it does not say its agent', text)
  assert 'Rainbow lacks 1 of 2 games' in text
  scores = {
    (row['method'], row['game']): row for row in rows(out / 'scores_final.csv')
  }
  pong = scores['REM', 'Pong']
  assert float(pong['mean']) == pytest.approx(20 * 0.65)
  assert float(pong['low']) == pytest.approx(20 * 0.6)
  assert float(pong['high']) == pytest.approx(20 * 0.7)
  expected = normalisation.normalise(np.array(13.0), 'Pong', 'dqn_final')
  assert float(pong['normalised_dqn_final']) == pytest.approx(float(expected))
  assert scores['Rainbow', 'Pong']['low'] == ''
  best = {
    (row['method'], row['game']): row for row in rows(out / 'scores_best.csv')
  }
  assert float(best['REM', 'Breakout']['mean']) == pytest.approx(90)
  online = normalisation.load()['Breakout']['dqn_best']
  assert float(best['Online DQN', 'Breakout']['mean']) == online
  # The record of what makes each result comparable.
  record = rows(out / 'runs.csv')
  counted = [row for row in record if row['method']]
  assert len(counted) == 9
  for row in counted:
    if row['method'] != 'Rainbow':
      assert row['epsilon'] == '0.001' and row['sticky'] == '0.25'
      assert len(row['rom']) == 32 and row['subset_hash'] and row['seed']
      assert row['episodes_of_final'] == '2' and row['normalisers'] == '1'
  left_out = {
    row['directory'].rsplit('/', 1)[-1]: row['left_out']
    for row in record
    if not row['method']
  }
  assert left_out.keys() == {'half', 'nan', 'empty'}
  assert len(rows(out / 'curves.csv')) == 8 * 3 + 3 + 1
  aggregated = rows(out / 'aggregates.csv')
  assert {row['metric'] for row in aggregated} >= {
    'IQM',
    'Median',
    'Mean',
    'Optimality gap',
    'Games above online DQN',
  }
  for row in aggregated:
    if row['method'] != 'Rainbow':
      assert row['seeds'] and row['subset_hashes'] and row['epsilon'] == '0.001'
    assert row['rom'] and row['episodes']
    assert row['names_of_games'] == 'Pong'


def test_the_files_of_a_report(run, many_runs):
  code, _, out = run('--agents=DQN|REM')
  assert code == 0
  page = (out / 'index.html').read_text()
  assert page.count('<img') == page.count('src="data:image/png;base64,')
  assert 'http' not in re.sub(r'base64,[^"]*', '', page)  # needs nothing else
  assert 'under way' in page and 'IQM' in page
  names = {path.stem for path in (out / 'plots').glob('*.png')}
  assert names == {path.stem for path in (out / 'plots').glob('*.pdf')}
  assert names >= {
    'metrics_final_dqn_final',
    'metrics_best_dqn_best',
    'profiles_final_dqn_final',
    'improvement_best_dqn_best',
    'efficiency_final_dqn_final',
    'curves',
    'curves_Pong',
    'curves_Breakout',
  }
  for path in (out / 'plots').glob('*.png'):
    pixels = np.asarray(Image.open(path).convert('L'))
    assert pixels.std() > 5 and min(pixels.shape) > 150  # something is drawn
    assert pixels[[0, -1]].min() > 250  # and nothing is cut off
    assert pixels[:, [0, -1]].min() > 250
  assert r'\toprule' in (out / 'aggregates.tex').read_text()
  assert (out / 'scores_best.md').read_text().count('\n| ') >= 3
  assert '## Left out' in (out / 'report.md').read_text()


def test_the_same_runs_give_the_same_report(run, many_runs):
  _, _, out = run()
  first = (out / 'aggregates.csv').read_bytes()
  _, _, out = run()
  assert (out / 'aggregates.csv').read_bytes() == first


def test_games_and_iterations_can_be_chosen(run, many_runs):
  code, text, out = run('--games=Pong', '--iterations=1', '--agents=^DQN')
  assert code == 0 and 'Breakout' not in text
  scores = rows(out / 'scores_final.csv')
  [dqn] = [row for row in scores if row['method'] == 'DQN (Adam)']
  assert dqn['runs'] == '3'  # the one under way has got so far
  assert float(dqn['mean']) == pytest.approx((1.0 + 1.0 + 3.0) / 3)


def test_only_runs_under_way(run, tmp_path):
  made_up_runs.write(tmp_path / 'runs' / 'a', [3.0, 4.0], planned=9)
  code, text, out = run()
  assert code == 0 and 'under way: 2 of 9' in text
  assert (out / 'plots' / 'curves_Pong.png').exists()


def test_an_environment_without_normalisers(run, tmp_path):
  path = made_up_runs.write(tmp_path / 'runs' / 'a', [3.0, 4.0])
  record = json.loads((path / 'run.json').read_text())
  record['environment'] = {}
  record['gin_config'] = record['gin_config'].replace(
    "create_atari_environment.game_name = 'Pong'",
    "create_gym_environment.environment_name = 'CartPole'",
  )
  (path / 'run.json').write_text(json.dumps(record))
  code, text, out = run()
  assert code == 0 and 'without a dqn_final score: CartPole' in text
  assert (out / 'plots' / 'curves_CartPole.png').exists()


@pytest.mark.parametrize(
  ('arguments', 'message'),
  [
    (['--games=Pnog'], '--games=Pnog: there is no run of Pnog, but of Pong'),
    (['--agents=('], '--agents=( is not a regular expression'),
    (['--iterations=0'], '--iterations=0'),
    (['--name=x'], "--name=x is not 'DIR=AGENT'"),
    (['--agents=Nothing'], 'No run can be reported on'),
    (['--name=/no/such=A/B'], 'there is no run in /no/such'),
  ],
)
def test_mistakes(run, tmp_path, arguments, message):
  made_up_runs.write(tmp_path / 'runs' / 'a', [3.0])
  code, text, out = run(*arguments)
  assert code == 2 and message in text and text.count('\n') == 1
  assert not out.exists()


def test_a_report_takes_the_place_of_one(run, tmp_path):
  made_up_runs.write(tmp_path / 'runs' / 'a', [3.0])
  made_up_runs.write(tmp_path / 'runs' / 'b', [3.0], game='Breakout')
  _, _, out = run()
  assert (out / 'plots' / 'curves_Breakout.png').exists()
  code, _, out = run('--games=pong')
  assert code == 0 and not (out / 'plots' / 'curves_Breakout.png').exists()
  assert not list(tmp_path.glob('*partial*'))


def test_nothing_else_is_overwritten(run, tmp_path):
  made_up_runs.write(tmp_path / 'runs' / 'a', [3.0])
  (tmp_path / 'report').mkdir()
  (tmp_path / 'report' / 'thesis.txt').write_text('Chapter 1')
  code, text, out = run()
  assert code == 2 and 'is no report' in text
  assert (out / 'thesis.txt').read_text() == 'Chapter 1'


def test_names_with_signs(run, tmp_path):
  name = '_<b>A|B</b> $x_1$ & 100%'
  for i in (1, 2):
    run_results_test.write_dopamine_log(tmp_path / 'runs' / str(i), [1.0 + i])
  code, _, out = run(
    f'--name={tmp_path}/runs={name.replace("/", " ")}/Pong', '--iterations=1'
  )
  assert code == 0
  assert '&lt;b&gt;A|B' in (out / 'index.html').read_text()
  assert r'A\|B' in (out / 'scores_final.md').read_text()
  assert r'\$x\_1\$ \& 100\%' in (out / 'scores_final.tex').read_text()


def test_labels_of_many_methods_do_not_overlap(many_methods):
  compared, summary, style = many_methods
  for plot in (
    plots.of_metrics(summary, style),
    plots.of_profiles(summary, style, 100),
    plots.of_improvements(summary, 100),
    plots.of_efficiency(compared, summary, style, 100),
    plots.of_game(compared, 'Pong', style, 100),
    plots.of_games(compared, style, 100),
  ):
    plot.draw_without_rendering()
    page = plot.bbox
    texts = [
      text.get_window_extent()
      for ax in plot.axes
      if ax.get_visible()
      for text in ax.get_yticklabels()
      if text.get_text()
    ]
    axes = [ax.get_window_extent() for ax in plot.axes if ax.get_visible()]
    for legend in plot.legends:
      box = legend.get_window_extent()
      assert page.x0 <= box.x0 and box.x1 <= page.x1
      assert page.y0 <= box.y0 and box.y1 <= page.y1
      assert not any(box.overlaps(other) for other in axes)
    if len(plot.axes) in (1, 4) and not plot.legends:  # a label a row
      labels = sorted(texts, key=lambda box: box.y0)[: 15 * len(plot.axes)]
      for below, above in itertools.pairwise(labels):
        assert below.y1 <= above.y0 + 1 or below.y0 == above.y0


@pytest.fixture
def many_methods(tmp_path):
  """Fifteen methods with long names."""
  for i in range(15):
    for game in ('Pong', 'MontezumaRevenge'):
      made_up_runs.write(
        tmp_path / f'{i}{game}',
        [1.0 + i, 2.0 + i],
        game=game,
        num_heads=i,
        num_convex_combinations=i,
        subset=f'random_trajectories(0.{i + 1})',
        **REM,
      )
  directories, _ = run_results.find([str(tmp_path)])
  compared = comparison.compare(map(run_results.read, directories))
  assert min(map(len, compared.runs)) > 70
  summary = aggregates.summarise(compared, 'final', 'dqn_final', 100)
  return compared, summary, plots.Style(list(compared.runs))


def test_nothing_to_report(run, tmp_path):
  code, text, _ = run()
  assert code == 2 and 'not a directory' in text
  (tmp_path / 'runs').mkdir()
  code, text, _ = run()
  assert code == 2 and 'No runs in' in text
