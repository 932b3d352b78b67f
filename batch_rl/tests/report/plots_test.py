"""Layout of the figures."""

import itertools

import matplotlib

from batch_rl.report import aggregates, plots

REM = {'agent': 'multi_head_dqn', 'transform_strategy': "'STOCHASTIC'"}


def test_labels_of_many_methods_do_not_overlap(compare):
  """Fifteen methods with long names."""
  described = []
  for i, game in itertools.product(range(15), ('Pong', 'MontezumaRevenge')):
    heads = {'num_heads': i, 'num_convex_combinations': i}
    subset = rf'random_trajectories(0.{i + 1}) $\frac$'
    options = {'game': game, 'subset': subset, **heads, **REM}
    described.append(([1.0 + i, 2.0 + i], options))
  compared = compare(*described)
  assert min(map(len, compared.methods)) > 70
  summary = aggregates.summarise(compared, 'final', 'dqn_final')
  with matplotlib.rc_context(plots.PARAMETERS):
    drawn = list(plots.Plotter(compared).figures([summary]))
  assert len(drawn) == 5
  for _, _, plot in drawn:
    plot.draw_without_rendering()
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
      assert len(legend.get_texts()) >= 15
      assert not any(box.overlaps(other) for other in axes)
    if not plot.legends:  # One label per row.
      labels = sorted(texts, key=lambda box: box.y0)[: 15 * len(plot.axes)]
      for below, above in itertools.pairwise(labels):
        assert below.y1 <= above.y0 + 1 or below.y0 == above.y0
