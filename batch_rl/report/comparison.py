"""Which runs may be averaged, which may be compared, and what tells them apart.

Runs of one agent whose configurations or evaluations differ are different methods,
named by what differs: `REM [num_heads=50]`, `DQN (Adam) [epsilon=0.01]`.
"""

import collections
import dataclasses
import hashlib
import os
import re
from collections.abc import Iterable, Mapping

import numpy as np

from batch_rl.atari import roms
from batch_rl.report import normalisation
from batch_rl.report.run_results import AGENTS, Excluded, Run

KINDS = ('final', 'best')
# How the random agent and the online DQN of the normalisers were evaluated.
REFERENCE = {'epsilon': '0.001', 'sticky': '0.25', 'frame cap': '108000'}
_SHOWN = 3  # differences in the name of a method; the others are in a hash
Grouped = dict[str, dict[str, list[Run]]]


@dataclasses.dataclass(frozen=True)
class Comparison:
  """Runs by method and game.

  Attributes:
    runs: `{method: {game: runs}}`: those that count, methods in order.
    unfinished: runs under way, likewise, of which curves can be drawn.
    excluded: the runs that do not count.
  """

  runs: Grouped
  unfinished: Grouped
  excluded: list[Excluded]

  @property
  def games(self) -> list[str]:
    """All games in which a run counts."""
    return sorted({game for by_game in self.runs.values() for game in by_game})

  @property
  def games_with_curves(self) -> list[str]:
    """All games with a run, under way or not."""
    groups = (*self.runs.values(), *self.unfinished.values())
    return sorted({game for by_game in groups for game in by_game})

  def scores(self, kind: str) -> dict[str, dict[str, np.ndarray]]:
    """The scores of runs, `{method: {game: (runs,)}}`.

    Args:
      kind: 'final', the last evaluation, or 'best', the highest, which the paper
        reports and which favours noisy evaluations.
    """
    score = {
      'final': lambda run: run.returns[-1],
      'best': lambda run: run.returns.max(),
    }[kind]
    return {
      method: {
        game: np.array([score(run) for run in runs])
        for game, runs in by_game.items()
      }
      for method, by_game in self.runs.items()
    }

  def only(self, agents: str, games: Iterable[str]) -> 'Comparison':
    """What is left of it.

    Args:
      agents: regular expression that the names of methods match.
      games: to keep; all if there are none.
    """
    games = set(games)

    def chosen(groups):
      kept = {
        method: {g: r for g, r in by_game.items() if not games or g in games}
        for method, by_game in groups.items()
        if re.search(agents, method)
      }
      return {method: by_game for method, by_game in kept.items() if by_game}

    return dataclasses.replace(
      self, runs=chosen(self.runs), unfinished=chosen(self.unfinished)
    )


@dataclasses.dataclass(frozen=True)
class Matrices:
  """Normalised scores that can be aggregated: the same games for all methods.

  Attributes:
    scores: `{method: float (runs, games)}`; numbers of runs may differ.
    games: in the order of the columns.
    notes: what was left out for it.
  """

  scores: dict[str, np.ndarray]
  games: list[str]
  notes: list[str]


def compare(runs: Iterable[Run], iterations: int | None = None) -> Comparison:
  """Sorts runs by what they are.

  Args:
    runs: as they were read.
    iterations: of each run that count, the first ones; None for all. Runs that
      have fewer are left out.

  Returns:
    The comparison.
  """
  excluded: list[Excluded] = []
  counted, unfinished = [], []
  for run in _drop_repetitions(runs, excluded):
    if iterations is not None and run.done < iterations:
      why = f'has {run.done} iterations, --iterations wants {iterations}'
    elif iterations is None and not run.is_finished:
      why = f'is under way: {run.done} of {run.planned} iterations'
    else:
      counted.append(
        dataclasses.replace(
          run,
          returns=run.returns[:iterations],
          episodes=run.episodes[:iterations],
          planned=iterations or run.planned,
        )
      )
      continue
    excluded.append((run.directory, why))
    if not run.is_finished:
      unfinished.append(run)
  names = _method_names([*counted, *unfinished], by_length=iterations is None)
  return Comparison(_group(counted, names), _group(unfinished, names), excluded)


