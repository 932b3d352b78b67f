"""A report as one HTML page that needs no other file."""

import base64
import dataclasses
import html
import time

from batch_rl.report.tables import Table

_TITLE = 'Offline reinforcement learning: report'
_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; margin: 2em auto; max-width: 72em;
  padding: 0 1em; color: #222; }
h1 { font-size: 1.6em; } h2 { font-size: 1.25em; margin-top: 2em; }
table { border-collapse: collapse; font-size: 13px; display: block;
  overflow-x: auto; }
th, td { padding: 3px 8px; border-bottom: 1px solid #ddd; white-space: nowrap; }
th { border-bottom: 2px solid #888; }
tr:hover td { background: #f4f6f8; }
figure { margin: 1em 0; display: inline-block; vertical-align: top; }
figure img { max-width: 100%; }
figcaption, .about { color: #555; font-size: 13px; }
"""


@dataclasses.dataclass(frozen=True)
class Picture:
  """A figure as PNG, with its caption."""

  png: bytes
  caption: str


# Heading and parts; a list of strings is a bullet list.
Section = tuple[str, list[Table | Picture | list[str]]]


def to_html(about: list[str], sections: list[Section]) -> str:
  """Returns the page.

  Args:
    about: Lines below the title.
    sections: Sections; those without parts are left out.
  """
  date = time.strftime('%Y-%m-%d %H:%M')
  body = ''.join(
    f'<h2>{html.escape(heading)}</h2>\n' + '\n'.join(map(_html, parts)) + '\n'
    for heading, parts in sections
    if parts
  )
  return (
    '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
    f'<title>{_TITLE}</title>\n<style>{_STYLE}</style>\n</head>\n'
    f'<body>\n<h1>{_TITLE}</h1>\n<div class="about">Made on {date}.\n'
    f'{_html(about)}</div>\n{body}</body>\n</html>\n'
  )


def _html(part: Table | Picture | list[str]) -> str:
  if isinstance(part, list):
    items = ''.join(f'<li>{html.escape(line)}</li>' for line in part)
    return f'<ul>{items}</ul>'
  caption = html.escape(part.caption)
  if isinstance(part, Table):
    return f'<p class="about">{caption}</p>\n{part.render("html")}'
  data = base64.b64encode(part.png).decode()
  return (
    f'<figure><img alt="{caption}" src="data:image/png;base64,{data}">'
    f'<figcaption>{caption}</figcaption></figure>'
  )
