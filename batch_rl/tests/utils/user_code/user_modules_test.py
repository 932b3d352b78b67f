"""A user's own modules: found, imported, and named in records."""

import os
import sys
import types

import numpy as np
import pytest

from batch_rl.tests import user_code
from batch_rl.utils.user_code import user_modules


@pytest.mark.parametrize('path', ['mine/__init__.py', 'no_package/part.py'])
def test_a_folder_comes_after_installed_packages(own_folder, path, monkeypatch):
  user_code.write(own_folder / 'numpy.py', 'raise RuntimeError')
  user_code.write(own_folder / path, 'value = 1')
  name = path[:-3].removesuffix('/__init__').replace('/', '.')
  user_modules.add_folder('')
  user_modules.add_folder(str(own_folder))
  assert sys.path.count(str(own_folder)) == 1
  assert user_modules.find('numpy.array') is None
  assert user_modules.find(f'{name}.value') == str((own_folder / path).parent)
  assert name not in sys.modules
  assert user_modules.load(f'{name}.value') == 1
  assert str(own_folder) in user_modules.loaded_folders()
  assert os.path.dirname(np.__path__[0]) not in user_modules.loaded_folders()
  # multiprocessing's second name of a script.
  monkeypatch.setitem(sys.modules, '__mp_main__', sys.modules[name])
  found = user_modules.loaded_code()
  assert name in found and '__mp_main__' not in found
  with pytest.raises(ValueError, match='numpy.* has no MyAgent'):
    user_modules.load('numpy.MyAgent')


OWN_CODE = """
from batch_rl.utils import choices
import numpy as np
def misuse(module=choices):
  module.choose('colour', 'blue', ['green'])
def wrong_call(module=choices):
  module.short(b'name', [])
def wrong_shapes():
  np.zeros(3) + np.zeros(4)
"""


def test_whose_error_it_is(own_folder):
  user_code.write(own_folder / 'mine.py', OWN_CODE)
  user_code.write(own_folder / 'broken.py', 'def broken(:')
  user_modules.add_folder('')
  for name, is_users in (
    ('mine.wrong_shapes', True),
    *(('mine.misuse', False), ('mine.wrong_call', True)),
    ('broken.MyAgent', True),
  ):
    with pytest.raises((ValueError, TypeError, SyntaxError)) as raised:
      user_modules.load(name)()
    assert user_modules.is_raised_by_user(raised.value) == is_users
  with pytest.raises(ValueError) as raised:  # without code of the user
    np.zeros(3) + np.zeros(4)
  assert not user_modules.is_raised_by_user(raised.value)


@pytest.mark.parametrize(
  'main, module, dotted',
  [
    ({'__spec__': types.SimpleNamespace(name='a.b')}, 'a.b', 'a.b.Mine'),
    ({'__file__': '/x/mine.py', '__spec__': None}, '/x/mine.py', 'mine.Mine'),
    ({}, '<interpreter>', '__main__.Mine'),
  ],
)
def test_classes_of_a_main_program_are_named(monkeypatch, main, module, dotted):
  """Of a module by `python -m`, of a file, and of an interactive session."""
  monkeypatch.setitem(sys.modules, '__main__', types.SimpleNamespace(**main))
  assert user_modules.main_module() == module
  mine = type('Mine', (), {'__module__': '__main__'})
  assert user_modules.dotted_name(mine) == dotted
