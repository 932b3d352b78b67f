"""Small runs in both layouts, their web servers, and the command `fetch`."""

import shutil

import numpy as np
import pytest

from batch_rl.dataset.fetch import remotes, shard_run
from batch_rl.dataset.imports import store_import
from batch_rl.dataset.shards import manifests, replay_log
from batch_rl.dataset.unplugged import file_names, reader
from batch_rl.tests.dataset import conftest
from batch_rl.tests.dataset.fetch import web_server


@pytest.fixture(scope='session')
def original(tmp_path_factory):
  """Root of a dataset: three shards with some 100 kB of noise as frames each."""
  root = tmp_path_factory.mktemp('original')
  random = np.random.default_rng(0)
  data_dir = root / 'Pong' / '1' / 'replay_logs'
  with replay_log.ReplayLog(str(data_dir), (40, 40), np.uint8, 80) as log:
    for step in range(200):
      frame = random.integers(1, 255, (40, 40), np.uint8)
      log.add(frame, 1, 0.0, step % 30 == 29)
  return root


@pytest.fixture
def root(original, tmp_path):
  """A copy of the dataset without the manifest, as in the public bucket."""
  shutil.copytree(original, tmp_path / 'source')
  (tmp_path / 'source/Pong/1/replay_logs' / manifests.FILE_NAME).unlink()
  return tmp_path / 'source'


@pytest.fixture
def server(root, monkeypatch):
  """A web server of `root`; a run is probed for 4 shards instead of 51."""
  monkeypatch.setattr(remotes, '_FIRST_WAIT', 0.001)
  monkeypatch.setattr(shard_run, '_MAX_SHARDS', 4)
  with web_server.WebServer(root) as server:
    yield server


@pytest.fixture
def run(run, tmp_path):
  """Runs `fetch` of Pong/1, or of later flags, into the folder `data`."""

  def fetch(source, *arguments, to='data'):
    flags = '--game=Pong', '--run=1', f'--data_dir={tmp_path / to}'
    return run('fetch', source, *flags, *arguments)

  return conftest.Run(fetch)


@pytest.fixture
def store(tmp_path):
  """Directory of the run that `run` fetches."""
  return tmp_path / 'data' / 'Pong' / '1'


@pytest.fixture
def data_dir(store):
  """Directory of its shards."""
  return store / 'replay_logs'


@pytest.fixture(scope='session')
def original_unplugged(tmp_path_factory):
  """Root with checkpoints 0 to 3 of Pong/1, some 200 kB each."""
  from batch_rl.tests.dataset.unplugged import unplugged_files  # TensorFlow

  root = tmp_path_factory.mktemp('original') / 'rl_unplugged'
  folder = root / file_names.FOLDER / 'Pong'
  unplugged_files.write_run(folder, checkpoints=range(4))
  return root


@pytest.fixture(scope='session')
def run_hash(original_unplugged, tmp_path_factory):
  """Hash of the episodes in the store that `import` makes of the files."""
  folder = original_unplugged / file_names.FOLDER / 'Pong'
  raw = reader.UnpluggedReader(str(folder))
  directory = tmp_path_factory.mktemp('imported') / 'Pong' / '1'
  return store_import.import_parts(raw, str(directory), 'Pong')['hash']


@pytest.fixture
def unplugged(original_unplugged, tmp_path):
  """A copy of the root."""
  return shutil.copytree(original_unplugged, tmp_path / 'rl_unplugged')


@pytest.fixture
def pong(unplugged):
  """Folder of the game's files."""
  return unplugged / file_names.FOLDER / 'Pong'


@pytest.fixture
def web(unplugged, monkeypatch):
  """A web server of the root."""
  monkeypatch.setattr(remotes, '_FIRST_WAIT', 0.001)
  with web_server.WebServer(unplugged) as server:
    yield server
