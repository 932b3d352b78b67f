"""The repairs of dopamine_compat, seen from a new interpreter."""

import importlib
import importlib.util
import logging
import os
import pathlib
import re
import subprocess
import sys

import gin
import numpy as np
import pandas as pd
import pytest

from batch_rl import dopamine_compat
from batch_rl.tests import programs


def run(code, **environment):
  """Runs code in a new interpreter, with the environment of a new shell."""
  # JAX adds TF_ variables to the environment. Python 3.12 warns of forks in threads.
  inherited = {k: v for k, v in os.environ.items() if not k.startswith('TF_')}
  line = [sys.executable, '-W', 'ignore:This process', '-c', code]
  return programs.run(line, env={**inherited, **environment})


def test_dopamine_is_silent_and_defers_heavy_packages(tmp_path, monkeypatch):
  """Covers Keras 3, Baselines, Estimators, eager C51 and the banner of ale-py."""
  (tmp_path / 'baselines').mkdir()  # of the user
  monkeypatch.chdir(tmp_path)
  done = run("""
import sys
import batch_rl.agents
import gin.tf.external_configurables
from dopamine.discrete_domains import run_experiment
from dopamine.tf.agents.rainbow import rainbow_agent
from dopamine.discrete_domains import atari_lib
atari_lib.create_atari_environment('Pong')
from batch_rl.atari import environment
environment.make_vector_environment(environment.make_atari('Pong').rom, 1)
agent = rainbow_agent.RainbowAgent(None, 6, replay_scheme='uniform')
print(agent._sess.run(agent._support)[0])
import batch_rl.fixed_replay.run_experiment, batch_rl.baselines.run_experiment
heavy = ('jax', 'flax', 'optax', 'tensorflow_probability', 'pandas')
print([m for m in heavy if m in sys.modules])
sys.stderr.write('Heavy packages may warn.')
sys.stderr.flush()
import tensorflow
tensorflow.get_logger().warning('Warnings of TensorFlow are kept.')
""")
  assert done.returncode == 0, done.stderr
  assert done.stderr.startswith('Heavy packages may warn.')
  assert 'Warnings of TensorFlow are kept.' in done.stderr
  assert done.stdout == '-10.0\n[]\n', done.stderr


def test_deferred_packages_are_imported_at_their_first_use():
  importlib.import_module('batch_rl.agents')
  name = 'dopamine.discrete_domains.run_experiment'
  run_experiment = importlib.import_module(name)
  deferred = run_experiment.jax_dqn_agent
  agent = importlib.import_module('dopamine.jax.agents.dqn.dqn_agent')
  assert agent.JaxDQNAgent is deferred.JaxDQNAgent
  gin.parse_config('JaxDQNAgent.gamma = 0.5')
  assert run_experiment.full_rainbow_agent.JaxFullRainbowAgent
  lite = importlib.import_module('tensorflow.lite.python.util')
  assert lite._jit(abs)(-2.0) == 2.0
  adapter = importlib.import_module('tf_keras.src.engine.data_adapter')
  frame = pd.DataFrame({'a': [1.0, 2.0]})
  assert adapter.TensorLikeDataAdapter.can_handle(frame)
  assert adapter._is_pandas_series(frame['a'])


def test_packages_import_nothing_heavy_and_data_tools_change_nothing(tmp_path):
  """Hooks are installed by the import of any package of agents."""
  done = run(f"""
import importlib, os, sys
before = dict(os.environ), list(sys.meta_path)
import batch_rl.dataset
print((dict(os.environ), list(sys.meta_path)) == before, 'numpy' in sys.modules)
import numpy as np
from batch_rl.dataset import ReplayLog, Sampler, store
with ReplayLog('{tmp_path}', (4,), np.float64, 100, stack_size=1) as log:
  for step in range(30):
    log.add(np.full(4, step), step % 3, -0.5, step % 10 == 9)
draw = batch_rl.dataset.open('{tmp_path}').transitions(stack_size=1, seed=0)
batch = draw.batch(0, 8)
assert draw.num_transitions == 30
np.testing.assert_array_equal(batch.state[:, 0, 0] % 3, batch.action % 3)
heavy = {{'tensorflow', 'jax', 'dopamine', 'gin', 'gym', 'batch_rl.dopamine_compat'}}
print(heavy & sys.modules.keys(), [k for k in os.environ if 'TF_' in k])
for package in ('agents', 'baselines', 'fixed_replay', 'multi_head', 'runs'):
  if not os.fork():
    importlib.import_module('batch_rl.' + package)
    print('tensorflow' in sys.modules, 'batch_rl.dopamine_compat' in sys.modules)
    os._exit(sys.stdout.flush() or 0)
  os.wait()
""")
  assert done.stdout == 'True False\nset() []\n' + 'False True\n' * 5
  assert not done.stderr


