"""Small faults in Python source, each an edit of a few bytes.

The rest of the file keeps its formatting. No edit touches docstrings, texts,
annotations or f-strings.
"""

import ast
import bisect
import io
import re
import tokenize
from typing import NamedTuple

_COMPARISONS = {
  b'<': b'<=',
  b'<=': b'<',
  b'>': b'>=',
  b'>=': b'>',
  b'==': b'!=',
  b'!=': b'==',
  b'is': b'is not',
  b'is not': b'is',
  b'in': b'not in',
  b'not in': b'in',
}
_COMPARISON = re.compile(
  rb'is\s+not\b|not\s+in\b|\bis\b|\bin\b|<=|>=|==|!=|<|>'
)
_ARITHMETIC = {
  b'+': b'-',
  b'-': b'+',
  b'*': b'/',
  b'/': b'*',
  b'//': b'*',
  b'%': b'*',
  b'**': b'*',
  b'&': b'|',
  b'|': b'&',
  b'^': b'&',
  b'<<': b'>>',
  b'>>': b'<<',
}
_OPERATOR = re.compile(rb'\*\*|//|<<|>>|[-+*/%&|^]')
_BOOLEAN = {b'and': b'or', b'or': b'and'}
_OPPOSITES = {
  'min': 'max',
  'any': 'all',
  'minimum': 'maximum',
  'argmin': 'argmax',
  'reduce_min': 'reduce_max',
  'reduce_sum': 'reduce_mean',
}
_OPPOSITES |= {new: old for old, new in _OPPOSITES.items()}
_DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


class Edit(NamedTuple):
  """A fault.

  Attributes:
    line: Line where it begins, from 1.
    kind: Name of the kind of fault.
    start: First byte that is replaced.
    end: End of the replaced bytes.
    new: Their replacement.
    function: Qualified name of the innermost function; None outside functions.
  """

  line: int
  kind: str
  start: int
  end: int
  new: bytes
  function: str | None

  def apply(self, source: bytes) -> bytes:
    """Returns the source with the fault."""
    return source[: self.start] + self.new + source[self.end :]


def edits(source: bytes) -> list[Edit]:
  """Returns all faults for a module, in order; a few do not compile."""
  return sorted(_Finder(source).found)


def compiles(source: bytes, edit: Edit) -> bool:
  """Whether a module with a fault is valid Python."""
  try:
    compile(edit.apply(source), '<mutant>', 'exec')
  except SyntaxError:
    return False
  return True


def code_lines(source: bytes) -> set[int]:
  """Returns the lines that have code, from 1: no docstrings, comments, blanks."""
  skipped = (
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENCODING,
    tokenize.ENDMARKER,
  )
  lines: set[int] = set()
  for token in tokenize.tokenize(io.BytesIO(source).readline):
    if token.type not in skipped:
      lines.update(range(token.start[0], token.end[0] + 1))
  for node in ast.walk(ast.parse(source)):
    if isinstance(node, _DOCUMENTED) and ast.get_docstring(node) is not None:
      text = node.body[0]
      lines.difference_update(range(text.lineno, text.end_lineno + 1))
  return lines


