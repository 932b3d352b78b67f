import hashlib
import os
import signal
from unittest import mock

import numpy as np
import pytest

from batch_rl import dataset
from batch_rl.dataset import run_directories
from batch_rl.dataset.checks import run_checks
from batch_rl.dataset.imports import episode_import, png_frames, store_import
from batch_rl.dataset.store import compression_dictionary
from batch_rl.dataset.store import store as store_lib
from batch_rl.tests import interchange_runs as runs

LENGTHS = (60, 45, 1, 80, 97, 30, 12)
# Those with a missing beginning are 'late'.
KINDS = {1: 'truncated', 3: 'late', 5: 'truncated'}
# Kills its process within part 1.
_IMPORT_UNTIL_KILLED = """
import os, signal, sys
from batch_rl.dataset.imports import store_import
from batch_rl.tests.dataset.imports import store_import_test
class KillingReader(store_import_test.ListReader):
  def read(self, part, frames=True):
    yield from super().read(part, frames)
    if part.number == 1:
      os.kill(os.getpid(), signal.SIGKILL)
reader = KillingReader(store_import_test.make_reader().episodes)
store_import.import_parts(reader, sys.argv[1])
"""


class ListReader(episode_import.EpisodeReader):
  """Reads episodes from memory.

  Args:
    parts: `(kind, (observation, action, reward))` of each episode, by the part.

  Attributes:
    reads: Names of the parts that were read.
  """

  directory = name = format = 'list'
  game, run, order, agent = 'Pong', '1', 'time', 'dqn'
  environment, last_step = runs.ENVIRONMENT, 'transition'

  def __init__(self, parts):
    self.parts = [
      episode_import.Part(number, f'part {number}', len(episodes))
      for number, episodes in parts.items()
    ]
    self.episodes = parts
    self.reads = []

  def read(self, part, frames=True):
    self.reads.append(part.name)
    for i, (kind, episode) in enumerate(self.episodes[part.number]):
      observation, action, reward = episode
      name = f'episode {i} of {part.name}'
      images = [png_frames.encode_png(frame) for frame in observation]
      yield episode_import.StoredEpisode(
        *(name, kind != 'late', kind != 'truncated', action.astype(np.int32)),
        *(np.clip(reward, -1, 1), reward, None),
        *(png_frames.PngFrames(name, images) if frames else None, i + 1),
      )

  def files_of(self, part):
    digest = hashlib.sha256()
    for _, episode in self.episodes[part.number]:
      for column in episode:
        digest.update(column.tobytes())
    file = {'bytes': part.size, 'mtime_ns': 0, 'sha256': digest.hexdigest()}
    return {part.name: file}


def make_reader(numbers=(0, 1, 2)):
  """Returns a reader of three, two and two episodes, in parts 0, 1 and 2."""
  logged = runs.make_episodes(*LENGTHS)
  episodes = [(KINDS.get(i), episode) for i, episode in enumerate(logged)]
  parts = {0: episodes[:3], 1: episodes[3:5], 2: episodes[5:]}
  return ListReader({n: parts[n] for n in numbers})


def expected(*chosen):
  """Returns the transitions of some of the episodes."""
  logged = runs.make_episodes(*LENGTHS)
  kinds = {i: KINDS[n] for i, n in enumerate(chosen) if n in KINDS}
  return runs.expected_transitions([logged[n] for n in chosen], kinds)


def test_each_part_becomes_a_shard_of_whole_episodes(tmp_path):
  target = str(tmp_path / 'store')
  summary = store_import.import_parts(make_reader(), target)
  assert summary['shards'] == 3 and summary['episodes'] == 7
  assert summary['truncated'] == 2 and summary['last_step'] == 'transition'
  runs.assert_same(runs.transitions(target), expected(*range(7)))
  opened = store_lib.Store(target)
  assert opened.suffixes == [0, 1, 2] and not opened.problems
  # Every episode has padding, except the one whose beginning is missing.
  rows = [60 + 45 + 1 + 9, 80 + 97 + 3, 30 + 12 + 6]
  assert np.diff(opened.starts).tolist() == rows
  (run,) = run_directories.find_runs(target)
  assert (run.game, run.name) == ('Pong', '1')
  report = run_checks.verify_store(run)
  assert not report.problems
  assert [entry['rows'] for entry in report.shards] == rows
  for i, episode in enumerate(dataset.open(target).trajectories()):
    assert len(episode.action) == LENGTHS[i]
    assert episode.begins_at_reset == (KINDS.get(i) != 'late')
    assert episode.ended == (KINDS.get(i) != 'truncated')


