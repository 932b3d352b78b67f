"""Published scores of offline agents on the DQN Replay Dataset, beside one's own.

`scores/published.csv` has the figures as they were published, and
`scores/published_sources.csv` their sources and protocols, '?' where unknown. A figure is
shown beside runs of the same game that trained on the same share of the data.
"""

import dataclasses
import functools
import re
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pandas as pd

from batch_rl.dataset.sampling import subsets
from batch_rl.report import comparison, normalisation, tables
from batch_rl.report.comparison import Comparison
from batch_rl.report.run_results import RunResults
from batch_rl.utils import files

_SCORES_CSV = normalisation.SCORES_DIRECTORY / 'published.csv'
_SOURCES_CSV = normalisation.SCORES_DIRECTORY / 'published_sources.csv'
_PROTOCOL = ('subset', 'sticky', 'epsilon', 'rom')
# A run of the dataset has 50 or 51 shards, of which some may be damaged.
_FEWEST_SHARDS = 45
# Subsets of which a share was published: of all parts of a run.
_EVEN = (
  subsets.random_trajectories,
  subsets.first_trajectories,
  subsets.first_of_shards,
)
_NAMES = {'DT': 'Decision Transformer'}  # Published names by agent.

Setting = tuple[str, float]  # Game, and share of a run of the dataset.


@dataclasses.dataclass(frozen=True)
class Scores:
  """Scores of a method in a game.

  Attributes:
    method: Name of the method, e.g. `CQL (QR-DQN)`.
    runs: Number of runs as text; '' if unknown.
    source: Name in `published_sources.csv`; '' for one's own.
    returns: Mean return and its standard deviation over runs, None if unknown, by kind
      of score: `{'final': (3.9, 7.3)}`.
  """

  method: str
  runs: str
  source: str = ''
  returns: dict[str, tuple[float, float | None]] = dataclasses.field(
    default_factory=dict
  )


_NOTHING = Scores('', '')


@functools.cache
def load() -> Mapping[Setting, list[Scores]]:
  """Returns the published scores; those of other data than a share are left out."""
  found: dict[Setting, dict[tuple, Scores]] = {}
  for row in files.read_csv(_SCORES_CSV):
    percent = re.fullmatch(r'([\d.]+) %', row['data'])
    if not percent:
      continue
    setting = row['game'], float(percent[1]) / 100
    key = row['method'], row['runs'], row['source']
    scores = found.setdefault(setting, {}).setdefault(key, Scores(*key))
    scores.returns[row['checkpoint']] = _returns(row)
  return {
    setting: sorted(by_key.values(), key=lambda scores: scores.method)
    for setting, by_key in found.items()
  }


def share(run: RunResults) -> float | None:
  """Returns the share of a run of the dataset that a run trained on.

  It is None for a selection by return, for one of several parts, and for shards of less
  than a run.
  """
  shards = run.provenance.get('shards')
  if not run.data or (shards and shards < _FEWEST_SHARDS):
    return None
  text = run.protocol['subset']
  if text == 'all':
    return 1.0
  try:
    (part,) = subsets.parse(text)
  except ValueError:  # It has several parts, or is of another version.
    return None
  return part.keywords['fraction'] if part.func in _EVEN else None


def beside(compared: Comparison) -> tuple[list[tables.Table], list[str]]:
  """Returns the table of own and published scores, and notes; none if none match."""
  own: dict[Setting, dict[str, list[RunResults]]] = {}
  for method, run in compared.runs:
    part = share(run)
    if part and (run.game, part) in load():
      own.setdefault((run.game, part), {}).setdefault(method, []).append(run)
  if not own:
    return [], []
  rows, records = [], []
  for setting in sorted(own):
    for mine, theirs in _pairs(own[setting], load()[setting]):
      rows.append(_row(setting, mine, theirs))
      records.append(_record(setting, mine, theirs))
  text = pd.DataFrame(rows)
  caption = (
    'Own and published returns, mean ± spread over runs (own: the standard deviation). '
    'Gamer-normalised figures are converted to returns.'
  )
  runs = [run for of in own.values() for each in of.values() for run in each]
  shown = {scores.source for setting in own for scores in load()[setting]}
  counts = ', '.join(map(str, sorted({run.done for run in runs})))
  sources = [s for s in files.read_csv(_SOURCES_CSV) if s['source'] in shown]
  notes = [
    f'Own runs: final is after the last of {counts} iterations, best is of {counts} '
    'evaluations.',
    *(_note(source, runs) for source in sources),
  ]
  return [tables.Table('published', caption, text, records)], notes


