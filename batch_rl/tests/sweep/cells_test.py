"""One cell: programs that end in different ways, and the resulting status."""

import concurrent.futures
import dataclasses
import functools
import multiprocessing
import os
import pathlib
import signal
import subprocess
import sys
import threading
from unittest import mock

import pytest

from batch_rl.runs import run_record
from batch_rl.sweep import cells, stop_with_parent
from batch_rl.tests import user_code
from batch_rl.tests.sweep import made_up_sweeps
from batch_rl.utils import locks


@pytest.fixture
def make(tmp_path, monkeypatch):
  """Returns a function that makes a cell with a program, see `made_up_sweeps`."""
  monkeypatch.chdir(tmp_path)
  user_code.write(tmp_path / 'checkpoints/ckpt-0/checkpoint.json', '')
  return functools.partial(made_up_sweeps.program_cell, 'one', tmp_path)


def starts():
  return os.path.getsize('starts')


def test_several_workers_run_a_cell_once(make):
  cell = make('time.sleep(0.5)')
  assert cells.status(cell).state == cells.WAITING
  with concurrent.futures.ThreadPoolExecutor(3) as pool:
    statuses = list(pool.map(cells.run, [cell] * 3))
  assert [status.state for status in statuses] == [cells.DONE] * 3
  assert cells.status(make('pass')).state == cells.WAITING  # Another command.
  os.remove('checkpoints/ckpt-0/checkpoint.json')
  assert cells.run(make('pass')).state == cells.CHANGED  # It would begin anew.
  moved = dataclasses.replace(cell, arguments=(*cell.arguments, '--base_dir=a'))
  assert cells.run(moved).state == cells.DONE
  assert starts() == 1


@pytest.mark.parametrize(
  ('body', 'retries', 'state', 'attempts', 'message'),
  [
    ("print('no such game'); sys.exit(2)", 5, cells.FAILED, 1,
     'exit code 2: no such game'),
    ("if starts < 3: raise RuntimeError('flaky')", 2, cells.DONE, 3, ''),
    # The reason is the error, not where gin called it.
    (r"""raise RuntimeError('mine\n  In call to configurable "A" (B)')""",
     0, cells.FAILED, 1, 'exit code 1: RuntimeError: mine'),
    ('sys.exit(143)', 0, cells.FAILED, 1, 'exit code 143'),
    ('if starts < 3: os.kill(os.getpid(), signal.SIGKILL)', 1, cells.FAILED,
     2, 'killed by signal 9 (Killed)'),
  ],
)  # fmt: skip
def test_ends_of_a_program(make, body, retries, state, attempts, message):
  status = cells.run(make(body), retries=retries)
  assert (status.state, status.attempts) == (state, attempts)
  assert status.message.startswith(message)
  if 'flaky' in body:
    assert b'RuntimeError: flaky' in cells.log_path(make('')).read_bytes()
  if 'SIGKILL' in body:
    status = cells.run(make(body), retries=1)
    assert (status.state, status.attempts) == (cells.DONE, 3)


def test_a_cell_saves_when_it_is_asked_to_stop(make):
  cell = make(made_up_sweeps.WAITS)
  stop = threading.Event()
  with concurrent.futures.ThreadPoolExecutor(1) as pool:
    run = pool.submit(cells.run, cell, 3, stop=stop)
    made_up_sweeps.wait_for(lambda: os.path.exists('ready'))
    running = cells.status(cell)
    stop.set()
  assert running.state == cells.RUNNING
  assert str(os.getpid()) in running.where
  assert running.progress['done'] == 5
  assert run.result().state == cells.STOPPED
  assert os.path.exists('saved')
  assert cells.run(cell).state == cells.DONE


@pytest.mark.parametrize(
  ('recorded', 'locked', 'state', 'message', 'where'),
  [
    ('running', True, cells.RUNNING, '', 'here'),
    ('running', False, cells.STOPPED, '', ''),
    ('failed', False, cells.FAILED, 'reason', ''),
  ],
)
def test_the_status_of_a_record(make, recorded, locked, state, message, where):
  cell = make('')
  more = {'attempts': 3, 'message': 'reason', 'where': 'here'}
  made_up_sweeps.write_record(cell, recorded, **more)
  with locks.try_lock('.sweep-offline.lock' if locked else 'other'):
    assert cells.status(cell) == cells.Status(state, 3, message, where)
    changed = cells.status(make('pass'))  # Another command.
  assert changed == cells.Status(cells.WAITING, 3)


def test_a_cell_keeps_its_replay_log(make):
  begun = dataclasses.replace(make(''), arguments=('--replay_log_dir=a',))
  other = dataclasses.replace(begun, arguments=('--replay_log_dir=b',))
  made_up_sweeps.write_record(begun, cells.STOPPED)
  cells.check_log(other)  # Nothing is logged yet.
  os.mkdir('a')
  cells.check_log(begun)
  with pytest.raises(ValueError, match='its log in a, not in b'):
    cells.check_log(other)