def test_parts_may_come_later_and_in_any_order(tmp_path):
  whole, grown = str(tmp_path / 'whole'), str(tmp_path / 'grown')
  made = store_import.import_parts(make_reader(), whole)
  assert store_import.import_parts(make_reader([2]), grown)['shards'] == 1
  runs.assert_same(runs.transitions(grown), expected(5, 6))
  assert store_import.import_parts(make_reader([2, 0]), grown)['shards'] == 2
  runs.assert_same(runs.transitions(grown), expected(0, 1, 2, 5, 6))
  reader = make_reader()
  assert store_import.import_parts(reader, grown)['hash'] == made['hash']
  assert reader.reads == ['part 1']
  runs.assert_same(runs.transitions(grown), runs.transitions(whole))


def test_a_killed_import_continues(tmp_path, run_code):
  target = str(tmp_path / 'store')
  run_code(_IMPORT_UNTIL_KILLED, target, returncode=-signal.SIGKILL)
  message = 'incomplete store: shards 1, 2 .* the same'
  with pytest.raises(ValueError, match=message):
    store_lib.Store(target)
  reader = make_reader()
  summary = store_import.import_parts(reader, target)
  assert reader.reads == ['part 1', 'part 2']
  assert summary['episodes'] == 7 and summary['shards'] == 3
  assert not [name for name in os.listdir(target) if name.endswith('.tmp')]
  runs.assert_same(runs.transitions(target), expected(*range(7)))


def test_a_shard_without_an_entry_is_left_out(tmp_path, monkeypatch):
  target, record = str(tmp_path), store_import.StoreImport._record

  def record_first(store, entry):
    if entry['suffix']:
      raise KeyboardInterrupt
    record(store, entry)

  monkeypatch.setattr(store_import.StoreImport, '_record', record_first)
  with pytest.raises(KeyboardInterrupt):
    store_import.import_parts(make_reader(), target)
  summary = store_import.import_parts(make_reader([0]), target)
  assert [summary[n] for n in ('shards', 'episodes', 'steps')] == [1, 3, 106]
  runs.assert_same(runs.transitions(target), expected(0, 1, 2))


def test_few_frames_are_in_memory_for_the_dictionary(tmp_path, monkeypatch):
  train = mock.Mock(wraps=compression_dictionary.train)
  monkeypatch.setattr(compression_dictionary, 'train', train)
  monkeypatch.setattr(store_import, '_TRAINING_FRAMES', 70)
  store_import.import_parts(make_reader(), str(tmp_path / 'store'))
  train.assert_called_once()
  [frames] = train.call_args.args
  first = np.concatenate([o for o, _, _ in runs.make_episodes(*LENGTHS)[:2]])
  np.testing.assert_array_equal(np.concatenate(frames), first[:70])


@pytest.mark.parametrize(
  ('other', 'last_step', 'message'),
  [
    ({}, 'observation', '--last_step=transition'),
    ({'game': 'Breakout'}, 'auto', r'Pong \(list\), not of run 1 of Breakout'),
    ({'name': 'other/1.1.0'}, 'auto', r'not of .* \(other/1.1.0\); choose'),
  ],
)
def test_another_run_or_dataset_is_refused(tmp_path, other, last_step, message):
  store_import.import_parts(make_reader([0]), str(tmp_path))
  before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
  reader = make_reader([1])
  vars(reader).update(other)
  with pytest.raises(ValueError, match=message):
    store_import.import_parts(reader, str(tmp_path), last_step=last_step)
  assert {p.name: p.read_bytes() for p in tmp_path.iterdir()} == before


def test_an_assumed_last_step_is_called_so(tmp_path):
  first, later = make_reader([0]), make_reader()
  first.last_step = later.last_step = None
  for _, (_, _, reward) in first.episodes[0]:
    reward[-1] = 0
  store_import.import_parts(first, str(tmp_path))
  message = r'is a transition, but .* an observation \(assumed: no terminal'
  with pytest.raises(episode_import.LastStepError, match=message):
    store_import.import_parts(later, str(tmp_path))


def test_a_copy_and_a_part_without_transitions_are_left_out(tmp_path):
  target = str(tmp_path / 'store')
  reader = make_reader()
  reader.episodes[1] = reader.episodes[0]
  reader.episodes[2] = [('truncated', runs.make_episodes(1)[0])]
  assert store_import.import_parts(reader, target) == {
    'left_out': {
      'part 1': 'part 1 is a copy of part 0: fetch the file again.',
      'part 2': 'part 2 in list has no transitions.',
    }
  }
  with pytest.raises(ValueError, match='incomplete store: shards 1, 2'):
    store_lib.Store(target)
