"""Programs whose output is closed, full, cut off or of another encoding."""

import io
import os
import subprocess
import sys
import textwrap

import pytest

from batch_rl.utils import programs


@pytest.mark.parametrize(
  ('is_full', 'code', 'line'),
  [(True, 2, 'report: error: No space left on device\n'), (False, 141, '')],
)
def test_a_full_disk_or_no_reader(monkeypatch, capsys, is_full, code, line):
  reader, writer = os.pipe()
  os.close(reader)
  # Python flushes the file again when it exits.
  with open('/dev/full' if is_full else writer, 'w', encoding='utf-8') as file:
    monkeypatch.setattr(sys, 'stdout', file)
    assert programs.run(lambda: print('table'), 'report: ') == code
    assert capsys.readouterr().err == line


@pytest.mark.parametrize(
  'error, code, line',
  [
    (ValueError('--out is\nwrong.'), 2, 'error: --out is wrong.\n'),
    (FileNotFoundError(2, 'Gone', 'a.png'), 2, 'error: a.png: Gone\n'),
    (MemoryError('4 GiB'), 2, 'error: out of memory: 4 GiB\n'),
    (MemoryError(), 2, 'error: out of memory\n'),
    (RuntimeError("can't start new thread"), 2, None),
    (KeyboardInterrupt(), 130, ''),
  ],
)
def test_mistakes_are_one_line(capsys, error, code, line):
  def program():
    raise error

  assert programs.run(program) == code
  line = f'error: {error}\n' if line is None else line
  assert capsys.readouterr().err == line


def test_other_ends_are_those_of_the_program():
  assert programs.run(lambda: None) == 0
  assert programs.run(lambda: 1) == 1
  with pytest.raises(RuntimeError, match='mine'):
    programs.run(lambda: (_ for _ in ()).throw(RuntimeError('mine')))


def test_what_the_terminal_lacks_is_printed_as_escapes(monkeypatch):
  text = programs.printable('é (α=0.1)\n\x1b[31m\udcff')
  assert text == r'é (α=0.1)\n\x1b[31m\udcff'
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


@pytest.mark.parametrize('has_own', [True, False])
def test_garbage_is_left_at_the_end_unless_it_may_be_a_users(tmp_path, has_own):
  (tmp_path / 'mine.py').touch()
  code = f"""
    import atexit, gc, sys
    from batch_rl.utils import programs
    sys.path.insert(0, {str(tmp_path)!r})
    atexit.register(lambda: print(gc.get_freeze_count() > 0))  # called last
    programs.run(lambda: __import__('mine' if {has_own} else 'json') and None)
    print(gc.get_threshold() > (10_000,))
  """
  line = [sys.executable, '-c', textwrap.dedent(code)]
  printed = subprocess.check_output(line, text=True).split()
  assert printed == ['True', str(not has_own)]
