import re

import numpy as np
import pandas as pd
import pytest

from batch_rl.report import latex, tables


def test_csv_has_integers_and_empty_cells(tmp_path):
  records = [{'x': value, 'y': 1} for value in (-3, None, 2.5, 'a')]
  tables.write_csv(str(tmp_path), 'a', records)
  text = (tmp_path / 'a.csv').read_text('utf-8')
  assert text.split() == ['x,y', '-3,1', ',1', '2.5,1', 'a,1']


def test_markdown_has_no_html_links_or_new_lines():
  text = tables.markdown('<script>a|b</script>\n![x](http://y) & _c_ [d=1]')
  shown = r'&lt;script&gt;a\|b&lt;/script&gt; ![x\](http://y) &amp; _c_ [d=1]'
  assert text == shown


def test_a_run_of_the_random_agent_is_beside_the_reference(compare):
  random = {'agent': 'Random', 'data': None}
  compared = compare(([-18.0], random), ([-19.0], {**random, 'seed': 2}))
  table = tables.scores_table(compared, 'final')
  shown = dict(zip(table.text.iloc[:, 0], table.text.iloc[:, 1], strict=True))
  assert shown.pop('Random').startswith('-18.5 (')
  assert shown['Random (reference)'] == '-20.2'


def test_curves_have_a_column_for_each_of_the_diagnostics(compare):
  found = {'srank': [7.0, 6.0]}
  runs = ([1.0, 2.0], {'diagnostics': found}), ([3.0, 4.0], {'seed': 2})
  compared = compare(*runs)
  found = [record.get('srank') for record in tables.curve_records(compared)]
  assert found == [7, 6, None, None]


@pytest.mark.parametrize(
  ('intervals', 'lowest', 'best'),
  [
    ([(3, 2, 4), (2, 1, 2), (1, 0, 1.9)], False, [1, 1, 0]),
    ([(3, 2, 4), (2, 1, 2), (1, 0, 1)], True, [0, 1, 1]),
    ([(3, 2.5, 4), np.nan, (1, 0, 1.9)], False, [1, 0, 0]),
    ([(3, None, None), np.nan, (1, 0, 1.9)], False, [0, 0, 0]),
    ([(3, 2, 4), (2, 1, 2)], False, [0, 0]),  # Bold would say nothing.
  ],
)
def test_methods_with_overlapping_intervals_are_best(intervals, lowest, best):
  assert tables.are_best(pd.Series(intervals), lowest).tolist() == best


def test_large_tables_continue_on_another_page(tmp_path):
  cells = pd.DataFrame({f'm{i}': ['-1.5 (-2.5, -0.5)'] * 70 for i in range(9)})
  cells.insert(0, 'game', '[x] & a|b')
  latex.write(tables.Table('t', '5 %', cells, []), str(tmp_path))
  text = (tmp_path / 't.tex').read_text()
  labels = re.findall(r'label{(.+)}', text)
  assert labels == ['tab:t', *(f'tab:t-{i}' for i in range(2, 5))]
  assert text.count('$-$1.5 ($-$2.5, $-$0.5)') == 9 * 70
  assert text.count(r'\n{[}x] \& a\textbar{}b &'.replace(r'\n', '\n')) == 140
