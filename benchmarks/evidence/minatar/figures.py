"""Figures of the MinAtar benchmark."""

import math
import pathlib

import matplotlib
import numpy as np
import pandas as pd
from matplotlib import axes as axes_lib
from matplotlib import figure

from batch_rl.report import aggregates, plots
from benchmarks.evidence.minatar import protocol, record, scores, tables

BC = 'BC'
# Agents whose curves are on the front page, with colours.
_COLOURS = {
  'DQN (Adam)': '#000000',
  'QR-DQN': '#0072B2',
  'REM': '#D55E00',
  'CQL': '#009E73',
}
_GREY, _BLUE = '#b0b0b0', '#0072B2'
_ONLINE_STYLE = {'color': '#555555', 'linestyle': '--', 'linewidth': 1}
_BC_STYLE = {'color': '#CC79A7', 'linestyle': ':', 'linewidth': 1.5}


def write(
  runs: pd.DataFrame, evaluations: pd.DataFrame, out: pathlib.Path
) -> None:
  """Draws the figures of what the record has so far."""
  stages = {*runs.stage}
  with matplotlib.rc_context(plots.PARAMETERS):
    drawn = {}
    if 'whole' in stages:
      drawn['front'] = front(runs, evaluations)
      drawn['curves'] = curves(runs, evaluations)
      drawn['profiles'] = profiles(runs)
    if 'search' in stages:
      drawn['search'] = search(runs)
    if {'whole', 'parts'} <= stages:
      drawn['parts'] = parts(runs)
    if 'heads' in stages:
      drawn['heads'] = heads(runs)
    if stages & {'search', 'whole'}:
      drawn['overestimation'] = overestimation(runs)
    for name, fig in drawn.items():
      fig.savefig(out / f'{name}.png', dpi=200, pil_kwargs={'optimize': True})


def front(runs: pd.DataFrame, evaluations: pd.DataFrame) -> figure.Figure:
  """Draws interquartile means of all agents, and curves of four."""
  by_label = tables.methods(runs)
  estimates = {
    label: scores.iqm(scores.matrix(group)) for label, group in by_label.items()
  }
  online, bc = estimates.pop(tables.ONLINE), estimates.pop(BC, None)
  order = sorted(estimates, key=lambda label: estimates[label][0])
  fig = figure.Figure(
    figsize=(8.6, 1.2 + 0.22 * max(len(order), 8)), layout='constrained'
  )
  left, right = fig.subplots(1, 2, width_ratios=(1, 1.15))
  for y, label in enumerate(order):
    _dot(left, y, estimates[label], _COLOURS.get(label, '#666666'))
  left.set_yticks(range(len(order)), order)
  left.set_xlabel('score (interquartile mean, 95 % interval)')
  left.grid(visible=False, axis='y')
  left.axvline(online[0], label='online DQN', **_ONLINE_STYLE)
  right.axhline(online[0], label='online DQN', **_ONLINE_STYLE)
  if bc:
    left.axvline(bc[0], label='behavioural cloning', **_BC_STYLE)
    right.axhline(bc[0], label='behavioural cloning', **_BC_STYLE)
  for label, colour in _COLOURS.items():
    if label in by_label:
      _curve(right, evaluations, by_label[label], colour, label)
  right.set_xlabel('thousand updates')
  right.set_ylabel('score')
  handles = {}
  for ax in (left, right):
    for handle, label in zip(*ax.get_legend_handles_labels(), strict=True):
      handles.setdefault(label, handle)
  fig.legend(
    handles.values(), handles.keys(), loc='outside lower center', ncols=6
  )
  left.set_title('Offline agents after training')
  right.set_title('On the way')
  return fig


def _dot(ax: axes_lib.Axes, y: float, estimate, colour: str) -> None:
  value, low, high = estimate
  if not math.isnan(low):
    ax.plot([low, high], [y, y], color=colour, linewidth=3, alpha=0.4)
  ax.plot([value], [y], 'o', color=colour, markersize=5)


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
  estimate = aggregates.curve(found)
  ax.plot(updates / 1000, estimate.value, color=colour, label=label)
  if with_band and not np.isnan(estimate.low).any():
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
  by_label = tables.methods(runs)
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
  for label, values in found.items():
    colour = _COLOURS.get(label, '#dddddd')
    style = _ONLINE_STYLE if label == tables.ONLINE else {'color': colour}
    shown = label if label in _COLOURS or label == tables.ONLINE else None
    profile = aggregates.profile(values, thresholds).value
    ax.plot(thresholds, profile, label=shown, **style)
  ax.set_xlabel('score')
  ax.set_ylabel('share of runs above it')
  ax.legend()
  return fig


def search(runs: pd.DataFrame) -> figure.Figure:
  """Draws the scores of each agent's configurations; the best one is filled."""
  found = {
    agent.name: scores.of_configurations(runs, agent)
    for agent in protocol.AGENTS
  }
  found = {name: values for name, values in found.items() if len(values)}
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
  ax.set_xlabel('score of a configuration (mean of two games)')
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
  ax.set_xlabel('score (interquartile mean, 95 % interval)')
  ax.grid(visible=False, axis='y')
  fig.legend(loc='outside right center')
  return fig


def heads(runs: pd.DataFrame) -> figure.Figure:
  """Draws scores over the number of heads."""
  fig = figure.Figure(figsize=(4.4, 2.8), layout='constrained')
  ax = fig.subplots()
  chosen = runs[runs.stage == 'heads']
  for colour, (label, group) in zip(
    ('#E69F00', '#D55E00'), chosen.groupby('label'), strict=False
  ):
    points = sorted(
      (int(setting), scores.iqm(scores.matrix(of_number)))
      for setting, of_number in group.groupby('setting')
    )
    numbers, estimates = zip(*points, strict=True)
    value, low, high = np.array(estimates).T
    ax.plot(numbers, value, 'o-', color=colour, label=label)
    ax.fill_between(numbers, low, high, color=colour, alpha=0.15, lw=0)
  ax.set_xscale('log')
  ax.set_xticks(protocol.HEADS, map(str, protocol.HEADS))
  ax.minorticks_off()
  ax.set_xlabel('heads')
  ax.set_ylabel('score')
  ax.legend()
  return fig


def overestimation(runs: pd.DataFrame) -> figure.Figure:
  """Draws scores over over-estimation, a panel for each game."""
  chosen = runs[runs.stage.isin(['search', 'whole', 'parts'])]
  chosen = chosen.dropna(subset=['overestimation', scores.LAST])
  games = sorted({*chosen.game})
  fig = figure.Figure(
    figsize=(1.7 * max(len(games), 2), 2.2), layout='constrained'
  )
  axes = fig.subplots(1, max(len(games), 1), squeeze=False, sharey=True)
  for ax, game in zip(axes[0], games, strict=False):
    group = chosen[chosen.game == game]
    ax.plot(
      group.overestimation, group[scores.LAST], '.', color=_BLUE, alpha=0.5
    )
    ax.set_xscale('symlog', linthresh=1)
    ax.set_title(game.removeprefix('MinAtar-'))
  fig.supxlabel('over-estimation: Q minus discounted return', fontsize=8)
  axes[0][0].set_ylabel('score')
  return fig
