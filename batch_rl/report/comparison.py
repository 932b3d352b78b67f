"""Groups runs by method and game, and selects the scores that can be compared.

Runs of one agent with different configurations or protocols are reported as separate
methods, named by the difference: `REM [num_heads=50]`, `DQN (Adam) [epsilon=0.01]`.
"""

import collections
import dataclasses
import hashlib
import re
from collections.abc import Iterable, Mapping

import pandas as pd

from batch_rl.atari import roms
from batch_rl.report.run_results import Excluded, RunResults
from batch_rl.runs import agent_names
from batch_rl.utils import choices, number_ranges, programs

KINDS = ('final', 'best')
_NAMED_DIFFERENCES = 3  # In the name of a method. A hash covers the others.
# Parts of the protocol that differ by game.
_OF_A_GAME = ('rom', 'environment')
Rows = list[tuple[str, RunResults]]  # Methods, in the paper's order, and runs.


@dataclasses.dataclass(frozen=True)
class Comparison:
  """Runs with the names of their methods.

  Attributes:
    runs: Runs that count.
    unfinished: Runs under way, for learning curves only.
    excluded: Directories of runs that do not count, with the reason.
  """

  runs: Rows
  unfinished: Rows
  excluded: list[Excluded]

  @property
  def methods(self) -> list[str]:
    """All methods, including those with runs under way only."""
    return list(dict.fromkeys(m for m, _ in [*self.runs, *self.unfinished]))

  @property
  def games(self) -> list[str]:
    """Games with runs that count."""
    return sorted({run.game for _, run in self.runs})

  @property
  def games_with_curves(self) -> list[str]:
    """Games with any run, including those under way."""
    return sorted({run.game for _, run in [*self.runs, *self.unfinished]})

  def scores(self, kind: str) -> dict[str, dict[str, list[float]]]:
    """Returns the scores of the runs that count, `{method: {game: scores}}`.

    Args:
      kind: 'final' or 'best'.

    Raises:
      ValueError: If the kind is unknown.
    """
    choices.choose('kind', kind, KINDS)
    scores: dict[str, dict[str, list[float]]] = {}
    for method, run in self.runs:
      by_game = scores.setdefault(method, {})
      by_game.setdefault(run.game, []).append(getattr(run, kind))
    return scores

  def select(self, method: str, game: str) -> list[RunResults]:
    """Returns the runs of a method in a game that count."""
    return [run for m, run in self.runs if (m, run.game) == (method, game)]

  def only(self, agents: str, games: Iterable[str]) -> 'Comparison':
    """Returns the part with some methods and games.

    Args:
      agents: Regular expression for the names of methods.
      games: Games to keep; empty for all.
    """
    games = set(games)

    def select(rows: Rows) -> Rows:
      rows = [row for row in rows if re.search(agents, row[0])]
      return [row for row in rows if not games or row[1].game in games]

    return Comparison(select(self.runs), select(self.unfinished), self.excluded)


def compare(
  runs: Iterable[RunResults], iterations: int | None = None
) -> Comparison:
  """Names the method of each run, and tells which runs count.

  Args:
    runs: Runs in any order.
    iterations: Number of first iterations to use; None for all. Shorter runs are left
      out.

  Raises:
    ValueError: If `iterations` is below 1.
  """
  if iterations is not None and iterations < 1:
    raise ValueError(f'iterations={iterations}: give at least 1.')
  excluded: list[Excluded] = []
  counted, unfinished = [], []
  for run in _drop_duplicates(runs, iterations, excluded):
    if iterations is not None and run.done < iterations:
      reason = f'it has {run.done} iterations, not --iterations={iterations}'
    elif iterations is None and not run.is_finished:
      reason = f'it is under way: {run.done} of {run.planned} iterations'
    else:
      counted.append(run.first(iterations))
      continue
    excluded.append((run.directory, reason))
    if not run.is_finished:
      unfinished.append(run)
  names = _method_names([*counted, *unfinished], by_length=iterations is None)

  def named(group: list[RunResults]) -> Rows:
    rows = [(names[run.directory], run) for run in group]
    return sorted(rows, key=lambda row: _order(row[0]))

  return Comparison(named(counted), named(unfinished), excluded)


def rom_name(run: RunResults) -> str:
  """Returns the ROM set of the run's ROM, or the start of its MD5 if unknown."""
  md5 = run.protocol.get('rom', '?')
  try:
    known = roms.md5s(run.game)
  except ValueError:
    return md5[:8]
  if md5 == known['legacy']:
    return "the dataset's"
  return "ale-py's" if md5 == known['current'] else md5[:8]


