"""What is shown of a sweep."""

import io
import time

import pytest
import rich.console

from batch_rl.sweep import cells, plan, projection, view
from batch_rl.tests.sweep import sweeps
from batch_rl.utils import files, locks

WORK = projection.Work(iterations=4, train=100.0, eval=50.0)


@pytest.fixture
def sweep(tmp_path):
  names = ('first', 'second', 'third', 'fourth')
  the_cells = tuple(
    plan.Cell(name, 'offline', str(tmp_path / name), ('-um', name))
    for name in names
  )
  for cell in the_cells:
    (tmp_path / cell.name).mkdir()
  return sweeps.make(*the_cells, base_dir=tmp_path)


def note(cell, state, progress=None, **more):
  content = {'arguments': cell.arguments, 'state': state, 'attempts': 1}
  content |= {'basis': [], **more}  # of a DONE cell: it has no gin files
  files.write_json(f'{cell.directory}/sweep-offline.json', content)
  if progress:
    files.write_json(f'{cell.directory}/progress.json', progress)


def show(shown, height=40):
  console = rich.console.Console(
    file=io.StringIO(), width=120, color_system=None
  )
  console.print(shown.table(height))
  return console.file.getvalue()


def test_a_table_of_what_the_cells_do(sweep):
  first, second, third, _ = sweep.cells
  now = {
    'iteration': 1,
    'iterations': 4,
    'phase': 'train',
    'unit': 'update',
    'done': 60,
    'rates': {'train': 10.0, 'eval': 10.0},  # 15 s an iteration
    'evaluation': -12.5,
    'time': time.time(),
  }
  note(first, cells.RUNNING, now, where='here, process 7')
  note(second, cells.FAILED, message='exit code 2: no such game')
  note(third, cells.DONE, {**now, 'iteration': 4, 'phase': 'finished'})
  with locks.try_lock(f'{first.directory}/.sweep-offline.lock'):
    text = show(view.View(sweep, dict.fromkeys(sweep.cells, WORK)))
  lines = {line.split()[0]: line for line in text.split('\n') if line.split()}
  assert lines['first'].split() == [
    *('first', 'running', '2/4', '10', 'updates/s', '-12.50', '39', 's')
  ]
  assert 'failed: exit code 2: no such game' in lines['second']
  assert lines['third'].split() == ['third', 'done', '4/4', '-12.50']
  assert lines['fourth'].split() == ['fourth', 'waiting']
  assert (
    '1 running, 1 failed, 1 waiting, 1 done of 4; 1.6 min left'
    in ' '.join(text.split())
  )
  # Nobody has its lock: the worker is gone.
  text = show(view.View(sweep, dict.fromkeys(sweep.cells, WORK)))
  assert 'first    stopped' in text


def test_what_there_is_no_room_for_is_counted(sweep):
  note(sweep.cells[3], cells.FAILED, message='x')
  text = show(view.View(sweep, dict.fromkeys(sweep.cells, WORK)), height=10)
  assert 'and 0 more' not in text
  cells_to_come = [
    plan.Cell(f'cell {i}', 'offline', f'{sweep.base_dir}/{i}', ())
    for i in range(31)
  ]
  many = sweeps.make(*cells_to_come, sweep.cells[3])
  text = show(view.View(many, dict.fromkeys(many.cells, WORK)), height=20)
  assert 'and 20 more' in text
  assert text.index('fourth') < text.index('cell 0')  # what failed comes first


def test_news_are_told_once(sweep):
  shown = view.View(sweep, dict.fromkeys(sweep.cells, WORK))
  assert list(shown.news()) == []
  note(sweep.cells[1], cells.DONE)
  shown.refresh()
  assert list(shown.news()) == ['second: done']
  assert list(shown.news()) == []


def test_cells_that_do_not_run_are_looked_at_in_turns(sweep):
  shown = view.View(sweep, dict.fromkeys(sweep.cells, WORK))
  *_, third, fourth = sweep.cells
  with locks.try_lock(f'{fourth.directory}/.sweep-offline.lock'):
    for cell in sweep.cells:
      note(cell, cells.RUNNING if cell is fourth else cells.DONE)
    shown.refresh(2)
    assert (shown.count(cells.DONE), shown.count(cells.WAITING)) == (2, 2)
    shown.refresh(2)
    assert shown.statuses[third].state == cells.DONE
    assert shown.statuses[fourth].state == cells.RUNNING
  note(fourth, cells.DONE)
  shown.refresh(1)  # the turn is the first's, but the fourth ran
  assert shown.count(cells.DONE) == 4


@pytest.mark.parametrize(
  ('seconds', 'text'),
  [
    (4, '4.0 s'),
    (45, '45 s'),
    (300, '5.0 min'),
    (7000, '1.9 h'),
    (86400 * 12, '12.0 days'),
  ],
)
def test_durations(seconds, text):
  assert view.duration(seconds) == text
