import io
import time

import pytest
import rich.console

from batch_rl.sweep import cells, monitor, plan
from batch_rl.tests.sweep import made_up_sweeps
from batch_rl.tests.sweep.made_up_sweeps import write_record
from batch_rl.utils import files, locks

# Four iterations of 100 updates and 50 agent steps of evaluation.
BINDINGS = (
  'FixedReplayRunner.num_iterations = 4',
  'FixedReplayRunner.training_steps = 400',
  'FixedReplayRunner.evaluation_steps = 50',
)


@pytest.fixture
def sweep(tmp_path):
  planned = []
  for name in ('first', 'second', 'third', 'fourth'):
    (tmp_path / name).mkdir()
    program = str(tmp_path / name), ('-um', name)
    planned.append(plan.Cell(name, 'offline', *program, (), BINDINGS))
  return made_up_sweeps.make(*planned, base_dir=tmp_path)


def text_of(watched, height=40):
  text = io.StringIO()
  console = rich.console.Console(file=text, width=120, color_system=None)
  console.print(watched.table(height))
  return text.getvalue()


def test_the_table_has_a_line_for_each_cell(sweep):
  first, second, third, _ = sweep.cells
  latest = dict(iteration=1, iterations=4, phase='train', done=60)
  latest |= dict(rates={'train': 10.0, 'eval': 10.0})  # 15 s an iteration.
  latest |= dict(unit='update', evaluation=-12.5, time=time.time())
  write_record(first, cells.RUNNING, where='here, process 7')
  write_record(second, cells.FAILED, message='[/tmp/x] \x1b[31m')
  finished = {**latest, 'iteration': 4, 'phase': 'finished'}
  write_record(third, cells.DONE)
  for cell, progress in ((first, latest), (third, finished)):
    files.write_json(f'{cell.directory}/progress.json', progress)
  with locks.try_lock(f'{first.directory}/.sweep-offline.lock'):
    text = text_of(monitor.Monitor(sweep))
  lines = {line.split()[0]: line for line in text.split('\n') if line.split()}
  shown = ' '.join(lines['first'].split())
  assert shown == 'first running 2/4 10 updates/s -12.50 0:00:39'
  assert r'failed: [/tmp/x] \x1b[31m' in lines['second']
  assert lines['third'].split() == ['third', 'done', '4/4', '-12.50']
  assert lines['fourth'].split() == ['fourth', 'waiting']
  text = ' '.join(text.split())
  assert '1 running, 1 failed, 1 waiting, 1 done of 4; 0:01:39 left' in text
  # The lock is free: the worker is gone.
  watched = monitor.Monitor(sweep)
  assert 'first    stopped' in text_of(watched)
  assert r'[/tmp/x] \x1b[31m' in ''.join(watched.state_changes())


def test_lines_beyond_the_height_are_counted(sweep):
  write_record(sweep.cells[3], cells.FAILED, message='x')
  assert 'and 0 more' not in text_of(monitor.Monitor(sweep), height=10)
  waiting = [
    plan.Cell(f'cell {i}', 'offline', f'{sweep.base_dir}/{i}', ())
    for i in range(31)
  ]
  many = made_up_sweeps.make(*waiting, sweep.cells[3])
  text = text_of(monitor.Monitor(many), height=20)
  assert 'and 20 more' in text
  assert text.index('fourth') < text.index('cell 0')  # Failures first.


def test_cells_that_do_not_run_are_read_in_turn(sweep):
  """Each change of a state is reported once."""
  watched = monitor.Monitor(sweep)
  assert list(watched.state_changes()) == []
  *_, third, fourth = sweep.cells
  with locks.try_lock(f'{fourth.directory}/.sweep-offline.lock'):
    for cell in sweep.cells:
      write_record(cell, cells.RUNNING if cell is fourth else cells.DONE)
    watched.refresh(2)
    assert (watched.count(cells.DONE), watched.count(cells.WAITING)) == (2, 2)
    assert list(watched.state_changes()) == ['first: done', 'second: done']
    watched.refresh(2)
    assert watched.statuses[third].state == cells.DONE
    assert watched.statuses[fourth].state == cells.RUNNING
    assert len(list(watched.state_changes())) == 2
  write_record(fourth, cells.DONE)
  watched.refresh(1)  # The first cell has its turn, and the fourth was running.
  assert watched.count(cells.DONE) == 4


def test_durations():
  seconds = (4.4, 300, 7000, 86400 * 12, 1e300)
  shown = ['0:00:04', '0:05:00', '1:56:40', '12 days, 0:00:00']
  assert [*map(monitor.duration, seconds)][:-1] == shown
