"""Text and tables in LaTeX, for papers that load the packages booktabs and graphicx."""

import re
import textwrap

import tabulate

from batch_rl.report import tables
from batch_rl.report.tables import Table
from batch_rl.utils import programs

_ESCAPES = tabulate.LATEX_ESCAPE_RULES | {
  '|': r'\textbar{}',
  '\N{PLUS-MINUS SIGN}': r'$\pm$',
  '\N{MINUS SIGN}': '$-$',
}
# In a table; letters are smaller from the first number on.
_SMALL_ROWS, _ROWS = 30, 60
_WIDTH = 130  # Letters in a line of 5.5 inches, if small.
# Shrinks what is wider than the line, and nothing else.
_FIT = r'\resizebox{\ifdim\width>\linewidth\linewidth\else\width\fi}{!}{%'


def escape(text: str) -> str:
  """Escapes text in a line, with minus signs before numbers."""
  line = tables.minus(programs.printable(' '.join(text.split())))
  escaped = ''.join(_ESCAPES.get(c, c) for c in line).replace(r' \%', r'~\%')
  return re.sub(r'^[\[*]', r'{\g<0>}', escaped)  # A line break has options.


def write(table: Table, directory: str) -> None:
  """Writes `<name>.tex`: floats, each of which fits a page.

  Their labels are `tab:<name>`, `tab:<name>-2` and so on. Only columns of numbers
  continue in another float.
  """
  cells, is_text = table.marked(escape, r'\textbf{', '}'), table.is_text
  heads, widths = [], []
  for column, content in table.text.items():
    longest = max(map(len, content), default=0)
    lines = textwrap.wrap(column, max(longest, 11), break_long_words=False)
    broken = r'\\'.join(map(escape, lines))
    heads.append(rf'\shortstack{{{broken}}}')
    widths.append(2 + max(longest, *map(len, lines)))
  room = len(widths)
  if sum(widths) > _WIDTH and not any(is_text[1:]):
    room = max(1, (_WIDTH - widths[0]) // max(widths[1:]))
    parts = -(-len(widths[1:]) // room)
    room = -(-len(widths[1:]) // parts)  # Of similar width.
  floats: list[str] = []
  for row in range(0, len(cells), _ROWS):
    for first in range(1, len(widths), room):
      columns = [0, *range(len(widths))[first : first + room]]
      part = cells.iloc[row : row + _ROWS, columns]
      suffix = f'-{len(floats) + 1}' if floats else ''
      rows = [[heads[i] for i in columns], *part.values.tolist()]
      head, *body = (' & '.join(cells) + r' \\' for cells in rows)
      floats.append(
        rf"""\begin{{table}}[tbp]
\centering
\caption{{{escape(table.legend)}{' Continued.' if floats else ''}}}
\label{{tab:{table.name}{suffix}}}
\{'scriptsize' if len(part) > _SMALL_ROWS else 'small'}\setlength{{\tabcolsep}}{{3pt}}
\medskip
{_FIT}
\begin{{tabular}}{{{''.join('rl'[is_text[i]] for i in columns)}}}
\toprule
{head}
\midrule
"""
        + '\n'.join(body)
        + '\n\\bottomrule\n\\end{tabular}}\n\\end{table}\n'
      )
  tables.write_text(directory, f'{table.name}.tex', '\n'.join(floats))
