"""Layout of the figures, and the numbers that they show."""

import itertools

import matplotlib

from batch_rl.report import aggregates, normalisation, plots, tables

REM = {'agent': 'multi_head_dqn'}


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
  (caption,) = [text for name, text, _ in drawn if 'improvement' in name]
  assert f'over {next(iter(summary.scores))} only, as' in caption
  assert len(tables.improvement_records([summary])) == 15 * 14 / 2
  for name, _, plot in drawn:
    has_bars = name.startswith(('metrics', 'improvement'))
    assert len(plot.legends) == (not has_bars)
    plot.draw_without_rendering()
    shown = [ax for ax in plot.axes if ax.get_visible()]
    ticks = [tick for ax in shown for tick in ax.get_yticklabels()]
    texts = [tick.get_window_extent() for tick in ticks if tick.get_text()]
    axes = [ax.get_window_extent() for ax in shown]
    for legend in plot.legends:
      box = legend.get_window_extent()
      assert len(legend.get_texts()) >= 15
      assert not any(box.overlaps(other) for other in axes)
    if not plot.legends:  # One label per row.
      labels = sorted(texts, key=lambda box: box.y0)[: 15 * len(plot.axes)]
      for below, above in itertools.pairwise(labels):
        assert below.y1 <= above.y0 + 1 or below.y0 == above.y0


def lines_of(ax):
  return {line.get_label(): line.get_ydata() for line in ax.get_lines()}


def test_the_figures_show_the_numbers(compare):
  compared = compare(
    ([1.0, 3.0, 5.0], {'seed': 1, 'data': 1}),
    ([2.0, 5.0, 7.0], {'seed': 2, 'data': 2}),
    ([4.0, 0.0, 4.0], {'agent': 'c51'}),
    ([9.0], {'agent': 'c51', 'seed': 2, 'planned': 3}),
    ([10.0, 20.0, 30.0], {'game': 'Breakout'}),
    ([40.0, 50.0, 60.0], {'game': 'Breakout', 'agent': 'c51'}),
  )
  summary = aggregates.summarise(compared, 'final', 'dqn_final')
  figures = plots.Plotter(compared).figures([summary])
  drawn = {name.split('_')[0]: plot for name, _, plot in figures}
  for plot in drawn.values():
    plot.draw_without_rendering()
    for ax in plot.axes:
      assert min(ax.bbox.width, ax.bbox.height) > 0.3 * plot.dpi  # Inches.
  breakout, pong = drawn['curves'].axes
  assert (breakout.get_title(), pong.get_title()) == ('Breakout', 'Pong')
  found, known = lines_of(pong), normalisation.load()['Pong']
  assert found['DQN (Adam)'].tolist() == [1.5, 4.0, 6.0]
  assert found['C51'].tolist() == [4.0, 0.0, 4.0]
  assert found['C51, under way'].tolist() == [9.0]
  assert set(found['random (reference)']) == {known['random']}
  assert set(found['online DQN, final (reference)']) == {known['dqn_final']}
  (band,) = pong.collections  # Of the two runs.
  bounds = band.get_paths()[0].get_extents()
  assert (bounds.y0, bounds.y1) == (1.0, 7.0)

  for method, estimate in summary.metrics.items():
    row = len(summary.metrics) - 1 - list(summary.metrics).index(method)
    for ax, value in zip(drawn['metrics'].axes, estimate.value, strict=False):
      ends = [line.get_xdata()[0] for line in ax.get_lines()]
      heights = [line.get_ydata().mean() for line in ax.get_lines()]
      assert dict(zip(heights, ends, strict=True))[row] == value
  (ax,) = drawn['profiles'].axes
  assert all(curve[0] == 1 for curve in lines_of(ax).values())
  (ax,) = drawn['improvement'].axes
  pairs = aggregates.improvements(summary.scores).values()
  shown = [line.get_xdata()[0] for line in ax.get_lines()[:-1]]
  assert shown == [estimate.value[0] for estimate in pairs]
  (ax,) = drawn['efficiency'].axes
  for method, curve in lines_of(ax).items():
    estimate = summary.metrics[method]
    assert curve[-1] == estimate.value[0]  # The IQM of the last iteration.


def test_the_profile_of_equal_scores(compare):
  compared = compare(([30.0], {}))
  summary = aggregates.summarise(compared, 'final', 'dqn_final')
  [ax] = plots.Plotter(compared)._profiles(summary).axes
  [curve] = lines_of(ax).values()
  assert curve[0] == 1 > curve[-1]


def test_diagnostics_are_drawn_beside_returns(compare):
  ranks = {'srank': [7, 6], 'overestimation': [0.5, 2.5]}
  compared = compare(
    ([1.0, 3.0], {'diagnostics': ranks}),
    ([2.0, 5.0], {'diagnostics': {'srank': [9, None]}, 'seed': 2}),
    ([4.0, 0.0], {'agent': 'c51'}),  # of an earlier version
    ([9.0], {'agent': 'quantile', 'planned': 3, 'diagnostics': ranks}),
    ([10.0, 20.0], {'game': 'Breakout'}),
  )
  *_, (name, _, plot) = plots.Plotter(compared).figures([])
  assert name == 'diagnostics'
  returns, overestimation, rank = plot.axes  # of Pong alone
  assert {'DQN (Adam)', 'C51'} <= lines_of(returns).keys()
  found = lines_of(rank)
  assert found.keys() == {'DQN (Adam)', 'QR-DQN, under way'}
  assert str(found['DQN (Adam)'].tolist()) == '[8.0, nan]'
  assert len(rank.collections) == 1  # its interval
  assert found['QR-DQN, under way'].tolist() == [7]
  assert lines_of(overestimation)['DQN (Adam)'].tolist() == [0.5, 2.5]
  ((name, *_),) = plots.Plotter(compared.only('C51', ())).figures([])
  assert name == 'curves'


def test_diagnostics_have_five_games_on_a_page(compare):
  games = [*normalisation.load()][:6]
  runs = [([1.0], {'game': g, 'diagnostics': {'srank': [7]}}) for g in games]
  names = [name for name, *_ in plots.Plotter(compare(*runs)).figures([])]
  assert names == ['curves', 'diagnostics', 'diagnostics_2']
