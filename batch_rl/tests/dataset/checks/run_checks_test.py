"""Checks of a whole run: its manifest, gaps, and shards that do not fit together."""

import shutil

import pytest

from batch_rl.dataset.checks import run_checks
from batch_rl.dataset.shards import manifests, shard_files
from batch_rl.tests import ring_logs, shards
from batch_rl.tests.dataset.checks import run_files as files
from batch_rl.tests.dataset.store import stores


def edit_manifest(logs, edit):
  manifest = manifests.read(str(logs))
  edit(manifest)
  manifests.write(str(logs), manifest)


def test_other_content_is_noted(logs):
  name = 'episode_end_indices_ckpt.1.gz'
  (logs / name).write_bytes(b'a pickle')
  (logs / 'partial').mkdir()
  (logs / manifests.FILE_NAME).unlink()
  ring_logs.remove_shard(logs, 0)
  assert files.is_well(logs)
  notes = ' '.join(finding.message for finding in files.findings(logs, 'note'))
  for text in (name, 'under way', 'only the format', 'begins with shard 1'):
    assert text in notes


def test_the_padding_is_that_of_the_manifest(tmp_path):
  shards.write_run(tmp_path, [30, 30], files.CAPACITY, stack_size=1)
  assert files.is_well(tmp_path)
  (tmp_path / manifests.FILE_NAME).unlink()
  assert not files.is_well(tmp_path)


def test_observations_are_those_of_the_manifest(logs):
  other = {'observation': ['|u1', [9, 9]]}
  edit_manifest(logs, lambda m: m['format']['columns'].update(other))
  errors = [finding.message for finding in files.findings(logs, 'error')]
  assert len(errors) == 3
  assert all('the run has |u1 (9, 9)' in error for error in errors)


MANIFEST_FAULTS = {
  'Shard 2 is in the manifest, but not in {logs}': (
    lambda logs: ring_logs.remove_shard(logs, 2)
  ),
  'Shard 2 is in {logs}, but not in the manifest': (
    lambda logs: edit_manifest(logs, lambda m: m['shards'].pop())
  ),
  'reward_ckpt.1.gz is not described by the manifest': (
    lambda logs: edit_manifest(
      logs, lambda m: m['shards'][1]['files'].pop('$store$_reward_ckpt.1.gz')
    )
  ),
  # The same values; gzip's own time stamp differs.
  'reward_ckpt.0.gz is not the file that the manifest describes': (
    lambda logs: files.flip_a_bit(files.file_of(logs, 'reward', 0), 4)
  ),
}


@pytest.mark.parametrize('problem', MANIFEST_FAULTS)
def test_manifest_and_directory_differ(logs, problem):
  MANIFEST_FAULTS[problem](logs)
  assert problem.format(logs=logs) in files.the_only(logs, 'error').message


def test_rows_lost_between_shards_are_found(tmp_path):
  """The original logger could lose rows, and wrote no manifest."""
  logs = tmp_path / 'replay_logs'
  shards.write_run(logs, [50, 50, 40], files.CAPACITY)
  assert files.is_well(logs)
  files.change(logs, 'add_count', 2, lambda count: count + 40)
  finding = files.the_only(logs, 'error')
  assert '40 rows are missing between shards 1 and 2' in finding.message
  # A count that cannot be read hides what depends on it only.
  files.flip_a_bit(files.file_of(logs, 'add_count', 1))
  files.change(logs, 'action', 2, lambda action: action - 9)
  named = ('add_count', 1), ('action', 2)
  paths = [str(files.file_of(logs, *file)) for file in named]
  assert [found.file for found in files.findings(logs, 'error')] == paths
  ring_logs.remove_shard(logs, 1)
  assert 'no shard between 0 and 2' in files.findings(logs, 'error')[-1].message


def test_files_of_another_shard_or_run_are_found(logs, tmp_path):
  shards.write_run(tmp_path / 'other', [90, 90], 50)
  stores.copy_shard(logs, 1, 2)
  (logs / manifests.FILE_NAME).unlink()
  wrong = run_checks.verify(str(logs)).problems
  assert [finding.level for finding in wrong] == ['error', 'suspicious']
  assert 'shard 2 repeats 40 rows of shard 1' in wrong[0].message
  assert wrong[1].file == str(files.file_of(logs, 'observation', 2))
  stores.copy_shard(tmp_path / 'other', 1, 1, to=logs)
  messages = [finding.message for finding in files.findings(logs, 'error')]
  assert 'two runs in one directory' in ' '.join(messages)


def test_a_run_without_rows_is_found(logs):
  for name in shard_files.COLUMNS:
    files.change(logs, name, 0, lambda column: column[:0])
  for suffix in (1, 2):
    ring_logs.remove_shard(logs, suffix)
  empty = [f for f in files.findings(logs, 'error') if 'no rows' in f.message]
  paths = {str(files.file_of(logs, name, 0)) for name in shard_files.COLUMNS}
  assert {finding.file for finding in empty} == paths


def test_repeated_frames_are_suspicious_in_atari_only(tmp_path):
  atari = {'repeat_action_probability': 0.25}
  for environment, level in ((atari, 'suspicious'), ({}, 'note')):
    logs = tmp_path / level
    shards.write_run(logs, [120], files.CAPACITY, environment=environment)
    path = files.file_of(logs, 'observation', 2)
    shutil.copy(files.file_of(logs, 'observation', 1), path)
    edit_manifest(logs, lambda manifest: manifest.pop('shards'))
    found = [f for f in files.findings(logs) if 'same frames' in f.message]
    assert [(f.file, f.level) for f in found] == [(str(path), level)]