def _drop_duplicates(
  runs: Iterable[RunResults], iterations: int | None, excluded: list[Excluded]
) -> list[RunResults]:
  """Drops copies of a run, and runs with identical settings and seed.

  The longest of those that can count is kept.
  """

  def rank(run):
    counts = run.done >= iterations if iterations else run.is_finished
    return not counts, -run.done, run.directory

  kept: dict[tuple, RunResults] = {}
  for run in sorted(runs, key=rank):
    before = kept.setdefault(_identity(run), run)
    if before is not run:
      reason = f'duplicate of {before.directory} (a copy, or same recorded settings and seed)'
      excluded.append((run.directory, reason))
  return sorted(kept.values(), key=lambda run: (run.data, run.directory))


def _identity(run: RunResults) -> tuple:
  """Returns what is equal in a run and its copies, continued or not."""
  if not run.seed:
    if run_id := run.provenance.get('run_id'):
      return (run_id,)
    # A Dopamine log. Its copies have the same returns, but so have runs that never score.
    is_flat = len({*run.returns.tolist()}) == 1
    return run.agent, run.game, is_flat and run.directory, run.returns.tobytes()
  return (
    run.agent,
    run.game,
    run.seed,
    *sorted(run.config.items()),
    run.provenance.get('subset_hash') or (run.data, run.data_root),
    run.provenance.get('init_checkpoint_dir'),
    run.provenance.get('code'),
    *run.protocol.items(),
  )


def _method_names(runs: list[RunResults], by_length: bool) -> dict[str, str]:
  """Returns the name of each run's method, `{directory: name}`.

  Two runs have the same name if and only if all settings of the method are equal.
  """
  names = {}
  for agent in {run.agent for run in runs}:
    members = [run for run in runs if run.agent == agent]
    rows = [_settings(run, by_length) for run in members]
    settings = pd.DataFrame(rows, [run.directory for run in members])
    several = data_that_differ(members)
    if len({run.data_root for run in members if run.data in several}) > 1:
      settings['data'] = [run.data_root for run in members]
    differing = settings.loc[:, settings.nunique(dropna=False) > 1]
    for directory, values in differing.fillna('default').iterrows():
      names[str(directory)] = _name(agent, values.to_dict())
    _distinguish_environments(members, names)
  return names


def _settings(run: RunResults, by_length: bool) -> dict[str, str]:
  """Returns the settings of a method, without those of its games."""
  protocol = {k: v for k, v in run.protocol.items() if k not in _OF_A_GAME}
  if by_length:
    planned = run.planned if run.planned and not run.is_finished else run.done
    protocol['iterations'] = str(planned)
  return {**protocol, **run.config}


def data_that_differ(runs: Iterable[RunResults]) -> set[str]:
  """Returns the runs of the dataset, e.g. `Pong/1`, with several hashes of a subset."""
  hashes = collections.defaultdict(set)
  for run in runs:
    key = run.game, run.data, run.protocol.get('subset')
    hashes[key].add(run.provenance.get('subset_hash'))
  several = [key for key, found in hashes.items() if len(found) > 1]
  return {data for _, data, _ in several if data}  # Online runs have none.


def subject(methods: list[str], verb: str = '', plural: str = '') -> str:
  """Returns a subject and its verb: one method by name, several by their number."""
  if len(methods) == 1:
    return f'{methods[0]} {verb}'.rstrip()
  return f'{len(methods)} methods {plural}'.rstrip()


def _distinguish_environments(
  runs: list[RunResults], names: dict[str, str]
) -> None:
  """Adds ROM and environment to the name in games where a method has several."""
  for part in _OF_A_GAME:
    played = collections.defaultdict(list)
    for run in runs:
      played[names[run.directory], run.game].append(run)
    for group in played.values():
      texts = [run.protocol.get(part, '') for run in group]
      found = [{*re.split(r', (?=[^\s=,]+=)', text)} for text in texts]
      common = set.intersection(*found)
      for run, entries in zip(group, found, strict=True):
        text = ', '.join(sorted(entries - common))
        if text and part == 'rom':
          text = f'rom={rom_name(run)}'
        if text not in ('', 'default', "rom=the dataset's"):
          names[run.directory] += programs.printable(f' [{text}]')


def _name(agent: str, differing: Mapping[str, str]) -> str:
  """Returns the name of a method, with its settings that differ from others."""
  parts = [f'{choices.short(k, differing)}={v}' for k, v in differing.items()]
  if hidden := parts[_NAMED_DIFFERENCES:]:
    text = '\n'.join(hidden).encode(errors='backslashreplace')
    digest = hashlib.sha256(text).hexdigest()[:6]
    parts = [*parts[:_NAMED_DIFFERENCES], f'config {digest}']
  return programs.printable(f'{agent} [{", ".join(parts)}]' if parts else agent)


def _order(method: str) -> tuple:
  """Returns a sort key: the paper's order of agents, then numbers by value."""
  by_value = number_ranges.natural_key(method)
  return 'online' in method, agent_names.rank(method), by_value
