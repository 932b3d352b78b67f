"""Functions are recorded, and found again in another process."""

import functools
import json
import pathlib

import numpy as np
import pytest

from batch_rl.tests import user_code
from batch_rl.utils.user_code import function_records, user_modules


def test_a_function_is_found_again_by_its_description(own_folder):
  code = 'def make(*args, **kwargs): return args, kwargs'
  user_code.write(own_folder / 'mine.py', code)
  user_modules.add_folder('')
  make, path = user_modules.load('mine.make'), pathlib.Path('a')
  inner = functools.partial(make, 1, path=path, weight=2)
  description = function_records.describe(functools.partial(inner, 3, weight=4))
  assert description == {
    'name': 'mine:make',
    'args': [1, 3],
    'kwargs': {'path': 'a', 'weight': 4},
  }
  function = function_records.load(json.loads(json.dumps(description)))
  assert function(5) == ((1, 3, 5), {'path': 'a', 'weight': 4})
  with pytest.raises(ValueError, match=f"'mien' for mien.make: .*{own_folder}"):
    function_records.load({'name': 'mien:make'})


def test_a_function_of_the_main_program_is_found_by_its_file(own_folder):
  script = '\ufeffdef make(): return 7\n'  # as editors on Windows begin
  end = "if __name__ == '__main__': 1 / 0"
  guarded = user_code.write(own_folder / 'guarded.py', script + end)
  renamed = user_code.write(own_folder / 'program', script + end)
  path = user_code.write(own_folder / 'unguarded.py', script)
  assert function_records.load({'name': f'{guarded}:make'})() == 7
  for name, message in (
    (f'{path}:make', f'{path} .*__name__'),
    (f'{guarded}:mak', 'guarded.py has no mak'),
    (f'{renamed}:make', 'rename it'),
    ('/gone.py:make', 'gone.py'),
  ):
    with pytest.raises(ValueError, match=message):
      function_records.load({'name': name})


def test_a_function_that_cannot_be_imported_is_named():
  def local():
    pass

  for function, name in (
    (local, '.*local'),
    (lambda: 1, '.*<lambda>'),
    (functools.partial(pathlib.Path, [{1: 2}]), r'\[\{1: 2\}\] of Path'),
    (functools.partial(pathlib.Path, np.zeros(2)), r'array\(\[0., 0.\]\)'),
  ):
    with pytest.raises(ValueError, match=name):
      function_records.load(function_records.describe(function))
