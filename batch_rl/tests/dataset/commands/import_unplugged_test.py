import os
import pathlib
import re

import numpy as np
import pytest

from batch_rl.dataset import logged_run
from batch_rl.dataset.unplugged import file_names
from batch_rl.tests import interchange_runs as runs
from batch_rl.tests.dataset.unplugged import unplugged_files

LENGTHS = (30, 20, 25)
NUMBERS = (0, 1, 3)


@pytest.fixture(scope='module')
def folder(tmp_path_factory):
  """Files 0, 1 and 3 of run 1, and file 0 of run 2."""
  folder = tmp_path_factory.mktemp('unplugged') / file_names.FOLDER / 'Pong'
  unplugged_files.write_run(folder, 1, NUMBERS)
  unplugged_files.write_run(folder, 2, [0])
  return folder


def same(directory, numbers=NUMBERS):
  """Compares with the episodes of run 1, whose rewards are clipped."""
  made = [
    (episode.observation, episode.action, np.clip(episode.reward, -1, 1))
    for number in numbers
    for episode in unplugged_files.random_episodes(*LENGTHS, seed=100 + number)
  ]
  runs.assert_same(runs.transitions(directory), runs.expected_transitions(made))


def test_checkpoints_may_be_chosen_and_added(folder, tmp_path, run):
  target = tmp_path / 'store'
  for chosen, numbers in (('3', [3]), ('0-1', [0, 1, 3])):
    options = '--run=1', f'--checkpoints={chosen}'
    assert 'no files' not in run.output('import', folder, target, *options)
    same(target, numbers)
  # Without a choice, files that do not exist are named, unless imported earlier.
  for source in (folder / file_names.format(1, 3, 50), folder):
    out = run.output('import', source, target, '--run=1')
    assert 'no files of checkpoints 2,4-49' in out
  assert 'Pong, 9 episodes, 225 steps' in out and 'gaps' not in out
  assert 'terminal steps: transition' in out
  assert logged_run.open(target).store.suffixes == list(NUMBERS)
  assert f'{target}: ok (' in run.output('verify', target)


def test_a_wrong_assumption_on_terminal_steps_has_a_way_out(tmp_path, run):
  folder = tmp_path / 'Pong'
  silent, telling = unplugged_files.random_episodes(30, 20)
  silent.reward[-1] = 0
  for number, episode in enumerate([silent, telling]):
    name = file_names.format(1, number, 50)
    unplugged_files.write_file(folder / name, [episode], number)
  target = tmp_path / 'observation'
  out = run.output('import', folder, target, '--checkpoints=0')
  assert 'terminal steps: observation, assumed' in out
  err = run.error('import', folder, target)
  for kind, steps in (('observation', 48), ('transition', 50)):
    option = f'--last_step={kind}'
    out = run.output('import', folder, tmp_path / kind, option)
    assert option in err and f'2 episodes, {steps} steps' in out


@pytest.mark.parametrize(
  'place, changed, doubts',
  [
    ((1, 2), {'episode_return': [500.0]}, '1 .* sum of rewards; .* 2 of {}'),
    ((0, 1), {'discounts': [0.5] * 19 + [0.0]}, '1 .* 0 and 1; .* 1 of {}'),
    ((0, 1), {'episode_idx': [-1]}, '1 .* the one before; .* 1 of {}'),
    ((1, 0), {'checkpoint_idx': [7]}, '1 gaps in .* {}'),
    ((1, 0), {'episode_idx': [1]}, '1 gaps in .* {}'),
    # The first discount means nothing; a truncated episode may have had more rewards.
    ((1, 2), {'discounts': [0.5] + [1.0] * 24, 'episode_return': [500.0]}, ''),
  ],
)
def test_doubts_are_counted_and_kept(tmp_path, run, place, changed, doubts):
  names = [file_names.format(1, number, 50) for number in (0, 1)]
  for number, name in enumerate(names):
    records = []
    for i, episode in enumerate(unplugged_files.random_episodes(*LENGTHS)):
      values = unplugged_files.features(episode, number, 2 * number + i)
      values |= changed if place == (number, i) else {}
      records.append(unplugged_files.serialize(values))
    unplugged_files.write_records(tmp_path / 'Pong' / name, records)
  for _ in range(2):  # The second import finds the store.
    document = run.document('import', tmp_path / 'Pong', tmp_path / 'store')
    found = '; '.join(document['doubts'])
    assert re.fullmatch(doubts.format(names[place[0]]), found), found


def test_a_damaged_file_is_named_and_the_others_are_kept(tmp_path, run):
  folder, store = tmp_path / 'Pong', tmp_path / 'store'
  path = pathlib.Path(unplugged_files.write_run(folder, 1, [0, 1])[1])
  content = path.read_bytes()
  path.write_bytes(content[:-2000])
  out = run.output('import', folder, store, code=1)
  assert out.count('left out: ') == 1
  assert str(path) in out and '--checkpoints' in out
  assert 'run the same import again' in run.error('verify', store)
  kept = os.stat(store / 'shard-0.bin').st_mtime_ns
  path.write_bytes(content)
  run.output('import', folder, store)
  assert os.stat(store / 'shard-0.bin').st_mtime_ns == kept
  same(store, [0, 1])


def test_mistakes_are_one_line(folder, tmp_path, run, monkeypatch):
  monkeypatch.chdir(folder)
  for source, *options, message in (
    ('..', f'choose one, e.g. {folder}'),
    ('.', '--run=3', 'no files of run 3, but of 1-2'),
    ('.', '--run=1', '--checkpoints=1-3', 'checkpoints 2, but of 0-1,3'),
  ):
    assert message in run.error('import', source, tmp_path / 'store', *options)
    assert not (tmp_path / 'store').exists()
  out = run.output('import', '.', tmp_path / 'store', '--run=2')
  assert 'Pong, 3 episodes' in out
