"""The names that users type: their signatures, and who shows and imports them."""

import ast
import functools
import importlib
import inspect
import pathlib
import re
import sys

import pytest

from batch_rl.tests import docs_test

pytest.importorskip('torch', reason='PyTorch is not installed')

FILE = pathlib.Path(__file__).with_name('public_api.txt')
TOPS = """batch_rl batch_rl.dataset batch_rl.dataset.torch batch_rl.dataset.jax
  batch_rl.agents batch_rl.agents.heads batch_rl.agents.backups batch_rl.agents.terms
  batch_rl.agents.policies batch_rl.multi_head batch_rl.fixed_replay
  batch_rl.baselines batch_rl.minatar batch_rl.report""".split()


def exported():
  tops = map(importlib.import_module, TOPS)
  found = {f'{m.__name__}.{n}': getattr(m, n) for m in tops for n in m.__all__}
  return {n: value for n, value in found.items() if not inspect.ismodule(value)}


@functools.cache
def definition(value):
  tree = ast.parse(inspect.getsource(sys.modules[value.__module__]))
  return next(n for n in tree.body if getattr(n, 'name', '') == value.__name__)


def members(value, exports):
  """Returns the definitions in a class, and in bases that are not exported."""
  found = {}
  for cls in getattr(value, '__mro__', ()):
    ours = cls.__module__.startswith('batch_rl.') and cls not in exports
    for node in definition(cls).body if ours or cls is value else ():
      name = getattr(getattr(node, 'target', node), 'id', '_')
      name = getattr(node, 'name', name)
      if not re.match('_(?!_)|__init_subclass__', name):
        found.setdefault(name, node)
  return list(found.values())


def test_signatures_have_types_and_were_reviewed(tmp_path):
  lines, exports = [], exported()
  for path, value in exports.items():
    for node in [definition(value), *members(value, exports.values())]:
      head = re.match(r'(?s)(@.*?\n)*.*?(\n|$)', ast.unparse(node))[0]
      # As Python 3.11 writes it.
      head = ' '.join(head.split()).replace('lambda :', 'lambda:')
      lines.append(f'{path}: {head.removesuffix(":")}\n')
      args = getattr(node, 'args', ast.arguments([], [], kwonlyargs=[]))
      every = *args.args, *args.kwonlyargs, args.vararg, args.kwarg
      untyped = {a.arg for a in every if a and not a.annotation}
      assert untyped <= {'self', 'cls'}, lines[-1]
  (tmp_path / FILE.name).write_text(''.join(lines))
  accept = f'To accept: cp {tmp_path / FILE.name} {FILE}'
  assert FILE.read_text() == ''.join(lines), accept


def test_the_reference_shows_these_names_and_users_import_no_others():
  root, imported = docs_test.ROOT, set()
  pages = ''.join(p.read_text() for p in root.glob('docs/reference/*.md'))
  assert sorted(re.findall(r'^::: (\S+)', pages, re.M)) == sorted(exported())
  examples = root.glob('examples/*/*.py')
  for page in (root / 'README.md', *docs_test.PAGES, *examples):
    text = page.read_text()
    found = re.findall(r'^from (batch_rl\S*) import (.+)', text, re.M)
    for top, names in found:
      imported |= {f'{top}.{name.split()[0]}' for name in names.split(', ')}
    imported |= {*re.findall(r'^import (batch_rl\S*)', text, re.M)}
  assert imported <= {*exported(), *TOPS}