def test_fixes_are_installed_once():
  importlib.import_module('batch_rl.agents')
  logger = logging.getLogger('tensorflow')
  finders, filters = sys.meta_path[:], logger.filters[:]
  dopamine_compat.activate()
  assert (sys.meta_path, logger.filters) == (finders, filters)


def test_old_names_of_dopamines_modules_give_the_same_modules():
  importlib.import_module('batch_rl.agents')
  for name in 'agents', 'agents.dqn.dqn_agent', 'replay_memory':
    old = importlib.import_module(f'dopamine.{name}')
    assert old is importlib.import_module(f'dopamine.tf.{name}')
    assert old.__spec__.name == old.__name__ == f'dopamine.tf.{name}'
    assert importlib.util.find_spec(f'dopamine.{name}') is old.__spec__
  with pytest.raises(ModuleNotFoundError, match='dopamine.agents.absent'):
    importlib.import_module('dopamine.agents.absent.more')


def test_repairs_work_if_tensorflow_was_imported_first():
  """An Estimator that TensorFlow has is kept. Keras 3 in use is an error."""
  done = run("""
import os
import resource
import types
import tensorflow as tf
if not os.fork():
  tf.keras.Model  # Keras 3, in this process only
  import batch_rl.agents
print(os.waitstatus_to_exitcode(os.wait()[1]), flush=True)
tf.estimator = types.SimpleNamespace(SessionRunHook=int)
import batch_rl.agents
import gin.tf.utils
print(tf.estimator.SessionRunHook is int)
print(tf.keras.Model.__module__.split('.')[0])
def page_faults():
  return resource.getrusage(resource.RUSAGE_SELF).ru_minflt
with tf.Graph().as_default(), tf.compat.v1.Session() as session:
  total = tf.reduce_sum(tf.exp(tf.random.uniform((1000, 10_000))))
  counts = [(session.run(total), page_faults())[1] for _ in range(6)]
  print(counts[5] - counts[1] < 40_000_000 / resource.getpagesize())
""")
  assert done.stdout == '1\nTrue\ntf_keras\nTrue\n', done.stderr
  assert 'ImportError: tf.keras is already Keras 3' in done.stderr


def test_arrays_are_handed_to_tensorflow_as_its_own_conversion_does():
  importlib.import_module('tensorflow')
  module = importlib.import_module('tensorflow.python.util.numpy_compat')
  convert = module.np_asarray.__wrapped__
  assert convert.__module__ == module.__name__
  values = np.arange(6).reshape(2, 3).T  # transposed
  for options in {}, {'order': 'C'}, {'dtype': np.float32}, {'copy': True}:
    expected = convert(values, **options)
    found = module.np_asarray(values, **options)
    assert type(found) is type(expected) and found.dtype == expected.dtype
    assert found.flags.c_contiguous == expected.flags.c_contiguous
    assert (found is values) == (expected is values)
    np.testing.assert_array_equal(found, expected)


def test_private_modules_of_libraries_are_used_in_one_place():
  """If another TensorFlow lacks a name, its test fails, here or above."""
  assert dopamine_compat.is_deterministic() is False
  package = pathlib.Path(dopamine_compat.__file__).parent
  private = re.compile(r'tensorflow\.python|numba\.core|jax\._src')
  found = {
    str(path.relative_to(package))
    for path in package.rglob('*.py')
    if 'tests' not in path.parts and private.search(path.read_text())
  }
  assert found == {'dopamine_compat.py'}


@pytest.mark.parametrize(
  'end', ['', 'raise ImportError("libtensorflow is broken")']
)
def test_messages_during_the_import_of_tensorflow_are_kept(tmp_path, end):
  """However the import ends."""
  (tmp_path / 'tensorflow.py').write_text(f"""
import os
os.write(2, b'WARNING: All log messages before absl::InitializeLog() ...\\n')
os.write(2, b'I0000 00:00:17.3  1 port.cc:153] oneDNN is on.\\n')
os.write(2, b'W0000 00:00:17.3  1 gpu.cc:1] Your driver is too old.\\n')
{end}
""")
  done = run('import batch_rl.agents, tensorflow', PYTHONPATH=str(tmp_path))
  assert done.returncode == bool(end)
  first, *rest = done.stderr.splitlines()
  assert 'Your driver is too old.' in first
  assert ('libtensorflow is broken' in str(rest)) == bool(end) == bool(rest)
  line = [sys.executable, '-c', 'import batch_rl.agents, tensorflow']
  without_stderr = subprocess.run(
    line, cwd=tmp_path, preexec_fn=lambda: os.close(2), check=False
  )
  assert without_stderr.returncode == bool(end)
