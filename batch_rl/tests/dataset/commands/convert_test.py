"""The command `convert`: a store takes the place of its run."""

import json

from batch_rl.tests.dataset.conftest import is_one_line


def test_a_store_takes_the_place_of_its_run(root, run):
  directory, path = root / 'Pong' / '1', root / 'stores' / 'pong'
  code, out, _ = run('convert', '--json', directory, path)
  document = json.loads(out)
  assert code == 0 and document['store'] == str(path)
  assert (document['shards'], document['rows']) == (2, 66)
  assert document['bytes_per_row'] == document['bytes'] / 66
  for arguments in (['inspect', '--json'], ['subset', '--json']):
    _, of_run, _ = run(*arguments, directory)
    code, of_store, _ = run(*arguments, path)
    assert code == 0
    documents = [json.loads(text) for text in (of_run, of_store)]
    for document in documents:
      document.pop('directory', None)
      document.pop('run', None)
      for entry in [*document.get('shards', []), document.get('total', {})]:
        entry.pop('bytes', None)
        entry.pop('bytes_per_transition', None)
    assert documents[0] == documents[1]
  videos = [root / '1.gif', root / '2.gif']
  for source, video in zip((directory, path), videos, strict=True):
    code, _, err = run('inspect', source, '--video', video)
    assert code == 0 and not err
  assert videos[0].read_bytes() == videos[1].read_bytes()
  code, out, _ = run('inspect', root / 'stores')
  first = out.splitlines()[1].split()
  assert code == 0 and first[:4] == ['Pong', '1', '2', '66']
  code, _, err = run('convert', path, root / 'again')
  assert code == 2 and is_one_line(err) and 'is already a store' in err
