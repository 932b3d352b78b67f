"""Figures of the MinAtar benchmark."""

import math
import pathlib

import matplotlib
import numpy as np
import pandas as pd
from matplotlib import axes as axes_lib
from matplotlib import figure, ticker
from rliable import metrics

from batch_rl.report import aggregates, plots
from benchmarks.evidence.minatar import (
  predictions,
  protocol,
  record,
  scores,
  tables,
)

# Agents whose curves are on the front page, with colours; beside those of the user.
_COLOURS = {
  'DQN (Adam)': '#000000',
  'QR-DQN': '#0072B2',
  'REM': '#D55E00',
  'CQL': '#009E73',
}
_GREY, _BLUE = '#b0b0b0', '#0072B2'
_YOURS = '#E69F00'
_STAGES = {'search': '#b0b0b0', 'whole': '#0072B2', 'parts': '#D55E00'}
_SCORE = 'score (interquartile mean, 95 % interval)'
_ONLINE_STYLE = {'color': '#555555', 'linestyle': '--', 'linewidth': 1}
_BC_STYLE = {'color': '#CC79A7', 'linestyle': ':', 'linewidth': 1.5}


def write(
  runs: pd.DataFrame,
  evaluations: pd.DataFrame,
  selection: pd.DataFrame,
  out: pathlib.Path,
) -> None:
  """Draws the figures of what the record has so far."""
  stages = {*runs.stage}
  with matplotlib.rc_context(plots.PARAMETERS):
    drawn = {}
    if 'whole' in stages:
      drawn['front'] = front(runs, evaluations)
      drawn['curves'] = curves(runs, evaluations)
      drawn['profiles'] = profiles(runs)
      drawn['improvement'] = improvement(runs)
    if 'search' in stages:
      drawn['search'] = search(runs)
    if {'whole', 'parts'} <= stages:
      drawn['parts'] = parts(runs)
    if 'heads' in stages:
      drawn['heads'] = heads(runs)
    if not selection.empty:
      drawn['selection'] = choices(selection)
    if stages & {'search', 'whole'}:
      drawn['overestimation'] = overestimation(runs)
    for name, fig in drawn.items():
      fig.savefig(out / f'{name}.png', dpi=200, pil_kwargs={'optimize': True})


def _colour(label: str, other: str) -> str:
  return _COLOURS.get(label, _YOURS if label.endswith('(yours)') else other)


def front(runs: pd.DataFrame, evaluations: pd.DataFrame) -> figure.Figure:
  """Draws interquartile means of all agents, and curves of four."""
  by_label = tables.methods(runs, with_fewer_runs=True)
  estimates = {
    label: scores.iqm(scores.matrix(group)) for label, group in by_label.items()
  }
  online, bc = estimates.pop(tables.ONLINE), estimates.pop(tables.BC, None)
  order = sorted(estimates, key=lambda label: estimates[label][0])
  fig = figure.Figure(
    figsize=(8.6, 1.2 + 0.22 * max(len(order), 8)), layout='constrained'
  )
  left, right = fig.subplots(1, 2, width_ratios=(1, 1.15))
  for y, label in enumerate(order):
    _dot(left, y, estimates[label], _colour(label, '#666666'))
  if any(math.isnan(estimate[1]) for estimate in estimates.values()):
    left.plot([], [], 'o', color='#666666', mfc='white', label='one run')
  left.set_yticks(range(len(order)), order)
  left.set_xlabel(f'{_SCORE};\n0: random actions, 1: online DQN')
  left.grid(visible=False, axis='y')
  left.axvline(online[0], label='online DQN', **_ONLINE_STYLE)
  if not math.isnan(online[1]):
    left.axvspan(*online[1:], color='#555555', alpha=0.12, lw=0)
  right.axhline(online[0], label='online DQN', **_ONLINE_STYLE)
  if bc:
    left.axvline(bc[0], label='behavioural cloning', **_BC_STYLE)
    right.axhline(bc[0], label='behavioural cloning', **_BC_STYLE)
  for label, group in by_label.items():
    if colour := _colour(label, ''):
      _curve(right, evaluations, group, colour, label)
  right.set_xlabel('thousand updates')
  right.set_ylabel('score of single evaluations')
  handles = {}
  for ax in (left, right):
    for handle, label in zip(*ax.get_legend_handles_labels(), strict=True):
      handles.setdefault(label, handle)
  fig.legend(
    handles.values(), handles.keys(), loc='outside lower center', ncols=7
  )
  left.set_title('Offline agents after training')
  right.set_title('On the way')
  return fig


