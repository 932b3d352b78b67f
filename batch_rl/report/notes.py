"""Notes on a comparison: differences and gaps that a reader should know."""

import itertools

from batch_rl.minatar import games as minatar
from batch_rl.report import normalisation
from batch_rl.report.comparison import Runs, listed, rom_name, rows
from batch_rl.report.run_results import RunResults

# Protocols of the random agent and of the online DQN of the normalisers.
REFERENCE = {'epsilon': '0.001', 'sticky': '0.25', 'frame cap': '108000'}
MINATAR_REFERENCE = {'epsilon': '0.001', 'sticky': '0.1', 'frame cap': '27000'}


def notes_on(runs: Runs) -> list[str]:
  """Returns the notes on `Comparison.runs`."""
  by_game: dict[str, list[RunResults]] = {}
  for _, run in rows(runs):
    by_game.setdefault(run.game, []).append(run)
  every = list(itertools.chain(*by_game.values()))
  return [
    *_differences(by_game),
    *_departures_from_reference(every),
    *_uncertain_runs(every),
    *_small_samples(runs),
  ]


def _differences(by_game: dict[str, list[RunResults]]) -> list[str]:
  """Returns notes on different protocols of methods in a game."""
  protocols = {
    game: [{**run.protocol, 'iterations': str(run.done)} for run in runs]
    for game, runs in by_game.items()
  }
  notes = []
  for name in dict.fromkeys(
    itertools.chain(*itertools.chain(*protocols.values()))
  ):
    values = {
      game: {protocol.get(name, '?') for protocol in found}
      for game, found in protocols.items()
    }
    if differing := [game for game in values if len(values[game]) > 1]:
      example = ', '.join(sorted(values[differing[0]]))
      notes.append(
        f'Methods differ in {name} ({example}) in {listed(differing)}: compare '
        'them with care.'
      )
  return notes


def _departures_from_reference(runs: list[RunResults]) -> list[str]:
  """Returns notes on protocols that differ from that of the reference scores."""
  notes = []
  runs = [run for run in runs if run.game in normalisation.load()]
  of_minatar = [run for run in runs if minatar.is_minatar(run.game)]
  of_atari = [run for run in runs if not minatar.is_minatar(run.game)]
  for family, where, reference in (
    (of_atari, '', REFERENCE),
    (of_minatar, ' in MinAtar', MINATAR_REFERENCE),
  ):
    for name, expected in reference.items():
      values = {run.protocol.get(name, '?') for run in family} - {'?', expected}
      if values:
        notes.append(
          f'Evaluated with {name} {", ".join(sorted(values))}{where}; the reference '
          f'scores were measured with {expected}.'
        )
  others = {
    run.game
    for run in of_atari
    if run.protocol.get('rom', '?') != '?' and rom_name(run) != "the dataset's"
  }
  if others:
    notes.append(
      'Evaluated on another ROM than the dataset and its online DQN: '
      f'{listed(sorted(others))}.'
    )
  return notes


def _uncertain_runs(runs: list[RunResults]) -> list[str]:
  """Returns notes on unknown protocols, changed settings, and roots of the data."""
  notes = []
  if unknown := sorted(r.directory for r in runs if '?' in r.protocol.values()):
    notes.append(
      'The protocol (epsilon, sticky actions, ROM) of these runs is not recorded: '
      f'{listed(unknown)}.'
    )
  if changed := sorted(
    run.directory for run in runs if run.provenance.get('changes')
  ):
    notes.append(
      'Settings, data or versions changed during these runs, see their run.json: '
      f'{listed(changed)}.'
    )
  roots = sorted(
    {run.data_root for run in runs if run.provenance.get('replay_dir')}
  )
  if len(roots) > 1:
    notes.append(
      f'Trained on logs in different directories: {listed(roots)}; make sure that '
      'they are of the same dataset.'
    )
  return notes


def _small_samples(runs: Runs) -> list[str]:
  """Returns notes on scores of few runs, or of one run of the dataset."""
  one_log: dict[str, list[str]] = {}
  sizes = [3]
  for method, by_game in runs.items():
    for game, group in by_game.items():
      sizes.append(len(group))
      data = {run.data for run in group}
      if len(group) > 1 and len(data) == 1 and data != {''}:
        one_log.setdefault(method, []).append(game)
  notes = [
    f'{method}: all runs of {listed(games)} trained on the same log; their '
    'intervals are over seeds, not over data.'
    for method, games in one_log.items()
  ]
  fewest = min(sizes)
  if fewest < 3:
    notes.append(
      f'Some scores are of {fewest} run{"s" if fewest > 1 else ""} only: their '
      'intervals say little.'
    )
  return notes
