"""Atomic and durable writes."""

from batch_rl.utils import files


def test_a_file_is_durable_before_it_is_renamed(tmp_path, synced):
  files.write_bytes(str(tmp_path / 'file'), b'content')
  assert (tmp_path / 'file').read_bytes() == b'content'
  assert synced == ['file.tmp', tmp_path.name]
  files.write_json(str(tmp_path / 'file'), [1])
  assert files.read_json(str(tmp_path / 'file')) == [1]
  assert synced[2:] == ['file.tmp', tmp_path.name]


def test_durability_is_optional(tmp_path, synced):
  files.write_bytes(str(tmp_path / 'file'), b'content', durable=False)
  files.write_json(str(tmp_path / 'other'), [1], durable=False)
  assert not synced