def _dot(ax: axes_lib.Axes, y: float, estimate, colour: str) -> None:
  """Draws a value; it is hollow without an interval."""
  value, low, high = estimate
  fill = 'white'
  if not math.isnan(low):
    ax.plot([low, high], [y, y], color=colour, linewidth=3, alpha=0.4)
    fill = colour
  ax.plot([value], [y], 'o', color=colour, mfc=fill, markersize=5)


def _curve(
  ax: axes_lib.Axes,
  evaluations: pd.DataFrame,
  group: pd.DataFrame,
  colour: str,
  label: str | None = None,
  with_band: bool = True,
) -> None:
  """Draws the interquartile mean of an agent's runs over updates."""
  updates, found = curve_of(evaluations, group)
  if not with_band:
    values = [metrics.aggregate_iqm(s) for s in np.moveaxis(found, 2, 0)]
    ax.plot(updates / 1000, values, color=colour, label=label)
    return
  estimate = aggregates.curve(found)
  ax.plot(updates / 1000, estimate.value, color=colour, label=label)
  if not np.isnan(estimate.low).any():
    ax.fill_between(
      updates / 1000,
      estimate.low,
      estimate.high,
      color=colour,
      alpha=0.15,
      lw=0,
    )


def curve_of(
  evaluations: pd.DataFrame, group: pd.DataFrame
) -> tuple[np.ndarray, np.ndarray]:
  """Returns updates (n,) and scores, (runs, games, n), of an agent's evaluations."""
  rows = evaluations.merge(group[[*record.RUN, 'zero', 'one']], on=record.RUN)
  rows['score'] = scores.normalised(rows.mean_return, rows)
  by_update = {
    updates: scores.matrix(found, 'score')
    for updates, found in rows.groupby('updates')
    if len(found) == len(group)
  }
  return np.array([*by_update]), np.stack([*by_update.values()], axis=2)


