"""Cells of tables that programs would run, and numbers that stay numbers."""

import csv

import pandas as pd

from batch_rl.report import tables


def test_a_spreadsheet_runs_no_cell(tmp_path):
  cells = {
    '=1+1': "'=1+1",
    '+x': "'+x",
    '-rm': "'-rm",
    '@SUM(A1)': "'@SUM(A1)",
    '\t=1': "'\t=1",
    'DQN = best': 'DQN = best',
    '-1e-05': '-1e-05',
    -1.5: '-1.5',
    -3: '-3',
    None: '',
  }
  records = [{'x': value, 'y': 1} for value in cells]
  tables.Table('a', '', pd.DataFrame(), records).write(str(tmp_path))
  with (tmp_path / 'a.csv').open(encoding='utf-8', newline='') as file:
    read = list(csv.DictReader(file))
  assert read == [{'x': cell, 'y': '1'} for cell in cells.values()]


def test_markdown_has_no_html_links_or_new_lines():
  text = tables.markdown('<script>a|b</script>\n![x](http://y) & _c_ [d=1]')
  assert text == (
    r'&lt;script&gt;a\|b&lt;/script&gt; ![x\](http://y) &amp; _c_ [d=1]'
  )


def test_a_run_of_the_random_agent_is_beside_the_reference(compare):
  random = {'agent': 'random', 'data': None}
  compared = compare(([-18.0], random), ([-19.0], {**random, 'seed': 2}))
  table = tables.scores_table(compared, 'final', 10)
  shown = dict(zip(table.text.iloc[:, 0], table.text.iloc[:, 1], strict=True))
  assert shown.pop('Random').startswith('-18.5 (')
  assert shown['Random (reference)'] == '-20.2'
