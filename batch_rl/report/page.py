"""A report as one HTML page that needs no other file."""

import html
import pathlib
import time
from typing import NamedTuple

from batch_rl.report import tables
from batch_rl.report.tables import Table

_PAGE = pathlib.Path(__file__)
NOTES, FOLDED = 'Notes', 'More curves'  # Headings.


class Picture(NamedTuple):
  """A figure as an `svg` element, with its caption."""

  svg: str
  caption: str


# A list of strings is a bullet list.
Part = Table | Picture | str | list[str]
Section = tuple[str, list[Part]]  # Heading and parts.


def to_html(answer: str, details: str, sections: list[Section]) -> str:
  """Returns the page.

  Args:
    answer: Main result, a sentence.
    details: Sentences about it. A link to the notes follows.
    sections: Sections; those without content are left out. The reader has to open the
      one with the heading `FOLDED`.
  """
  page, style, script = (
    _PAGE.with_suffix(suffix).read_text('utf-8')
    for suffix in ('.html', '.css', '.js')
  )
  shown = {heading: parts for heading, parts in sections if any(parts)}
  link = ' <a href="#notes">Read the notes.</a>' if NOTES in shown else ''
  return page.format(
    style=style,
    script=script,
    answer=_escape(answer),
    details=_escape(details) + link,
    sections=''.join(map(_section, shown, shown.values())),
    date=time.strftime('%Y-%m-%d %H:%M'),
  )


def _section(heading: str, parts: list[Part]) -> str:
  content = '\n'.join(_part(part) for part in parts if part)
  if heading == FOLDED:
    return f'<details><summary>{heading}</summary>\n{content}\n</details>\n'
  name = heading.lower().replace(' ', '-')
  return f'<section id="{name}">\n<h2>{heading}</h2>\n{content}\n</section>\n'


def _part(part: Part) -> str:
  if isinstance(part, str):
    return f'<p>{_escape(part)}</p>'
  if isinstance(part, list):
    items = ''.join(f'<li>{_escape(line)}</li>' for line in part)
    return f'<ul>{items}</ul>'
  caption = _escape(part.legend if isinstance(part, Table) else part.caption)
  if isinstance(part, Table):
    content = part.render('unsafehtml', _escape, '<b>', '</b>')
  else:
    label = f'<svg role="img" aria-label="{caption}"'
    content = part.svg.replace('<svg', label, 1)
  return (
    f'<figure><div class="frame">{content}</div>'
    f'<figcaption>{caption}</figcaption></figure>'
  )


def _escape(text: str) -> str:
  return tables.minus(html.escape(text))
