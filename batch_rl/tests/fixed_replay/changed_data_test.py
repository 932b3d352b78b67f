"""A run resumes only on the files that it was trained on."""

import gzip
import json
import shutil
import threading

import gin
import pytest
import tensorflow as tf

from batch_rl.dataset.shards import manifests, shard_files
from batch_rl.dataset.store import store, store_directory
from batch_rl.fixed_replay import run_experiment
from batch_rl.fixed_replay.replay_memory import fixed_replay_buffer
from batch_rl.runs import checkpoints, run_record
from batch_rl.tests import cartpole, gin_lines, learning_test
from batch_rl.tests.dataset.store import stores
from batch_rl.utils import programs

BINDINGS = """
    FixedReplayDQNAgent.update_period = 4
    FixedReplayDQNAgent.updates_per_run = 1
    FixedReplayRunner.probe_size = 0
    FixedReplayRunner.training_steps = 40
    FixedReplayRunner.evaluation_steps = 20
    run_seed.seed = 3
"""
OBSERVATIONS = [shard_files.file_name('observation', s) for s in range(2)]


def change_a_byte(log):
  """Changes one byte of a frame in the second shard, without a trace."""
  (log / manifests.FILE_NAME).unlink()
  path = log / OBSERVATIONS[1]
  content = bytearray(gzip.decompress(path.read_bytes()))
  content[-50 * 4 * 8 + 9] ^= 1  # of 50 rows of 4 float64
  path.write_bytes(gzip.compress(bytes(content)))


def make_runner(base_dir, data_dir, iterations=2, **settings):
  """Returns a runner on two shards, in the current graph."""
  gin.clear_config()
  bindings = [learning_test.offline_dqn(BINDINGS)]
  bindings += [f'FixedReplayBuffer.{k} = {v!r}' for k, v in settings.items()]
  bindings += [f'FixedReplayRunner.num_iterations = {iterations}']
  gin_lines.load([], bindings)
  create_agent = learning_test.offline_creator(data_dir)
  with cartpole.small_layers():
    return run_experiment.FixedReplayRunner(str(base_dir), create_agent)


def train(*args, **kwargs):
  """Runs to the end; returns the record in `run.json`."""
  with tf.Graph().as_default():
    runner = make_runner(*args, **kwargs)
    runner.run_experiment()
  return run_record.read(runner._base_dir)


@pytest.fixture
def log(log_dir, tmp_path):
  """A copy of the shards, with other times."""
  target = tmp_path / 'log'
  return shutil.copytree(log_dir, target, copy_function=shutil.copyfile)


@pytest.fixture(scope='module')
def trained(log_dir, tmp_path_factory):
  """Directory of a run of one iteration, in memory."""
  base_dir = tmp_path_factory.mktemp('trained') / 'base'
  train(base_dir, log_dir, iterations=1)
  return base_dir


@pytest.fixture
def base_dir(trained, tmp_path):
  """A copy of the run of one iteration."""
  return shutil.copytree(trained, tmp_path / 'base')


def refusal(*args, **kwargs):
  """Returns the message with which a run is refused."""
  with tf.Graph().as_default(), pytest.raises(ValueError) as refused:
    make_runner(*args, **kwargs)
  # gin appends the configurables that an error passed through.
  message = str(refused.value).split('\n  In call')[0]
  assert 'holds a run on different data' in message and '\n' not in message
  return message


def test_changed_frames_are_refused(base_dir, log, tmp_path):
  """In memory, in a cache made before the change, and in another store."""
  cache = str(tmp_path / 'cache')
  store.convert(str(log), f'{cache}/{store_directory.cache_name(str(log))}')
  change_a_byte(log)
  other = tmp_path / 'store'
  store.convert(str(log), str(other))
  for data, options in (log, {}), (log, {'cache_dir': cache}), (other, {}):
    message = refusal(base_dir, data, **options)
    assert OBSERVATIONS[1] in message and OBSERVATIONS[0] not in message


@pytest.mark.parametrize('has_hashes', [True, False])
def test_unchanged_frames_are_accepted(base_dir, log, tmp_path, has_hashes):
  """Those of a copy with other times, as a store; an old record has no hashes."""
  before = run_record.read(base_dir)
  if not has_hashes:
    files = before['data'].pop('files')
    (base_dir / 'run.json').write_text(json.dumps(before))
    before['data']['files'] = files
  store.convert(str(log), str(tmp_path / 'store'))
  resumed = train(base_dir, tmp_path / 'store')
  assert len(resumed['data']['files']) == 12
  assert resumed['data'] == before['data'] and 'changes' not in resumed


@pytest.fixture
def second_shard(monkeypatch):
  """An event before which the second shard is not packed; the first is drawn."""
  event = threading.Event()

  def wait(suffix):
    assert suffix == 0 or event.wait(60)

  stores.before_packing(monkeypatch, wait)
  monkeypatch.setattr(
    fixed_replay_buffer.FixedReplayBuffer,
    '_load_replay_buffers',
    lambda self, num_buffers: self._use([0], self._replay_indices),
  )
  yield event
  event.set()


def test_a_changed_shard_that_is_packed_late_is_refused(
  base_dir, log, second_shard, monkeypatch
):
  """What it was trained on is not saved."""
  change_a_byte(log)
  before = run_record.read(base_dir)['data']
  with tf.Graph().as_default():
    runner = make_runner(base_dir, log)

    def is_due(*_):
      second_shard.set()
      runner._agent._replay.memory._store.wait()
      return True

    monkeypatch.setattr(checkpoints.Checkpoints, 'is_due', is_due)
    with pytest.raises(programs.MistakeError) as refused:
      runner.run_experiment()
  assert OBSERVATIONS[1] in str(refused.value)
  *_, last = checkpoints.find(str(base_dir))
  assert last.position == checkpoints.Position(1, 4)
  assert run_record.read(base_dir)['data'] == before


def test_a_checkpoint_follows_the_record_of_its_files(
  log, tmp_path, second_shard, monkeypatch
):
  base_dir = tmp_path / 'base'
  counts = []
  with tf.Graph().as_default():
    runner = make_runner(base_dir, log)

    def is_due(*_):
      """Packs the other shard, then saves, then ends as SIGKILL does."""
      counts.append(len(run_record.read(base_dir)['data']['files']))
      if len(counts) == 3:
        raise KeyboardInterrupt
      second_shard.set()
      runner._agent._replay.memory._store.wait()
      return len(counts) == 2

    monkeypatch.setattr(checkpoints.Checkpoints, 'is_due', is_due)
    with pytest.raises(KeyboardInterrupt):
      runner.run_experiment()
  assert counts == [6, 12, 12]
  [checkpoint] = checkpoints.find(str(base_dir))
  assert checkpoint.position == checkpoints.Position(0, 8)
  monkeypatch.undo()
  change_a_byte(log)
  assert OBSERVATIONS[1] in refusal(base_dir, log)