def test_a_program_ends_with_its_worker(make):
  cell = make("""
    if starts < 2:
      open('ready', 'w').close()
      time.sleep(60)
  """)
  context = multiprocessing.get_context('spawn')
  worker = context.Process(target=cells.run, args=(cell,))
  worker.start()
  made_up_sweeps.wait_for(lambda: os.path.exists('ready'))
  worker.kill()
  worker.join()
  path = os.path.join(cell.directory, run_record.LOCK)
  # The program ends.
  made_up_sweeps.wait_for(lambda: locks.try_lock(path) is not None)
  assert cells.status(cell).state == cells.STOPPED
  assert cells.run(cell).state == cells.DONE
  assert starts() == 2


def test_a_program_without_its_parent_does_not_start(tmp_path):
  program = [sys.executable, stop_with_parent.__file__, '1', '-c']
  program.append('open("started", "w")')
  done = subprocess.run(program, cwd=tmp_path, check=False)
  assert done.returncode == 128 + signal.SIGTERM
  assert not list(tmp_path.iterdir())


def test_an_evaluation_is_outdated_after_more_training(make):
  assert cells.run(make('')).state == cells.DONE  # The training.
  cell = make('', job='evaluate')
  wait = cells._wait_for_lock
  with mock.patch.object(cells, '_wait_for_lock', wraps=wait) as waits:
    assert cells.run(cell).state == cells.DONE
  # Not for a training that is under way.
  assert [call.args[0] for call in waits.mock_calls] == [cells._lock_path(cell)]
  # Training has continued: within an iteration, and to its end.
  user_code.write(pathlib.Path('checkpoints/ckpt-1-5/checkpoint.json'), '5')
  assert cells.status(cell).state == cells.DONE
  user_code.write(pathlib.Path('checkpoints/ckpt-1/checkpoint.json'), '1')
  assert cells.status(cell).state == cells.WAITING
  # The training wrote its progress.
  assert not cells.status(cell).progress
  assert cells.status(make('')).progress


# Records the modules that it has imported, as a run does.
_IMPORTS = """
from batch_rl.utils import files
from batch_rl.utils.user_code import user_modules as found
found.add_folder({!r})
import mine
code = {{'code': found.loaded_code(), 'modules': found.loaded_folders()}}
files.write_json('run.json', code)
"""


@pytest.mark.parametrize(
  'changed', ['mine/part.py', 'mine/__init__.py', 'b.py']
)
def test_a_cell_whose_code_has_changed_is_not_done(make, tmp_path, changed):
  """Nor is it trained again: the program would find nothing to do."""
  folder = tmp_path / 'own'
  user_code.write(folder / 'a.gin', "include 'b.gin'")
  user_code.write(folder / 'mine/__init__.py', 'from mine import part')
  user_code.write(folder / 'mine/part.py', 'import b')
  for name in ('b.gin', 'c.gin', 'b.py', 'mine/other.py'):
    user_code.write(folder / name, '')
  cell = dataclasses.replace(
    make(_IMPORTS.format(str(folder))),
    gin_files=(f'{folder}/a.gin',),
    gin_bindings=(f"include '{folder}/c.gin'",),
  )
  assert cells.run(cell).state == cells.DONE
  original = (folder / changed).read_text()
  user_code.write(folder / changed, '# changed')
  user_code.write(folder / 'mine/other.py', '# not imported')
  for status in (cells.status(cell), cells.run(cell)):
    assert status.state == cells.CHANGED
    assert cell.directory in status.message
    assert str(folder / changed) in status.message
  user_code.write(folder / changed, original)
  assert cells.status(cell).state == cells.DONE
  # Changed settings train on, also in an included file, but not with other code.
  for name in ('b.gin', 'c.gin'):
    user_code.write(folder / name, 'A.b = 1')
    assert cells.status(cell).state == cells.WAITING
    user_code.write(folder / name, '')
  user_code.write(folder / changed, '# changed')
  other = dataclasses.replace(cell, arguments=(*cell.arguments, '--more'))
  assert cells.run(cell).state == cells.run(other).state == cells.CHANGED
  assert starts() == 1
  # Without the record, the run is kept: a finished one leaves `run.json` as it is.
  os.remove(cells.record_path(cell))
  finished = dataclasses.replace(cell, arguments=make('').arguments)
  assert cells.run(finished).state == cells.DONE
  (folder / changed).write_text('# again')
  assert cells.status(finished).state == cells.CHANGED


def test_code_that_changes_meanwhile_is_not_that_of_the_training(make):
  user_code.write(pathlib.Path('mine.py'), '')
  cell = make(_IMPORTS.format(os.getcwd()) + "open('mine.py', 'w').write('#')")
  assert cells.run(cell).state == cells.CHANGED


@pytest.mark.parametrize(
  'text', ['', '[' * 100_000, '{"attempts": "3"}', '{"state": "unknown"}']
)
def test_damaged_files_of_a_cell_count_as_missing(make, text):
  cell = make('')
  for name in ('sweep-offline.json', 'progress.json'):
    pathlib.Path(name).write_text(text)
  status = cells.status(cell)
  assert (status.state, status.attempts) == (cells.WAITING, 0)
  assert not status.progress
  assert cells.run(cell).state == cells.DONE
