import gc
import os
import re
import subprocess
import sys
import tempfile
import threading
import time

import gin
import hypothesis
import pytest

# Workers (`-n`), and the programs that tests start, share the processors: more
# threads than processors only wait for each other, and TensorFlow's spin meanwhile.
if 'PYTEST_XDIST_WORKER' in os.environ:
  os.environ.setdefault('TF_NUM_INTRAOP_THREADS', '1')
  os.environ.setdefault('TF_NUM_INTEROP_THREADS', '2')  # They load batches.
# Threads of OpenBLAS spin while they wait. NumPy is not imported yet.
os.environ.setdefault('OPENBLAS_NUM_THREADS', '1')
os.environ.setdefault('CUDA_VISIBLE_DEVICES', '-1')  # A CPU's bits are tested.

# Imports and graphs make many objects that stay: to look for garbage among them as
# often as by default takes 3% of the time.
gc.set_threshold(10_000, 50)

hypothesis.settings.register_profile('ours', max_examples=30, deadline=None)
hypothesis.settings.load_profile('ours')


def pytest_collection_modifyitems(items):
  """Runs tests that wait for programs first, beside others."""
  items.sort(key=lambda item: item.get_closest_marker('waits') is None)


def pytest_collection_finish():
  """Exempts what there is from garbage collection, which pytest repeats."""
  gc.collect()
  gc.freeze()


pytest_sessionfinish = pytest_collection_finish


@pytest.fixture(autouse=True, scope='session')
def _temporary_folder(tmp_path_factory):
  """Puts the files that TensorFlow and TFDS leave behind into pytest's folder."""
  before = tempfile.tempdir
  tempfile.tempdir = str(tmp_path_factory.mktemp('left'))
  yield
  tempfile.tempdir = before


@pytest.fixture(autouse=True)
def _clean_up():
  """Clears gin, the default graph and folders of modules after each test."""
  path = list(sys.path)
  yield
  sys.path[:] = path
  gin.clear_config()
  # TensorFlow takes seconds to import, and many tests do without.
  if 'tensorflow' in sys.modules:
    sys.modules['tensorflow'].compat.v1.reset_default_graph()


@pytest.fixture
def gate(monkeypatch):
  """A semaphore that lets one shard be packed for each `release`."""
  from batch_rl.tests.dataset.store import stores

  semaphore, before = threading.Semaphore(0), set(threading.enumerate())
  stores.before_packing(monkeypatch, lambda suffix: semaphore.acquire())
  yield semaphore
  # Otherwise threads would wait forever, or pass the gate of another test. One that is
  # only about to start cannot be joined.
  semaphore.release(100)
  deadline = time.monotonic() + 60
  while set(threading.enumerate()) - before and time.monotonic() < deadline:
    time.sleep(0.01)


@pytest.fixture
def packings(monkeypatch):
  """The numbers of the shards that were packed, in order."""
  from batch_rl.tests.dataset.store import stores

  numbers = []
  stores.before_packing(monkeypatch, numbers.append)
  return numbers


@pytest.fixture
def evaluate():
  """A function that evaluates tensors without variables."""
  import tensorflow as tf

  with tf.compat.v1.Session() as session:
    yield session.run


@pytest.fixture(scope='session')
def known_run(tmp_path_factory):
  """A run of five shards, which no test changes."""
  from batch_rl.tests import known_runs

  directory = tmp_path_factory.mktemp('known')
  return known_runs.write_run(directory, known_runs.LENGTHS, 50)


@pytest.fixture(scope='session')
def log_dir(tmp_path_factory):
  """Directory of two shards of CartPole."""
  from batch_rl.tests import cartpole

  directory = tmp_path_factory.mktemp('log')
  cartpole.write_log(directory)
  return directory


@pytest.fixture
def make_agent(log_dir):
  """Returns a function that builds an offline agent with `SHARED_SETTINGS`."""
  from batch_rl.tests import cartpole

  def make(name='dqn', class_=None, **kwargs):
    settings = {**cartpole.SHARED_SETTINGS, **kwargs}
    return cartpole.build_offline_agent(name, log_dir, class_, **settings)

  return make


@pytest.fixture(scope='session')
def shared_agents(log_dir):
  """Returns a function that gives a named offline agent as it was when it was built.
  Tests share them: building one takes a second. Each has 5 actions and an update every
  4 agent steps. The target network is synchronised every 6 steps: at an update or
  between two, in turn. `min_replay_history` is huge, because it must have no effect.
  """
  from batch_rl.tests import cartpole

  built = {}

  def get(name, frames_on_device=False):
    key = name, frames_on_device
    if key not in built:
      # Only the gin name of the agent itself reaches it.
      class_name = cartpole.OFFLINE_CLASSES[name].__name__
      gin.bind_parameter(f'{class_name}.gamma', cartpole.GAMMA)
      setting = 'WrappedFixedReplayBuffer.frames_on_device'
      gin.bind_parameter(setting, frames_on_device)
      settings = dict(num_actions=5, min_replay_history=10**6)
      settings |= cartpole.PERIODS
      agent = cartpole.build_offline_agent(name, log_dir, **settings)
      gin.bind_parameter(setting, False)
      built[key] = agent, cartpole.values(agent)
    cartpole.restart(*built[key])
    return built[key][0]

  return get


@pytest.fixture
def synced(monkeypatch):
  """The names of what `os.fsync` was called with, without their random parts."""
  names = []

  def fsync(descriptor):
    name = os.path.basename(os.readlink(f'/proc/self/fd/{descriptor}'))
    names.append(re.sub(r'\.[0-9a-f]{16}\.tmp$', '.tmp', name))

  monkeypatch.setattr(os, 'fsync', fsync)
  return names


@pytest.fixture
def run_code():
  """Returns a function that runs code in a process that ends with `returncode`."""

  def run(code, *arguments, returncode=0):
    line = [sys.executable, '-c', code, *map(str, arguments)]
    done = subprocess.run(line, capture_output=True, text=True, timeout=300)
    assert done.returncode == returncode, done.stderr
    return done

  return run


@pytest.fixture
def refusal(capsys):
  """Returns a function that returns the only line by which a call ends a program."""

  def call(function, *arguments, **options):
    capsys.readouterr()
    with pytest.raises(SystemExit) as exit_:
      function(*arguments, **options)
    assert exit_.value.code == 2
    printed = capsys.readouterr().err
    assert printed.count('\n') == 1 and 'error: ' in printed
    return printed

  return call


@pytest.fixture
def own_folder(tmp_path, monkeypatch):
  """The current directory, for a user's own modules; they are forgotten."""
  from batch_rl.tests import user_code

  folder = tmp_path / 'own'
  folder.mkdir()
  monkeypatch.chdir(folder)
  with user_code.forgotten():
    yield folder
