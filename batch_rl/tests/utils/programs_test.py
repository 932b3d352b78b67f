"""Programs whose output is closed, full, cut off or of another encoding."""

import io
import os
import subprocess
import sys

import pytest

from batch_rl.utils import programs


@pytest.fixture
def output(monkeypatch):
  """Replaces stdout by a file, which Python flushes again when it exits."""
  files = []

  def replace(file):
    monkeypatch.setattr(sys, 'stdout', open(file, 'w', encoding='utf-8'))
    files.append(sys.stdout)

  yield replace
  for file in files:
    file.close()


def test_output_that_nobody_reads_ends_the_program(output, capsys):
  reader, writer = os.pipe()
  os.close(reader)
  output(writer)
  assert programs.run(lambda: print('table')) == 141
  assert not capsys.readouterr().err


def test_a_full_disk_under_the_output_is_one_line(output, capsys):
  output('/dev/full')
  assert programs.run(lambda: print('table'), 'report: ') == 2
  assert capsys.readouterr().err == 'report: error: No space left on device\n'


@pytest.mark.parametrize(
  'error, code, line',
  [
    (ValueError('--out is\nwrong.'), 2, 'error: --out is wrong.\n'),
    (FileNotFoundError(2, 'Gone', 'a.png'), 2, 'error: a.png: Gone\n'),
    (MemoryError('4 GiB'), 2, 'error: out of memory: 4 GiB\n'),
    (MemoryError(), 2, 'error: out of memory\n'),
    (
      RuntimeError("can't start new thread"),
      2,
      "error: can't start new thread\n",
    ),
    (KeyboardInterrupt(), 130, ''),
  ],
)
def test_mistakes_are_one_line(capsys, error, code, line):
  def program():
    raise error

  assert programs.run(program) == code
  assert capsys.readouterr().err == line


def test_other_ends_are_those_of_the_program():
  assert programs.run(lambda: None) == 0
  assert programs.run(lambda: 1) == 1
  with pytest.raises(RuntimeError, match='mine'):
    programs.run(lambda: (_ for _ in ()).throw(RuntimeError('mine')))


def test_control_characters_are_escaped():
  text = programs.printable('é (α=0.1)\n\x1b[31m\udcff')
  assert text == r'é (α=0.1)\n\x1b[31m\udcff'


def test_names_that_the_terminal_lacks_are_printed_as_escapes(monkeypatch):
  content = io.BytesIO()
  stdout = io.TextIOWrapper(content, encoding='ascii')
  monkeypatch.setattr(sys, 'stdout', stdout)
  assert programs.run(lambda: print('é \udcff')) == 0
  assert content.getvalue() == b'\\xe9 \\udcff\n'


def test_a_closed_stream_is_not_mixed_with_the_next_file(tmp_path):
  path = tmp_path / 'data'
  code = f"""
import sys
from batch_rl.utils import programs
programs.open_closed_streams()
with open({str(path)!r}, 'w') as data:
  sys.exit(data.fileno() <= 2 or print('message', file=sys.stderr))
"""
  for closed in ('2>&-', '<&- >&- 2>&-'):
    line = ['bash', '-c', f'exec "$0" -c "$1" {closed}', sys.executable, code]
    done = subprocess.run(line, capture_output=True, check=False)
    assert done.returncode == 0 and not path.read_text()
