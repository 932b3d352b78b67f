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
    (lambda m: m.pop(manifests.TRUNCATED_ROWS), 'damaged: .* its hash'),
    (lambda m: m['environment'].update(game='Qong'), 'damaged: .* its hash'),
    (
      lambda m: m.pop('manifest_version'),
      'damaged: .*manifest_version; restore',
    ),
    (lambda m: m.update(manifest_version=2), 'version 2.* a later batch_rl'),
  ],
)
def test_a_changed_manifest_is_refused(tmp_path, damage, message):
  manifests.write(str(tmp_path), MANIFEST)
  path = tmp_path / manifests.FILE_NAME
  manifest = json.loads(path.read_text())
  damage(manifest)
  path.write_text(json.dumps(manifest))
  with pytest.raises(ValueError, match=f'{path} .*{message}'):
    manifests.read(str(tmp_path))
