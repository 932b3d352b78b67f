import json

import pytest

from batch_rl.dataset.shards import manifests

MANIFEST = {
  'manifest_version': 1,
  'environment': {'game': 'Pong'},
  manifests.TRUNCATED_ROWS: [3],
}


def test_a_manifest_is_read_as_it_was_written(tmp_path):
  manifests.write(str(tmp_path), MANIFEST)
  assert manifests.read(str(tmp_path)) == MANIFEST
  # Earlier versions wrote no hash.
  (tmp_path / manifests.FILE_NAME).write_text(json.dumps(MANIFEST))
  assert manifests.read(str(tmp_path)) == MANIFEST


@pytest.mark.parametrize(
  ('damage', 'message'),
  [
    (lambda m: m.pop(manifests.TRUNCATED_ROWS), 'hash'),
    (lambda m: m['environment'].update(game='Qong'), 'hash'),
    (lambda m: m.pop('manifest_version'), 'manifest_version'),
    (lambda m: m.update(manifest_version=2), 'manifest_version is 2'),
  ],
)
def test_a_changed_manifest_is_damaged(tmp_path, damage, message):
  manifests.write(str(tmp_path), MANIFEST)
  path = tmp_path / manifests.FILE_NAME
  manifest = json.loads(path.read_text())
  damage(manifest)
  path.write_text(json.dumps(manifest))
  with pytest.raises(ValueError, match=f'{path} is damaged: .*{message}'):
    manifests.read(str(tmp_path))
