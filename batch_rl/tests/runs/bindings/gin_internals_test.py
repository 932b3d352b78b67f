"""Each private name of gin that the package uses is there, and means the same."""

import pathlib
import re

import gin
import pytest
from gin import config, config_parser

import batch_rl
from batch_rl.runs.bindings import bound, gin_internals


@gin.configurable(module='probe')
def known(first=1, second=2):
  return first, second


gin.constant('probe.TEN', 10)


def value_of(text):
  gin.parse_config(f'known.first = {text}')
  return gin.query_parameter('known.first')


def test_bindings_and_what_was_read():
  gin.parse_config('known.first = 3\nscope/known.second = 4')
  assert gin_internals.bound_values()['', 'probe.known'] == {'first': 3}
  assert gin_internals.bound_values()['scope', 'probe.known'] == {'second': 4}
  assert known() == (3, 2)
  assert gin_internals.read_values()['', 'probe.known']['first'] == 3


def test_names_of_configurables():
  entry = gin_internals.find('known')
  assert entry.selector == 'probe.known'
  assert gin_internals.all_known()['probe.known'] is entry.wrapped
  assert gin_internals.selector_of(entry.wrapped) == 'probe.known'
  assert gin_internals.selector_of(int) is None
  assert gin_internals.find('nobodys') is None
  assert gin_internals.are_known('known')
  assert not gin_internals.are_known('nobodys')
  assert gin_internals.short_name('probe.known') == 'known'


def test_macros_constants_and_references():
  macro, constant = value_of('%m'), value_of('%probe.TEN')
  reference = gin_internals.PARSER_DELEGATE.configurable_reference(
    'known', evaluate=False
  )
  assert isinstance(reference, config.ConfigurableReference)
  assert [
    (gin_internals.is_macro(value), gin_internals.is_constant(value))
    for value in (macro, constant, reference, 3)
  ] == [(True, False), (False, True), (False, False), (False, False)]
  assert gin_internals.constant('probe.TEN') == 10
  assert bound.resolve(constant) == 10
  with pytest.raises(ValueError, match='neither a constant nor a macro'):
    bound.resolve(macro)


def test_imports_of_a_file():
  location = config_parser.Location('a.gin', 1, 0, 'import json')
  statement = config_parser.ImportStatement('json', False, None, location)
  with gin_internals.parse_scope() as context:
    context.process_import(statement)
    assert context.imports == [statement]
  assert 'import json' in gin.config_str()


def test_no_other_module_uses_private_names():
  package = pathlib.Path(batch_rl.__file__).parent
  private = re.compile(r'\b(gin|config|config_parser)\._\w')
  found = {
    path.name
    for path in package.rglob('*.py')
    if 'tests' not in path.parts and private.search(path.read_text('utf-8'))
  }
  assert found == {'gin_internals.py'}
