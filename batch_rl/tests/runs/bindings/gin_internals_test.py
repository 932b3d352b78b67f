"""Private names of gin are used in one module, and mean the same."""

import pathlib
import re

import gin
import pytest

import batch_rl
from batch_rl.runs.bindings import bound, gin_internals

gin.constant('probe.TEN', 10)


def test_macros_and_constants():
  gin.parse_config('m = %probe.TEN\nn = %m\ntext = %gone')
  values = gin_internals.bound_values()
  constant, macro, missing = (
    values[name, 'gin.macro']['value'] for name in ('m', 'n', 'text')
  )
  assert gin_internals.is_constant(constant) and gin_internals.is_macro(macro)
  assert not gin_internals.is_constant(macro)
  assert not gin_internals.is_macro(constant) and not gin_internals.is_macro(3)
  assert gin_internals.constant('probe.TEN') == bound.resolve(macro) == 10
  with pytest.raises(ValueError, match='gone'):
    bound.resolve(missing)


def test_no_other_module_uses_private_names():
  package = pathlib.Path(batch_rl.__file__).parent
  private = re.compile(r'\b(gin|config|config_parser)\._\w')
  found = {
    path.name
    for path in package.rglob('*.py')
    if 'tests' not in path.parts and private.search(path.read_text('utf-8'))
  }
  assert found == {'gin_internals.py'}