def matrices(comparison: Comparison, kind: str, normaliser: str) -> Matrices:
  """What aggregates over games are computed from.

  Args:
    comparison: of runs.
    kind: 'final' or 'best'.
    normaliser: of `normalisation.NORMALISERS`.

  Returns:
    Normalised scores on the games that all methods have, but for methods with less
    than half as many games as another. Where a method has more runs of some games
    than of others, the first ones count.
  """
  notes = []
  scores = comparison.scores(kind)
  known = [g for g in comparison.games if normalisation.has(g, normaliser)]
  if unknown := sorted(set(comparison.games) - set(known)):
    notes.append(f'without a {normaliser} score: {_some(unknown)}')
  covered = {
    method: [game for game in known if game in by_game]
    for method, by_game in scores.items()
  }
  most = max(map(len, covered.values()), default=0)
  for method in [m for m, games in covered.items() if 2 * len(games) < most]:
    notes.append(
      f'{method} has {len(covered.pop(method))} of {len(known)} games and is left '
      'out'
    )
  games = [g for g in known if all(g in has for has in covered.values())]
  for method, has in covered.items():
    if missing := [game for game in known if game not in has]:
      notes.append(
        f'{method} lacks {len(missing)} of {len(known)} games, which count for no '
        f'method: {_some(missing)}'
      )
  if known and not games:
    notes.append(
      'no game has runs of all methods, so there are none: choose with --agents or '
      '--games'
    )
  found = {}
  for method in covered if games else ():
    by_game = scores[method]
    count = min(len(by_game[game]) for game in games)
    if any(len(by_game[game]) > count for game in games):
      notes.append(
        f'{method} has {count} runs of some games and more of others, of which '
        f'the first {count} count'
      )
    found[method] = np.stack(
      [
        normalisation.normalise(by_game[game][:count], game, normaliser)
        for game in games
      ],
      axis=1,
    )
  return Matrices(found, games, notes)


def _drop_repetitions(
  runs: Iterable[Run], excluded: list[Excluded]
) -> list[Run]:
  """Without copies of a run, and runs that cannot but give the same."""
  kept: dict[tuple, Run] = {}
  for run in sorted(runs, key=lambda run: (-run.done, run.directory)):
    what = (run.agent, run.game)
    identities: list[tuple] = []
    if run.about.get('run_id'):
      identities.append((run.about['run_id'],))
    if run.seed:
      data = run.data, run.about.get('replay_dir'), run.about.get('subset_hash')
      protocol = tuple(run.protocol.items())
      identities.append((*what, run.seed, *data, run.config_hash, *protocol))
    if not identities:  # a log of Dopamine's: a copy has the same returns
      identities.append((*what, run.returns.tobytes()))
    before = [kept[identity] for identity in identities if identity in kept]
    if before:
      excluded.append(
        (run.directory, f'repeats {before[0].directory}: same seed and all')
      )
    else:
      kept |= dict.fromkeys(identities, run)
  distinct = {run.directory: run for run in kept.values()}
  return sorted(distinct.values(), key=lambda run: (run.data, run.directory))


def _method_names(runs: list[Run], by_length: bool) -> dict[str, str]:
  """What to call the method of each run, `{directory: name}`.

  Two runs have the same name if, and only if, all that makes a method is equal.
  """
  by_agent = collections.defaultdict(list)
  for run in runs:
    by_agent[run.agent].append(run)
  names = {}
  for agent, members in by_agent.items():
    facts = {run.directory: _facts(run, by_length) for run in members}
    _tell_data_apart(members, facts)
    differing = _differing(list(facts.values()))
    for directory, fact in facts.items():
      names[directory] = _name(agent, fact, differing)
    _tell_roms_apart(members, names)
  return names


def _facts(run: Run, by_length: bool) -> dict[str, str]:
  """What makes a method, but for the ROM, of which each game has others."""
  protocol = {k: v for k, v in run.protocol.items() if k != 'rom'}
  if by_length:
    planned = run.planned if run.planned and not run.is_finished else run.done
    protocol['iterations'] = str(planned)
  return {**protocol, **run.config}


def _tell_data_apart(runs: list[Run], facts: dict[str, dict[str, str]]) -> None:
  """Adds where the data is to the facts, if that decides what it is."""
  hashes = collections.defaultdict(set)
  for run in runs:
    hashes[run.game, run.data, run.protocol.get('subset')].add(
      run.about.get('subset_hash')
    )
  if any(len(found) > 1 for found in hashes.values()):
    for run in runs:
      facts[run.directory]['data'] = data_root(run)


def data_root(run: Run) -> str:
  """The directory of the dataset that a run was trained on: of `<Game>/<run>`."""
  path = str(run.about.get('replay_dir') or '')
  return os.path.dirname(
    path.removesuffix('/replay_logs').removesuffix(run.data)
  )


def _tell_roms_apart(runs: list[Run], names: dict[str, str]) -> None:
  """Names the ROM in those games where a method has runs on several."""
  played = collections.defaultdict(set)
  for run in runs:
    played[names[run.directory], run.game].add(run.protocol.get('rom'))
  several = {key for key, found in played.items() if len(found) > 1}
  for run in runs:
    rom = _rom(run)
    if (names[run.directory], run.game) in several and rom != "the dataset's":
      names[run.directory] += f' [rom={rom}]'


def _rom(run: Run) -> str:
  """What a ROM is called in every game."""
  md5 = run.protocol.get('rom', '?')
  try:
    known = roms.md5s(run.game)
  except ValueError:
    return md5[:8]
  if md5 == known['legacy']:
    return "the dataset's"
  return "ale-py's" if md5 == known['current'] else md5[:8]


def _differing(facts: list[dict[str, str]]) -> list[str]:
  """Names of the facts that are not the same for all."""
  names = dict.fromkeys(name for fact in facts for name in fact)
  return [name for name in names if len({f.get(name) for f in facts}) > 1]


