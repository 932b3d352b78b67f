"""Loggers get what TensorBoard gets, and change nothing else."""

import json
import struct
import sys
import time
from unittest import mock

import pytest

from batch_rl.runs import run_record, runner
from batch_rl.runs.loggers import feed, process
from batch_rl.tests import results
from batch_rl.tests.runs import resume_test

MINE = """
import json

class Recording:
  def __init__(self, run):
    self.lines = open(run['name'] + '/mine.jsonl', 'a')
    assert run['config']['seed'] == 3
  def log(self, scalars, step):
    print(json.dumps([scalars, step]), file=self.lines, flush=True)
  def finish(self, completed):
    self.log({'finished': completed}, 0)

class Failing(Recording):
  def log(self, scalars, step):
    raise OSError('the server is gone')
"""


def read_mine(base_dir):
  rows = map(json.loads, (base_dir / 'mine.jsonl').read_text().splitlines())
  *_, (last, _) = rows = list(rows)
  assert last == {'finished': True} and [{'finished': False}, 0] in rows
  return rows


def read_wandb(base_dir):
  """Reads the offline parts of a run, each a block of LevelDB's log format."""
  from wandb.proto import wandb_internal_pb2

  for path in sorted(base_dir.glob('wandb/offline-run-*/*.wandb')):
    assert run_record.read(base_dir)['run_id'] in path.name
    content, position = path.read_bytes(), 7
    while position < len(content):
      (length,) = struct.unpack_from('<H', content, position + 4)
      position += 7 + length
      record = wandb_internal_pb2.Record()
      record.ParseFromString(content[position - length : position])
      items = record.history.item
      row = {i.key or i.nested_key[0]: json.loads(i.value_json) for i in items}
      yield row, row.get('step')


def read_mlflow(base_dir):
  client = sys.modules['mlflow'].MlflowClient()
  experiment = client.get_experiment_by_name('batch_rl')
  (run,) = client.search_runs([experiment.experiment_id])
  assert run.info.status == 'FINISHED' and run.data.params['seed'] == '3'
  for tag in run.data.metrics:
    for metric in client.get_metric_history(run.info.run_id, tag):
      yield {tag: metric.value}, metric.step


@pytest.fixture
def run(tmp_path, monkeypatch):
  """A function `(loggers, stop_at=None)` that runs in a folder `loggers`."""
  (tmp_path / 'mine.py').write_text(MINE)
  monkeypatch.setattr('sys.path', [str(tmp_path), *sys.path, tmp_path])
  base = resume_test.offline_run(tmp_path / 'log')
  *others, code = base.args

  def start(name, stop_at=None):
    bindings = f"""{code}
      FixedReplayRunner.loggers = {[name] if name else []}
      FixedReplayDQNAgent.summary_writing_frequency = 20
    """
    monkeypatch.setenv('WANDB_DIR', str(tmp_path / str(name)))
    return base.func(*others, bindings, tmp_path / str(name), stop_at)

  return start


@pytest.mark.parametrize(
  ('name', 'read'),
  [
    ('mine.Recording', read_mine),
    ('wandb', read_wandb),
    ('mlflow', read_mlflow),
  ],
)
def test_a_stopped_and_resumed_run(run, tmp_path, monkeypatch, name, read):
  if read is not read_mine:
    pytest.importorskip(name)
  monkeypatch.setenv('WANDB_MODE', 'offline')
  monkeypatch.setenv('MLFLOW_TRACKING_URI', f'sqlite:///{tmp_path}/mlflow.db')
  assert not run(name, 2) and run(name)
  shown, found = results.scalars(tmp_path / name), {}
  for scalars, step in read(tmp_path / name):
    for tag in scalars.keys() & shown.keys():
      found.setdefault(tag, {})[step] = scalars[tag]
  assert found == shown and {'Losses/Loss', 'Eval/AverageReturns'} <= {*found}
  if read is read_mine:
    assert run(None)
    plain, logged = (results.of_run(tmp_path / n) for n in ('None', name))
    assert plain == logged


def test_tensorboards_files_replace_none(tmp_path):
  second = int(time.time())
  (tmp_path / f'events.out.tfevents.{second}.host').touch()
  runner._wait_for_a_new_name(str(tmp_path))
  assert time.time() >= second + 1


def test_a_run_without_a_writer_says_so(caplog):
  with feed.running(['mine.Recording'], None, {}):
    assert "No scalars for ['mine.Recording']" in caplog.text


def test_the_end_of_a_long_name_is_kept_for_wandb(monkeypatch):
  wandb = mock.Mock()
  monkeypatch.setitem(sys.modules, 'wandb', wandb)
  process.WandbLogger({'id': 'a', 'name': f'/runs/{"x" * 127}/', 'config': {}})
  assert wandb.init.call_args.kwargs['name'] == f'{"x" * 127}/'


def test_an_error_does_not_end_the_run(run, capfd):
  assert run('mine.Failing')
  err = capfd.readouterr().err
  message = 'mine.Failing has stopped (OSError: the server is gone)'
  assert err.count(message) == 1
  assert err.count('Traceback') == 1  # the error is in the user's code


@pytest.mark.parametrize(
  ('name', 'message'),
  [
    ('wandbb', r'did you mean wandb\?\).* mlflow, wandb'),
    ('absent.Logger', "no module 'absent'"),
    ('mlflow', r"mlflow is not installed: pip install 'batch_rl\[mlflow\]'"),
  ],
)
def test_a_logger_that_is_not_there(monkeypatch, tmp_path, name, message):
  (tmp_path / 'mlflow').mkdir()  # a folder is not the package
  monkeypatch.setattr('sys.path', [str(tmp_path)])
  monkeypatch.delitem(sys.modules, 'mlflow', raising=False)
  with pytest.raises(ValueError, match=message):
    feed.check([name])
  with pytest.raises(ValueError, match='give a list, '):
    feed.check(name)
