import dataclasses
import re

import pytest

from batch_rl.atari import roms
from batch_rl.report import aggregates, notes


@pytest.mark.parametrize(
  ('options', 'last', 'note'),
  [
    ({}, {}, None),
    ({'epsilon_eval': 0.1}, {}, 'epsilon 0.1; .* of the paper .* with 0.001'),
    ({'sticky': 0.0}, {}, 'sticky 0.0; the reference .* with 0.25'),
    ({'max_steps_per_episode': 100}, {}, 'frame cap 400; .* with 108000'),
    ({'rom_md5': roms.md5s('Amidar')['current']}, {}, 'another ROM .*Amidar'),
    ({}, {'root': '/other'}, '/data, /other; make sure'),
    ({}, {'data': 2, 'subset_hash': 'b'}, 'data of one name: Amidar/2'),
    ({'data': 2}, {}, 'runs of Amidar trained on the same log'),
    ({'data': 2}, {'data': 3}, 'runs of Amidar trained on the same log'),
    ({}, {'game': 'Alien'}, r'fewer than three runs \(1\)'),
    ({'init_checkpoint_dir': 'a'}, {'init_checkpoint_dir': 'b'}, 'in init_'),
    ({'code': {'own': 'a'}}, {'code': {'own': 'b'}}, 'DQN .* version of own'),
    ({}, {'changes': [['+ gamma = 0.5']]}, 'changed during .*run2'),
  ],
)
def test_one_reason_is_one_note(compare, options, last, note):
  """Three runs on three logs need none but that on the online DQN's scores."""
  options = {'game': 'Amidar', **options}
  compared = compare(
    *[([1.0], {'seed': i, 'data': i, **options}) for i in (1, 2)],
    ([1.0], {'seed': 3, 'data': 3, **options, **last}),
  )
  *found, last_note = notes.notes_on(compared.runs)
  assert "online DQN's scores are returns during its training" in last_note
  assert len(found) == (note is not None)
  assert not note or re.search(note, found[0])


def test_methods_with_one_note_are_counted(compare):
  runs = [
    ([1.0], {'seed': seed, 'agent': agent, 'game': 'Amidar'})
    for agent in ('c51', 'quantile', 'dqn')
    for seed in (1, 2, 3)
  ]
  compared = compare(*runs, ([1.0], {'agent': 'multi_head_dqn'}))
  shared, _, _ = notes.notes_on(compared.runs)
  assert shared.startswith('3 methods: runs of Amidar trained on the same log')
  found = aggregates.summarise(compared, 'final', 'dqn_final').notes
  assert [note.split(',')[0] for note in found] == [
    '3 methods lack 1 of 2 games',
    'REM lacks 1 of 2 games',
  ]


@pytest.mark.parametrize(
  ('options', 'departures'),
  [
    ({'sticky': 0.1}, []),
    ({'sticky': 0.0, 'epsilon_eval': 0.05}, ['epsilon 0.05', 'sticky 0.0']),
  ],
)
def test_minatar_has_its_own_reference(compare, options, departures):
  compared = compare(
    ([1.0], {'game': 'MinAtar-Breakout', **options}),
    ([1.0], {'game': 'Amidar'}),
  )
  in_minatar = compared.only('', ['MinAtar-Breakout']).runs
  assert 'training' not in str(notes.notes_on(in_minatar))
  noted = [n for n in notes.notes_on(compared.runs) if n.startswith('Eval')]
  assert len(noted) == len(departures)
  for note, departure in zip(noted, departures, strict=True):
    assert f'{departure} in MinAtar' in note


def test_differences_in_a_game(compare):
  compared = compare(
    ([1.0], {'game': 'Alien'}),
    ([1.0, 2.0], {'agent': 'c51', 'game': 'Alien', 'epsilon_eval': 0.1}),
    ([1.0], {'agent': 'c51', 'game': 'Amidar', 'epsilon_eval': 0.2}),
    ([1.0], {'game': 'Amidar', 'rom_md5': roms.md5s('Amidar')['current']}),
  )
  text = ' '.join(notes.notes_on(compared.runs))
  assert 'Methods differ in epsilon (0.001, 0.1, 0.2) in Alien, Amidar' in text
  assert "Methods differ in rom (ale-py's, the dataset's) in Amidar" in text
  assert 'Methods differ in iterations (1, 2) in Alien' in text
  assert not notes.notes_on([])


def test_a_run_without_a_record_of_its_protocol(compare):
  first, (method, last) = compare(([1.0], {}), ([1.0], {'agent': 'c51'})).runs
  last = dataclasses.replace(last, protocol=dict.fromkeys(last.protocol, '?'))
  found = notes.notes_on([first, (method, last)])
  (note,) = [note for note in found if last.directory in note]
  assert first[1].directory not in note
