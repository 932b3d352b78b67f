"""YAML files that are ambiguous, or made to use up memory."""

import pytest

from batch_rl.sweep import yaml_file


def read(tmp_path, text):
  (tmp_path / 'a.yaml').write_text(text, encoding='utf-8')
  return yaml_file.read(str(tmp_path / 'a.yaml'))


def test_aliases_and_merges_are_read(tmp_path):
  text = 'a: &a {x: 1, y: 2}\nb: *a\nc: {<<: *a, x: 3}\nd: {<<: *a}\n'
  assert read(tmp_path, text) == {
    'a': {'x': 1, 'y': 2},
    'b': {'x': 1, 'y': 2},
    'c': {'x': 3, 'y': 2},
    'd': {'x': 1, 'y': 2},
  }


BOMB = 'a0: &a0 [1]\n' + ''.join(
  f'a{i}: &a{i} [{", ".join([f"*a{i - 1}"] * 10)}]\n' for i in range(1, 10)
)


@pytest.mark.parametrize(
  'text, message',
  [
    ('seeds: 1\nruns: 2\nseeds: 3', r'seeds is given twice.*line 3'),
    ('grid: {a: 1, a: 1}', 'a is given twice'),
    ('[' * 5000 + ']' * 5000, 'is nested too deeply'),
    (BOMB, 'more than 100,000 values'),
    ('a: &a [*a]', 'an alias is a part of itself'),
    ('a: 2026-13-40', 'is not valid YAML: month must be in 1..12'),
    ('a: ' + '9' * 5000, 'is not valid YAML: Exceeds the limit'),
    ('a: !!python/object:os.system 1', 'is not valid YAML'),
  ],
)
def test_other_files_are_refused(tmp_path, text, message):
  with pytest.raises(ValueError, match='(?s)a.yaml.*' + message):
    read(tmp_path, text)
