"""Notes on a comparison: differences and gaps that a reader should know."""

from collections.abc import Iterator
from typing import Any

import pandas as pd

from batch_rl.minatar import games as minatar
from batch_rl.report import normalisation
from batch_rl.report.comparison import Rows, data_that_differ, rom_name, subject
from batch_rl.report.run_results import RunResults
from batch_rl.utils import files

# Protocols of the reference scores.
REFERENCE = {'epsilon': '0.001', 'sticky': '0.25', 'frame cap': '108000'}
MINATAR_REFERENCE = {'epsilon': '0.001', 'sticky': '0.1', 'frame cap': '27000'}
# Atari's random agent has no epsilon, and its online DQN was not evaluated.
_SOURCES = {'epsilon': 'the scores of the paper'}
_TRAINING_RETURNS = (
  "On Atari, the online DQN's scores are returns during its training, with epsilon "
  '0.01; those of runs are of evaluations.'
)


def notes_on(rows: Rows) -> list[str]:
  """Returns the notes on `Comparison.runs`."""
  games = {run.game for _, run in rows} & normalisation.load().keys()
  is_on_atari = not all(map(minatar.is_minatar, games))
  return [
    *_differences(rows),
    *_departures_from_reference([run for _, run in rows]),
    *_uncertain_runs([run for _, run in rows]),
    *_differences_within(rows),
    *_small_samples(rows),
    *[_TRAINING_RETURNS] * is_on_atari,
  ]


def _differences(rows: Rows) -> Iterator[str]:
  """Yields notes on different protocols of methods in a game."""
  protocols = pd.DataFrame(
    {**run.protocol, 'rom': rom_name(run), 'iterations': str(run.done)}
    for _, run in rows
  )
  for name, column in protocols.items():
    values = column.groupby([run.game for _, run in rows]).unique()
    differing = values[values.map(len) > 1]
    if len(differing):
      yield (
        f'Methods differ in {name} ({", ".join(sorted(set().union(*differing)))}) in '
        f'{files.format_names(list(differing.index))}: compare them with care.'
      )


def _departures_from_reference(runs: list[RunResults]) -> Iterator[str]:
  """Yields notes on departures from the protocol of the reference scores."""
  values: dict[tuple[str, str, str], set[str]] = {}
  other_roms = set()
  for run in runs:
    if run.game not in normalisation.load():
      continue
    where, reference = '', REFERENCE
    if minatar.is_minatar(run.game):
      where, reference = ' in MinAtar', MINATAR_REFERENCE
    elif run.protocol['rom'] != '?' and rom_name(run) != "the dataset's":
      other_roms.add(run.game)
    for name, expected in reference.items():
      if (value := run.protocol[name]) not in ('?', expected):
        values.setdefault((name, where, expected), set()).add(value)
  for (name, where, expected), found in values.items():
    yield (
      f'Evaluated with {name} {", ".join(sorted(found))}{where}; '
      f'{_SOURCES.get(name + where, "the reference scores")} were measured with {expected}.'
    )
  if other_roms:
    yield (
      'Evaluated on another ROM than the dataset and its online DQN: '
      f'{files.format_names(other_roms)}.'
    )


def _uncertain_runs(runs: list[RunResults]) -> Iterator[str]:
  """Yields notes on unknown protocols, changed settings, and other data."""
  named = [r for r in runs if r.agent != 'Random']  # It has no epsilon.
  if unknown := {r.directory for r in named if '?' in r.protocol.values()}:
    yield (
      'The protocol (epsilon, sticky actions, ROM) of these runs is not recorded: '
      f'{files.format_names(unknown)}.'
    )
  if changed := {r.directory for r in runs if r.provenance['changes']}:
    yield (
      'Settings, data or versions changed during these runs, see their run.json: '
      f'{files.format_names(changed)}.'
    )
  if other := data_that_differ(runs):
    yield (
      f'Trained on different data of one name: {files.format_names(other)}; compare '
      'shards and subset_hash in runs.csv.'
    )
  roots = {r.data_root for r in runs if r.provenance['replay_dir']}
  if len(roots) > 1:
    yield (
      f'Trained on logs in different directories: {files.format_names(roots)}; make sure '
      'that they are of the same dataset.'
    )


def _differences_within(rows: Rows) -> list[str]:
  """Returns notes on methods whose runs differ in the user's code, or in their start."""
  values: dict[tuple[str, str], set[str]] = {}
  for method, run in rows:
    pairs = [
      (f'{name} in {run.game}', run.provenance[name])
      for name in ('init_checkpoint_dir', 'offline_dir')
    ]
    for version in filter(None, run.provenance['code'].split(', ')):
      module, digits = version.rsplit(maxsplit=1)
      pairs.append((f'the version of {module}', digits))
    for name, value in pairs:
      values.setdefault((method, name), set()).add(value)
  return [
    f'Runs of {method} differ in {name}: see runs.csv.'
    for (method, name), found in values.items()
    if len(found) > 1
  ]


def _small_samples(rows: Rows) -> Iterator[str]:
  """Yields notes on scores of few runs, or of runs that share a log."""
  data: dict[tuple[str, str], list[Any]] = {}
  for method, run in rows:
    log = run.data and (run.provenance.get('subset_hash') or run.data)
    data.setdefault((method, run.game), []).append(log)
  shared: dict[str, list[str]] = {}
  for (method, game), logs in data.items():
    if len(set(logs)) < len(logs) and all(logs):
      shared.setdefault(method, []).append(game)
  groups: dict[str, list[str]] = {}
  for method, games in shared.items():
    groups.setdefault(files.format_names(games), []).append(method)
  for names, methods in groups.items():
    yield (
      f'{subject(methods)}: runs of {names} trained on the same log; their '
      'intervals take them for independent, and are over seeds rather than data.'
    )
  fewest = min(map(len, data.values()), default=3)
  if fewest < 3:
    yield (
      f'Some scores are of fewer than three runs ({fewest}): their intervals say '
      'little.'
    )
