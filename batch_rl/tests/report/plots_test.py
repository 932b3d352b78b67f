"""Layout of the figures."""

import itertools

import pytest

from batch_rl.report import aggregates, comparison, plots, run_results
from batch_rl.tests.report import made_up_runs

REM = {'agent': 'multi_head_dqn', 'transform_strategy': "'STOCHASTIC'"}


@pytest.fixture
def many_methods(tmp_path):
  """Returns a plotter and aggregates of fifteen methods with long names."""
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
  directories, _ = run_results.find_runs([str(tmp_path)])
  compared = comparison.compare(map(run_results.read_run, directories))
  assert min(map(len, compared.methods)) > 70
  summary = aggregates.summarise(compared, 'final', 'dqn_final', 100)
  return plots.Plotter(compared, 100), summary


def test_labels_of_many_methods_do_not_overlap(many_methods):
  plotter, summary = many_methods
  for plot in (
    plotter.metrics(summary),
    plotter.profiles(summary),
    plotter.improvements(summary),
    plotter.efficiency(summary),
    plotter.curves('Pong'),
    plotter.all_curves(),
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
    if len(plot.axes) in (1, 4) and not plot.legends:  # One label per row.
      labels = sorted(texts, key=lambda box: box.y0)[: 15 * len(plot.axes)]
      for below, above in itertools.pairwise(labels):
        assert below.y1 <= above.y0 + 1 or below.y0 == above.y0
