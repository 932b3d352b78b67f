import os

from tensorflow_datasets.rl_unplugged import atari_utils, rlu_common

from batch_rl.dataset.unplugged import file_names


def test_names_and_counts_are_those_of_tfds():
  assert list(file_names.GAMES) == atari_utils._GAMES
  runs = {config.run for config in atari_utils.builder_configs()}
  assert runs == {1, 2, 3, 4, 5}
  for game in file_names.GAMES:
    prefix = atari_utils.file_prefix(f'gs://x/{file_names.FOLDER}', 3, game)
    count = atari_utils.num_shards(game, 50)
    assert file_names.count_of(game) == count
    for number, path in enumerate(rlu_common.get_files(prefix, count)):
      name = os.path.basename(path)
      assert file_names.format(3, number, count) == name
      assert file_names.parse(name) == file_names.FileName(3, number, count)


def test_other_names():
  for numbers in ('1-00050-of-00050', '1-0001-of-0050', '１-00001-of-00050'):
    assert file_names.parse(f'run_{numbers}') is None
  assert file_names.parse('run_1-00001-of-00050\n') is None