def curves(runs: pd.DataFrame, evaluations: pd.DataFrame) -> figure.Figure:
  """Draws a panel for each agent, in front of the curves of the others."""
  by_label = tables.methods(runs, with_fewer_runs=True)
  online = scores.iqm(scores.matrix(by_label.pop(tables.ONLINE)))[0]
  columns = min(4, len(by_label))
  rows = -(-len(by_label) // columns)
  fig = figure.Figure(figsize=(8.6, 1.7 * rows), layout='constrained')
  axes = fig.subplots(rows, columns, squeeze=False, sharex=True, sharey=True)
  for ax, label in zip(axes.ravel(), by_label, strict=False):
    for other, group in by_label.items():
      if other != label:
        _curve(ax, evaluations, group, '#dddddd', with_band=False)
    _curve(ax, evaluations, by_label[label], _BLUE)
    ax.axhline(online, **_ONLINE_STYLE)
    ax.set_title(label)
  for ax in axes.ravel()[len(by_label) :]:
    ax.axis('off')
  # The last of each column, also above an empty place.
  for ax in axes.ravel()[len(by_label) - columns : len(by_label)]:
    ax.tick_params(labelbottom=True)
  fig.supxlabel('thousand updates', fontsize=8)
  fig.supylabel('score (interquartile mean)', fontsize=8)
  return fig


def profiles(runs: pd.DataFrame) -> figure.Figure:
  """Draws the share of runs above each score."""
  by_label = tables.methods(runs)
  fig = figure.Figure(figsize=(5.6, 3.2), layout='constrained')
  ax = fig.subplots()
  found = {label: scores.matrix(group) for label, group in by_label.items()}
  lowest = min(values.min() for values in found.values())
  highest = max(values.max() for values in found.values())
  thresholds = np.linspace(lowest - 0.05, highest + 0.05, 200)
  # Named agents are in front.
  for label in sorted(found, key=lambda label: bool(_colour(label, ''))):
    colour = _colour(label, '')
    style = {'color': colour or '#dddddd', 'label': label if colour else None}
    if label == tables.ONLINE:
      style = {**_ONLINE_STYLE, 'label': label, 'zorder': 3}
    profile = aggregates.profile(found[label], thresholds)
    ax.plot(thresholds, profile.value, **style)
    if colour and not np.isnan(profile.low).any():
      ax.fill_between(
        thresholds, profile.low, profile.high, color=colour, alpha=0.12, lw=0
      )
  ax.set_xlabel('score')
  ax.set_ylabel('share of runs above it')
  ax.legend()
  return fig


def improvement(runs: pd.DataFrame) -> figure.Figure:
  """Draws the probabilities that agents are better than two others."""
  found = {
    label: scores.matrix(group) for label, group in tables.methods(runs).items()
  }
  others = [other for other in (tables.ONLINE, tables.DQN) if other in found]
  labels = [label for label in found if label != tables.ONLINE]
  fig = figure.Figure(
    figsize=(6.4, 0.7 + 0.2 * len(labels)), layout='constrained'
  )
  axes = fig.subplots(1, len(others), sharey=True, squeeze=False)
  for ax, other in zip(axes[0], others, strict=True):
    for y, label in enumerate(labels):
      if label != other:
        estimate = scores.improvement(found[label], found[other])
        _dot(ax, y, estimate, _colour(label, '#666666'))
    ax.axvline(0.5, color='#555555', linewidth=1)
    ax.set_xlim(-0.03, 1.03)
    ax.set_xlabel(f'P(better than {other}), 95 % interval')
    ax.grid(visible=False, axis='y')
  axes[0][0].set_yticks(range(len(labels)), labels)
  axes[0][0].invert_yaxis()
  return fig


def search(runs: pd.DataFrame) -> figure.Figure:
  """Draws the scores of each agent's configurations; the best one is filled."""
  found = {
    label: values.mean(axis=1)
    for label, (_, values) in scores.searched(runs).items()
  }
  order = sorted(found, key=lambda name: found[name].max())
  fig = figure.Figure(
    figsize=(5.6, 0.9 + 0.2 * len(order)), layout='constrained'
  )
  ax = fig.subplots()
  for y, name in enumerate(order):
    values = found[name]
    ax.plot(values, [y] * len(values), 'o', color=_GREY, mfc='none', ms=5)
    ax.plot([values.max()], [y], 'o', color=_BLUE, ms=5)
  ax.set_yticks(range(len(order)), order)
  ax.set_xlabel('score of a configuration (mean over games)')
  ax.grid(visible=False, axis='y')
  return fig


def parts(runs: pd.DataFrame) -> figure.Figure:
  """Draws scores on parts of the data, a group of dots for each agent."""
  labels, found = tables.by_part(runs)
  fig = figure.Figure(
    figsize=(6.4, 0.9 + 0.35 * len(labels)), layout='constrained'
  )
  ax = fig.subplots()
  colours = ('#000000', '#D55E00', '#E69F00', '#0072B2')
  for i, (part, by_label) in enumerate(found.items()):
    for y, values in enumerate(by_label.values()):
      _dot(ax, y + 0.15 * (i - 1.5), scores.iqm(values), colours[i])
    ax.plot([], [], 'o', color=colours[i], label=part)
  ax.set_yticks(range(len(labels)), labels)
  ax.invert_yaxis()
  ax.set_xlabel(_SCORE)
  ax.grid(visible=False, axis='y')
  fig.legend(title='trained on', loc='outside right center')
  return fig


def heads(runs: pd.DataFrame) -> figure.Figure:
  """Draws scores over the number of heads or networks, beside other agents.

  The others are those on the same data, after as many updates.
  """
  fig = figure.Figure(figsize=(5.6, 3), layout='constrained')
  ax = fig.subplots()
  curves_: dict[str, list] = {}
  for (label, _, number), values in tables.by_number(runs).items():
    curves_.setdefault(label, []).append((number, *scores.iqm(values)))
  colours = ('#CC79A7', _COLOURS['REM'], '#009E73')
  for i, (label, points) in enumerate(curves_.items()):
    colour = colours[i % len(colours)]
    number, value, low, high = np.array(points, float).T
    number *= 0.95 + 0.05 * i  # Intervals lie side by side.
    ax.plot(number, value, 'o-', color=colour, label=label, markersize=5)
    ax.vlines(number, low, high, color=colour, linewidth=3, alpha=0.4)
  shown = pd.concat(tables.heads_of(runs).values())
  whole = tables.on_same_data(runs[runs.stage == 'whole'], shown)
  for label, group in scores.complete(whole).items():
    if label in (tables.DQN, 'QR-DQN'):
      value = scores.iqm(scores.matrix(group, scores.HALF))[0]
      ax.axhline(value, color=_COLOURS[label], lw=1, ls='--', label=label)
  ax.set_xscale('log')
  ax.set_xticks(protocol.HEADS, map(str, protocol.HEADS))
  ax.minorticks_off()
  ax.set_xlabel('heads or networks')
  ax.set_ylabel(_SCORE)
  fig.legend(loc='outside right center')
  return fig


def choices(selection: pd.DataFrame) -> figure.Figure:
  """Draws how well methods choose among the settings of an agent."""
  found = predictions.of_settings(selection)
  fig = figure.Figure(figsize=(6.4, 1.7), layout='constrained')
  axes = fig.subplots(1, 2, sharey=True)
  for ax, column in zip(axes, ('correlation', 'regret'), strict=True):
    for y, method in enumerate(tables.METHODS):
      values = found[found.method == method][column]
      ax.plot(values, [y] * len(values), 'o', color=_GREY, mfc='none', ms=4)
      _dot(ax, y, predictions.mean(values), _BLUE)
    ax.grid(visible=False, axis='y')
  axes[0].set_yticks(range(len(tables.METHODS)), tables.METHODS.values())
  axes[0].set_ylim(len(tables.METHODS) - 0.5, -0.5)
  axes[0].set_xlabel('rank correlation with returns (1: best)')
  axes[1].set_xlabel('regret of the choice (0: best)')
  return fig


def overestimation(runs: pd.DataFrame) -> figure.Figure:
  """Draws scores over over-estimation by game, and their rank correlations."""
  chosen = predictions.scored(runs)
  games = sorted({*chosen.game})
  fig = figure.Figure(
    figsize=(1.7 * max(len(games), 3), 4), layout='constrained'
  )
  upper, lower = fig.subfigures(2, 1, height_ratios=(1, 1.1))
  axes = upper.subplots(1, max(len(games), 1), squeeze=False, sharey=True)
  for ax, game in zip(axes[0], games, strict=False):
    for stage, colour in _STAGES.items():
      group = chosen[(chosen.game == game) & (chosen.stage == stage)]
      values = group[scores.LAST]
      ax.plot(group.overestimation, values, '.', color=colour, ms=3)
    if chosen.overestimation[chosen.game == game].abs().max() > 20:
      ax.set_xscale('symlog', linthresh=10)
      ax.xaxis.set_major_locator(
        ticker.SymmetricalLogLocator(base=10, linthresh=10)
      )
      ax.xaxis.set_major_formatter('{x:g}')
    ax.set_title(tables.short(game))
  upper.supxlabel('over-estimation: Q minus discounted return', fontsize=8)
  axes[0][0].set_ylabel('score')
  ax = lower.subplots()
  found = predictions.of_overestimation(runs)
  for x, row in enumerate(found.itertuples()):
    value, low, high = row.correlation
    ax.vlines(x, low, high, color=_STAGES[row.stage], linewidth=3, alpha=0.4)
    ax.plot([x], [value], 'o', color=_STAGES[row.stage], markersize=5)
  names = [
    f'{tables.short(row.game)}\n{protocol.PARTS.get(row.part, "")}'
    for row in found.itertuples()
  ]
  ax.set_xticks(range(len(found)), names, rotation=45)
  ax.set_ylim(-1.05, 1.05)
  ax.axhline(0, color='#555555', linewidth=1)
  ax.set_ylabel('rank correlation')
  for stage in dict.fromkeys(found.stage):
    ax.plot([], [], 'o', color=_STAGES[stage], label=stage)
  if len(found):
    ax.legend(loc='center left', bbox_to_anchor=(1, 0.5))
  return fig
