"""The commands `convert` and `subset`: a store takes the place of its run."""

from batch_rl.dataset.sampling import sampler, subsets
from batch_rl.dataset.store import store
from batch_rl.tests import ring_logs
from batch_rl.tests.dataset.checks import run_files
from batch_rl.tests.dataset.store import stores


def test_a_store_takes_the_place_of_its_run(root, run):
  directory, path = root / 'Pong' / '1', root / 'stores' / 'pong'
  document = run.document('convert', directory, path)
  assert document['store'] == str(path)
  assert (document['shards'], document['rows']) == (2, 66)
  assert document['bytes_per_row'] == document['bytes'] / 66
  text = 'random_trajectories(0.5)'
  found, videos = [], [root / '1.gif', root / '2.gif']
  for source, video in zip((directory, path), videos, strict=True):
    document = run.document('inspect', source, '--video', video)
    for entry in (document, document['total'], *document['shards']):
      for key in ('directory', 'run', 'video', 'bytes', 'bytes_per_transition'):
        entry.pop(key, None)
    found.append((document, video.read_bytes()))
    document = run.document('subset', source, text)
    assert document['subset'] == text
    assert document['trajectories'] == 1 and document['transitions'] == 30
    assert document['of_transitions'] == 60
    opened = store.Store(str(directory / 'replay_logs'), pack=False)
    expected = sampler.Sampler(opened, 4, subset=text, seed=0).subset_hash()
    assert document['hash'] == expected
    out = run.output('subset', source)
    assert 'agent steps   60, 100.00 % of the run' in out
  assert found[0] == found[1]
  out = run('inspect', root / 'stores')[1]
  assert out.splitlines()[1].split()[:4] == ['Pong', '1', '2', '66']
  assert 'is already a store' in run.error('convert', path, root / 'again')
  ring_logs.write_shard(root / 'empty', 0, 0, *[[0] * 40] * 4)
  assert run('subset', root / 'empty')[2].endswith('has no agent step.\n')


def test_a_store_is_no_sounder_than_its_run(root, run, caplog):
  logs = root / 'Pong/1/replay_logs'
  (logs / 'partial').mkdir()
  stores.copy_shard(logs, 0, 1)
  for command in (['inspect'], ['fingerprint'], ['convert', root / 'store']):
    error = run.error(command[0], logs, *command[1:])
    assert 'ckpt.1.gz is not the file that manifest.json describes' in error
  run_files.change(logs, 'action', 0, lambda action: action + 77)
  run.output('convert', logs, root / 'other')
  assert 'its last rows are not in a shard yet' in caplog.text
  out = run.output('verify', root / 'other', code=1)
  assert 'repeats' in out and ', but actions are 0 to 17 (wrong in' in out


def test_help_names_the_commands_and_all_subsets(run):
  assert 'Checks every file of a run.' in run('--help')[1]
  out = run.output('subset', '--help')
  for function in subsets.SUBSETS.values():
    assert f'\n  {subsets.usage(function)}\n      {function.__doc__}\n' in out