def _name(agent: str, fact: Mapping[str, str], differing: list[str]) -> str:
  parts = [
    f'{_short(name, differing)}={fact.get(name, "default")}'
    for name in differing[:_SHOWN]
  ]
  if hidden := [f'{name} = {fact.get(name)}' for name in differing[_SHOWN:]]:
    digest = hashlib.sha256('\n'.join(hidden).encode()).hexdigest()
    parts.append(f'config {digest[:6]}')
  return f'{agent} [{", ".join(parts)}]' if parts else agent


def _short(name: str, names: list[str]) -> str:
  """A parameter's name without its class, where that is enough."""
  last = name.rsplit('.', 1)[-1]
  is_unique = sum(other.rsplit('.', 1)[-1] == last for other in names) == 1
  return last if is_unique else name


def _group(runs: list[Run], names: Mapping[str, str]) -> Grouped:
  def order(name):
    known = [i for i, agent in enumerate(AGENTS) if name.startswith(agent)]
    parts = re.split(r'(\d+)', name)
    numbers = [(int(p), '') if p.isdigit() else (-1, p) for p in parts]
    return ('online' in name, known[-1] if known else len(AGENTS), numbers)

  grouped: Grouped = {}
  for name in sorted({names[run.directory] for run in runs}, key=order):
    by_game = grouped.setdefault(name, {})
    for run in runs:
      if names[run.directory] == name:
        by_game.setdefault(run.game, []).append(run)
  return grouped


def notes_on(grouped: Grouped) -> list[str]:
  """What a reader of these runs, by method and game, has to know."""
  by_game: dict[str, list[Run]] = collections.defaultdict(list)
  for games in grouped.values():
    for game, runs in games.items():
      by_game[game] += runs
  everything = [run for runs in by_game.values() for run in runs]
  return [
    *_differences(by_game),
    *_against_reference(everything),
    *_about_runs(everything),
    *_about_numbers(grouped),
  ]


def _differences(by_game: dict[str, list[Run]]) -> list[str]:
  """Of methods that are compared in a game."""
  facts = {
    run.directory: {**run.protocol, 'iterations': str(run.done)}
    for runs in by_game.values()
    for run in runs
  }
  notes = []
  for name in dict.fromkeys(name for fact in facts.values() for name in fact):
    where = {
      game: sorted({facts[run.directory].get(name, '?') for run in runs})
      for game, runs in by_game.items()
    }
    if differing := [game for game, values in where.items() if len(values) > 1]:
      notes.append(
        f'Methods differ in {name} ({", ".join(where[differing[0]])}) in '
        f'{_some(differing)}: compare them with care.'
      )
  return notes


def _against_reference(runs: list[Run]) -> list[str]:
  """Of runs and the reference scores that they are normalised by."""
  notes = []
  runs = [run for run in runs if run.game in normalisation.load()]
  for name, expected in REFERENCE.items():
    found = {run.protocol.get(name, '?') for run in runs} - {'?', expected}
    if found:
      notes.append(
        f'Evaluated with {name} {", ".join(sorted(found))}; the reference scores '
        f'are of {expected}.'
      )
  others = {
    run.game
    for run in runs
    if run.protocol.get('rom', '?') != '?' and _rom(run) != "the dataset's"
  }
  if others:
    notes.append(
      'Evaluated on another ROM than the one that the dataset and its online DQN '
      f'played: {_some(sorted(others))}.'
    )
  return notes


def _about_runs(runs: list[Run]) -> list[str]:
  notes = []
  if unknown := sorted(r.directory for r in runs if '?' in r.protocol.values()):
    notes.append(
      'How these were evaluated (epsilon, sticky actions, ROM) is not recorded: '
      f'{_some(unknown)}.'
    )
  if changed := sorted(r.directory for r in runs if r.about.get('changes')):
    notes.append(
      'Something was changed while these went on (settings, data or versions, see '
      f'their run.json): {_some(changed)}.'
    )
  roots = sorted(
    {data_root(run) for run in runs if run.about.get('replay_dir')}
  )
  if len(roots) > 1:
    notes.append(
      f'Trained on logs in different places: {_some(roots)}; make sure that they '
      'are of the same dataset.'
    )
  return notes


def _about_numbers(grouped: Grouped) -> list[str]:
  notes = []
  for method, games in grouped.items():
    one = [
      game
      for game, runs in games.items()
      if len(runs) > 1 and len({run.data for run in runs}) == 1 and runs[0].data
    ]
    if one:
      notes.append(
        f'{method}: all runs of {_some(one)} trained on the same log; their '
        'intervals are over seeds, not over data.'
      )
  fewest = min(
    (len(r) for g in grouped.values() for r in g.values()), default=3
  )
  if fewest < 3:
    notes.append(
      f'Some scores are of {fewest} run{"s" if fewest > 1 else ""} only: their '
      'intervals say little.'
    )
  return notes


def _some(names: list[str], most: int = 4) -> str:
  shown = ', '.join(names[:most])
  more = len(names) - most
  return f'{shown} and {more} more' if more > 0 else shown
