"""The answer of a comparison in a sentence, and its methods in a paragraph."""

import importlib.metadata
import pathlib
from collections.abc import Iterable

import numpy as np
import pandas as pd

from batch_rl.report import aggregates, normalisation, tables
from batch_rl.report.aggregates import Summary
from batch_rl.report.comparison import Comparison

_TEMPLATE = pathlib.Path(__file__).with_suffix('.txt')
_NAMED_GAMES = 8


def answer(compared: Comparison, summary: Summary | None) -> tuple[str, str]:
  """Returns a sentence on the best method, its lead and the sample, and details.

  Args:
    compared: Runs.
    summary: Aggregates of final scores; None if no game has normalised scores.
  """
  if not compared.runs:
    return 'No run has finished.', 'The curves are of runs under way.'
  if summary is None:
    means = pd.DataFrame(compared.scores('final')).map(np.mean)
    means = means.dropna(thresh=min(2, means.shape[1]))
    wins = means.eq(means.max(axis=1), axis=0).sum()
    first = ' and '.join(wins.index[wins == wins.max()])
    return (
      f'Highest mean return: {first}, in {wins.max()} of {len(means)} games.'
      if len(means)
      else 'No two methods share a game.',
      'No aggregates of final scores: the methods share no game for which the normaliser '
      'has a score.',
    )
  is_dqn = summary.normaliser.startswith('dqn')
  swapped = '; the reverse in games where random is better' if is_dqn else ''
  details = (
    'Scores are interquartile means of final scores; the random agent has 0, the '
    f'{normalisation.reference_name(summary.normaliser)} '
    f'{normalisation.reference_score(summary.normaliser):g}{swapped}. Intervals have '
    '95 % coverage.'
  )
  iqms = {m: found['IQM'] for m, found in tables.intervals_of(summary).items()}
  names = sorted(iqms, key=lambda method: -iqms[method][0])
  first, *others = (tables.interval_text(*iqms[n], ' to ') for n in names)
  if not others:
    return f'{names[0]} scores {first} over {summary.sample}.', details
  best, second = (iqms[name][0] for name in names[:2])
  lead = f'highest, {first}, {tables.format_number(best - second)} more than'
  if not round(best - second, 2):
    lead = f'{first}, as much as'
  end = ''
  if any(low is None for _, low, _ in iqms.values()):
    end = '; a single run of a method has no interval'
  elif tables.are_best(pd.Series(iqms)).sum() != 1:
    end = '; its interval overlaps with others'
  return (
    f'{names[0]} scores {lead} {names[1]}, {others[0]}, over {summary.sample}{end}.',
    details,
  )


def paragraph(compared: Comparison, normalisers: Iterable[str]) -> str:
  """Returns a paragraph on protocol, seeds, bootstrap and versions, for a paper."""
  games = compared.games
  facts = pd.DataFrame(
    {
      'counts': len(compared.select(method, run.game)),
      'seeds': run.seed,
      'logs': run.data.rpartition('/')[2],
      'iterations': run.done,
      **run.protocol,
      **run.provenance,
    }
    for method, run in compared.runs
  )
  formulas = dict.fromkeys(map(normalisation.formula, normalisers))
  text = _TEMPLATE.read_text('utf-8').format(
    methods=_list(compared.scores('final')),
    games=_list(games) if len(games) <= _NAMED_GAMES else f'{len(games)} games',
    normalised=''.join(f' Scores are normalised as {f}.' for f in formulas),
    samples=aggregates.REPETITIONS,
    rliable=importlib.metadata.version('rliable'),
    **{
      name: _list(
        sorted({*found.map(str)}, key=lambda x: (len(x), x)),
        '' if name in ('seeds', 'logs') else ',',
      )
      for name, found in facts.items()
    },
  )
  text = text.replace('sticky actions of probability none', 'no sticky actions')
  # Online runs have neither.
  text = text.replace('; logged runs unknown; subset of the data: all', '')
  return text.replace('at most inf frames an episode', 'episodes of any length')


def _list(words: Iterable[str], comma: str = ',') -> str:
  """Returns `a, b and c`, and 25,000 with a comma."""
  named = (w.strip('?') or 'unknown' for w in words)
  *most, last = (f'{int(w):{comma}}' if w.isdecimal() else w for w in named)
  return f'{", ".join(most)} and {last}' if most else last