class _Finder(ast.NodeVisitor):
  """Finds the faults of a module."""

  def __init__(self, source: bytes):
    self.found: list[Edit] = []
    self._source = source
    self._starts = [0]
    for line in source.splitlines(keepends=True):
      self._starts.append(self._starts[-1] + len(line))
    self._names: list[str] = []
    self._inside = None
    self.visit(ast.parse(source))

  def _add(self, kind: str, start: int, end: int, new: bytes) -> None:
    line = bisect.bisect_right(self._starts, start)
    self.found.append(Edit(line, kind, start, end, new, self._inside))

  def _span(self, node) -> tuple[int, int]:
    return (
      self._starts[node.lineno - 1] + node.col_offset,
      self._starts[node.end_lineno - 1] + node.end_col_offset,
    )

  def _text(self, node) -> bytes:
    start, end = self._span(node)
    return self._source[start:end]

  def _between(self, kind, left, right, pattern, table) -> None:
    """Replaces the operator between two operands."""
    start, end = self._span(left)[1], self._span(right)[0]
    found = re.search(pattern, self._source[start:end])
    if found:
      new = table.get(b' '.join(found[0].split()))
      self._add(kind, start + found.start(), start + found.end(), new)

  def _replace(self, kind, node, new: bytes) -> None:
    self._add(kind, *self._span(node), new)

  # Parts without faults.

  def visit_JoinedStr(self, node):
    pass

  def visit_AnnAssign(self, node):
    if node.value:
      self._assigned(node, [node.target])
      self.visit(node.value)

  def visit_arg(self, node):
    pass

  # Scopes.

  def visit_FunctionDef(self, node):
    before = self._inside
    self._names.append(node.name)
    self._inside = '.'.join(self._names)
    for child in (*node.decorator_list, node.args, *node.body):
      self.visit(child)
    self._names.pop()
    self._inside = before

  visit_AsyncFunctionDef = visit_FunctionDef

  def visit_ClassDef(self, node):
    self._names.append(node.name)
    self.generic_visit(node)
    self._names.pop()

  # Expressions.

  def visit_Compare(self, node):
    operands = [node.left, *node.comparators]
    for left, right in zip(operands, operands[1:], strict=False):
      self._between('comparison', left, right, _COMPARISON, _COMPARISONS)
    self.generic_visit(node)

  def visit_BinOp(self, node):
    if not any(map(_is_text, (node.left, node.right))):
      self._between('arithmetic', node.left, node.right, _OPERATOR, _ARITHMETIC)
    self.generic_visit(node)

  def visit_BoolOp(self, node):
    for left, right in zip(node.values, node.values[1:], strict=False):
      self._between('and/or', left, right, rb'\b(and|or)\b', _BOOLEAN)
    self.generic_visit(node)

  def visit_UnaryOp(self, node):
    start = self._span(node)[0]
    if isinstance(node.op, ast.Not):
      self._add('removed not', start, start + 3, b'')
    elif isinstance(node.op, ast.USub):
      self._add('arithmetic', start, start + 1, b'+')
    self.generic_visit(node)

  def visit_Constant(self, node):
    if isinstance(node.value, bool):
      self._replace('constant', node, str(not node.value).encode())
    elif isinstance(node.value, (int, float)):
      for step in (1, -1):
        self._replace('constant', node, f'({node.value + step!r})'.encode())

  def visit_Call(self, node):
    first, second, *_ = [*node.args, None, None]
    if second and not any(
      isinstance(one, ast.Starred) for one in (first, second)
    ):
      (start, middle), (after, end) = self._span(first), self._span(second)
      gap = self._source[middle:after]
      new = self._text(second) + gap + self._text(first)
      if self._text(first) != self._text(second):
        self._add('swapped arguments', start, end, new)
    name = getattr(node.func, 'id', getattr(node.func, 'attr', None))
    if name in _OPPOSITES:
      end = self._span(node.func)[1]
      new = _OPPOSITES[name].encode()
      self._add('opposite function', end - len(name), end, new)
    self.generic_visit(node)

  # Conditions.

  def _condition(self, node) -> None:
    test = node.test
    if not isinstance(test, ast.UnaryOp) or not isinstance(test.op, ast.Not):
      self._replace(
        'negated condition', test, b'(not (' + self._text(test) + b'))'
      )
    self.generic_visit(node)

  visit_If = visit_While = visit_IfExp = visit_Assert = _condition

  def visit_comprehension(self, node):
    for test in node.ifs:
      self._replace(
        'negated condition', test, b'(not (' + self._text(test) + b'))'
      )
    self.generic_visit(node)

  # Statements.

  def _remove(self, node) -> None:
    self._replace('removed statement', node, b'pass')

  def visit_Expr(self, node):
    if isinstance(node.value, ast.Call):
      self._remove(node)
    if not _is_text(node.value):
      self.generic_visit(node)

  def visit_Raise(self, node):
    self._replace('removed raise', node, b'pass')
    self.generic_visit(node)

  def visit_Delete(self, node):
    self._remove(node)

  def visit_AugAssign(self, node):
    self._remove(node)
    self._between('arithmetic', node.target, node.value, _OPERATOR, _ARITHMETIC)
    self.generic_visit(node)

  def visit_Assign(self, node):
    self._assigned(node, node.targets)
    self.generic_visit(node)

  def _assigned(self, node, targets) -> None:
    if self._inside and all(
      isinstance(target, (ast.Attribute, ast.Subscript)) for target in targets
    ):
      self._remove(node)

  def visit_Return(self, node):
    if node.value and not _is_none(node.value):
      self._replace('returned None', node, b'return None')
    self.generic_visit(node)

  def visit_Break(self, node):
    self._replace('break/continue', node, b'continue')

  def visit_Continue(self, node):
    self._replace('break/continue', node, b'break')


def _is_none(node) -> bool:
  return isinstance(node, ast.Constant) and node.value is None


def _is_text(node) -> bool:
  return isinstance(node, ast.JoinedStr) or (
    isinstance(node, ast.Constant) and isinstance(node.value, (str, bytes))
  )