def _pairs(
  own: Mapping[str, list[RunResults]], published: list[Scores]
) -> Iterator[tuple[Scores, Scores]]:
  """Yields own and published scores of each method; those of one may be empty."""
  left = list(published)
  for method, runs in own.items():
    name = _NAMES.get(runs[0].agent, runs[0].agent)
    same = [s for s in published if s.method.partition(' (')[0] == name]
    left = [scores for scores in left if scores not in same]
    for theirs in same or [_NOTHING]:
      yield _own_scores(method, runs), theirs
  for theirs in left:
    yield _NOTHING, theirs


def _own_scores(method: str, runs: list[RunResults]) -> Scores:
  scores = Scores(method, str(len(runs)))
  for kind in comparison.KINDS:
    values = [getattr(run, kind) for run in runs]
    deviation = float(np.std(values, ddof=1)) if len(runs) > 1 else None
    scores.returns[kind] = float(np.mean(values)), deviation
  return scores


def _row(setting: Setting, mine: Scores, theirs: Scores) -> dict[str, str]:
  game, part = setting
  return {
    'game': f'{game}, {100 * part:g} %',
    'method': mine.method or 'no run here',
    **_texts(mine),
    'published': theirs.method,
    **{f'published {name}': text for name, text in _texts(theirs).items()},
    'source': theirs.source,
  }


def _texts(scores: Scores) -> dict[str, str]:
  """Returns the cells `{'final': '3.9 ± 7.3', 'best': '', 'runs': '10'}`."""
  texts = {kind: '' for kind in comparison.KINDS}
  for kind, values in scores.returns.items():
    numbers = [tables.format_number(x) for x in values if x is not None]
    texts[kind] = ' ± '.join(numbers)
  return texts | {'runs': scores.runs}


def _record(setting: Setting, mine: Scores, theirs: Scores) -> dict[str, Any]:
  record: dict[str, Any] = {'game': setting[0], 'share': setting[1]}
  for prefix, scores in (('', mine), ('published_', theirs)):
    record |= {f'{prefix}method': scores.method, f'{prefix}runs': scores.runs}
    for kind in comparison.KINDS:
      mean, spread = scores.returns.get(kind, (None, None))
      record |= {f'{prefix}{kind}': mean, f'{prefix}{kind}_spread': spread}
  return record | {'source': theirs.source}


def _note(source: Mapping[str, str], runs: list[RunResults]) -> str:
  """Returns what is known of a source, and how its protocol differs from `runs`."""
  different, unknown = [], []
  for name in _PROTOCOL:
    own = {
      comparison.rom_name(run) if name == 'rom' else run.protocol[name]
      for run in runs
    }
    if '?' in {source[name], *own}:
      unknown.append(name)
    elif own != {source[name]}:
      different.append(f'{name} {source[name]} (own: {", ".join(sorted(own))})')
  note = f'{source["source"]} ({source["citation"]}): {source["remark"]}'
  if different:
    note += f' Differs in {"; ".join(different)}.'
  if unknown:
    note += f' Unknown: {", ".join(unknown)}.'
  return note


def _returns(row: Mapping[str, str]) -> tuple[float, float | None]:
  """Returns the mean return of a row of `published.csv`, and its spread, if known."""
  mean, spread = (float(row[name] or 'nan') for name in ('value', 'spread'))
  if row['measure'] == 'gamer-normalised':
    mean, end = normalisation.denormalise(
      [mean, mean + spread], row['game'], 'gamer'
    ).tolist()
    spread = end - mean
  return mean, None if np.isnan(spread) else spread
