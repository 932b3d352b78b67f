"""Records which tests call which functions of the package.

A copy of this file, named `sitecustomize.py`, runs at the start of each Python process
of the tests, also of programs that they start, and changes functions as they are
imported: each writes its name when a test first calls it. Tracing by the interpreter
would be several times as slow.

It imports nothing outside the standard library. Modules with compiled functions are
left as they are.
"""

import ast
import builtins
import importlib.abc
import importlib.machinery
import os
import sys

FOLDER = 'MUTANTS_CALLS'  # environment variable; unset: nothing is recorded
_CURRENT = 'PYTEST_CURRENT_TEST'  # set by pytest


class _Calls:
  """Writes each pair of a test and a function once, as soon as it is seen."""

  def __init__(self, folder: str):
    self.test = os.environ.get(_CURRENT, '').rpartition(' (')[0]
    self._last: dict[str, str] = {}
    self._folder, self._file, self._pid = folder, -1, -1

  def __call__(self, function: str) -> None:
    if self._last.get(function) is not self.test:
      self._last[function] = self.test
      if self.test:
        self._write(f'{self.test}\t{function}\n')

  def _write(self, line: str) -> None:
    if self._pid != os.getpid():  # A process of its own, or forked.
      self._pid = os.getpid()
      path = os.path.join(self._folder, f'{self._pid}.calls')
      self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(self._file, line.encode())


def is_compiled(source: bytes) -> bool:
  """Whether a module has functions that Numba compiles."""
  return b'compiled_code' in source or b'import njit' in source


def with_calls(source: bytes, module: str, filename: str) -> ast.Module:
  """Returns a module each of whose functions calls `__mutants_call__` first."""
  tree = ast.parse(source, filename)
  for name, function in _functions(tree, ()):
    first = function.body[0]
    call = ast.parse(f'__mutants_call__({module + ":" + name!r})').body[0]
    for node in ast.walk(call):
      ast.copy_location(node, first)
    documented = ast.get_docstring(function) is not None
    function.body.insert(int(documented), call)
  return tree


def _functions(node, names):
  for child in ast.iter_child_nodes(node):
    inner = names
    if isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
      inner = (*names, child.name)
      if not isinstance(child, ast.ClassDef):
        yield '.'.join(inner), child
    yield from _functions(child, inner)


class _Loader(importlib.machinery.SourceFileLoader):
  def get_code(self, fullname):
    source = self.get_data(self.path)
    if is_compiled(source):
      return compile(source, self.path, 'exec', dont_inherit=True)
    tree = with_calls(source, fullname, self.path)
    return compile(tree, self.path, 'exec', dont_inherit=True)


class _Finder(importlib.abc.MetaPathFinder):
  def find_spec(self, fullname, path, target=None):
    top, *below = fullname.split('.')
    if top != 'batch_rl' or 'tests' in below:
      return None
    spec = importlib.machinery.PathFinder.find_spec(fullname, path)
    if spec and isinstance(spec.loader, importlib.machinery.SourceFileLoader):
      spec.loader = _Loader(spec.loader.name, spec.loader.path)
    return spec


def start(folder: str) -> _Calls:
  """Records calls of modules that are imported from now on."""
  calls = _Calls(folder)
  builtins.__mutants_call__ = calls
  sys.meta_path.insert(0, _Finder())
  return calls


if __name__ == 'sitecustomize' and FOLDER in os.environ:
  start(os.environ[FOLDER])
