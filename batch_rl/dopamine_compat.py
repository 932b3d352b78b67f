"""The one place that makes the pinned Dopamine importable, quiet and right.

`pip install dopamine-rl==4.1.2` gives a package that fails at its first import
beside current TensorFlow. `activate()` mends that, one function below for each
part, and touches nothing that the machine has for real:

| what breaks                                         | mended by            |
| --------------------------------------------------- | -------------------- |
| Keras 3 refuses Dopamine's networks                 | `_use_legacy_keras`  |
| `baselines` is imported, not declared, unobtainable | `_BaselinesStandIn`  |
| gin's TensorFlow support needs `tf.estimator`       | `_provide_estimator` |
| C51 builds an eager tensor into its graph           | `_use_graph_mode`    |
| Atari: a 100,000-frame cap, no choice of ROM        | `_use_our_atari`     |
| JAX and pandas are imported, unused: 3 s, 220 MB    | `_defer_...`         |
| memory is cleared for tensors: DQN a sixth slower   | `_reuse_memory`      |
| warnings that a user can do nothing about           | `_silence_*`         |

Nothing heavy is imported here: each mend waits for the import that needs it.
"""

import contextlib
import importlib
import importlib.abc
import importlib.util
import io
import logging
import os
import re
import sys
import tempfile
import types
import warnings


def activate() -> None:
  """Installs the mends. Calling it again does nothing.

  Raises:
    ImportError: if TensorFlow has already bound `tf.keras` to Keras 3.
  """
  if any(isinstance(finder, _ImportHooks) for finder in sys.meta_path):
    return
  _use_legacy_keras()
  _reuse_memory()
  _silence_start_up()
  sys.meta_path.insert(0, _ImportHooks())
  # Last in line, so that an installed `baselines` is found before it.
  sys.meta_path.append(_BaselinesStandIn())
  for name, mend in _AROUND_IMPORT.items():
    if name in sys.modules:
      with mend():
        pass


def _use_legacy_keras() -> None:
  """Selects Keras 2 (`tf_keras`); Dopamine's networks don't build on Keras 3."""
  os.environ.setdefault('TF_USE_LEGACY_KERAS', '1')
  tf = sys.modules.get('tensorflow')
  # `tf.keras` is bound at its first use; reading `__dict__` does not bind it.
  keras = getattr(tf, '__dict__', {}).get('keras')
  if keras is not None and getattr(keras, '__version__', '').startswith('3'):
    raise ImportError(
      'tf.keras is already Keras 3, with which the agents do not work: '
      'import batch_rl before tf.keras is used, or set '
      'TF_USE_LEGACY_KERAS=1 in the environment.'
    )


def _reuse_memory() -> None:
  """TensorFlow keeps a CPU's memory for other tensors, as it does a GPU's.

  By default it may go back to the system, which clears it: up to 7,000 page faults in
  an update.
  """
  os.environ.setdefault('TF_CPU_ALLOCATOR_USE_BFC', 'true')


def _silence_start_up() -> None:
  """Notices that TensorFlow, CUDA and JAX print on a machine without a GPU."""
  gpu = any(map(os.path.exists, ('/dev/nvidiactl', '/dev/dxg')))
  # Level 3 only to hide 'failed call to cuInit', logged as an error; errors
  # that matter are raised as exceptions too.
  os.environ.setdefault('TF_CPP_MIN_LOG_LEVEL', '2' if gpu else '3')
  logging.getLogger('jax').setLevel(logging.ERROR)


@contextlib.contextmanager
def _silence_tensorflow_import():
  """Drops the lines that TensorFlow's C++ logs before it can be configured.

  They come from code that runs before TF_CPP_MIN_LOG_LEVEL is read, so only the
  file descriptor can be told. Every other line is passed on.
  """
  noise = re.compile(rb'(I0000 |WARNING: All log messages before absl).*\n?')
  stderr = os.dup(2)
  with tempfile.TemporaryFile() as caught:
    os.dup2(caught.fileno(), 2)
    try:
      yield
    finally:
      os.dup2(stderr, 2)
      os.close(stderr)
      caught.seek(0)
      os.write(2, noise.sub(b'', caught.read()))


@contextlib.contextmanager
def _silence_gym():
  """Gym prints 'unmaintained since 2022'; Dopamine imports it regardless."""
  with contextlib.redirect_stderr(io.StringIO()), warnings.catch_warnings():
    warnings.simplefilter('ignore')
    yield


@contextlib.contextmanager
def _silence_deprecations():
  """gin and TensorFlow Probability use distutils and retired parts of JAX."""
  with warnings.catch_warnings():
    warnings.simplefilter('ignore', DeprecationWarning)
    yield


@contextlib.contextmanager
def _provide_estimator():
  """Gives gin the one class of `tf.estimator` that it subclasses.

  `gin.tf.external_configurables`, imported by every TensorFlow gin file, defines
  a hook for Estimators, which TensorFlow dropped. Nothing here uses that hook.
  """
  import tensorflow as tf

  if not hasattr(tf, 'estimator'):
    tf.estimator = types.SimpleNamespace(
      SessionRunHook=tf.compat.v1.train.SessionRunHook
    )
  with _silence_deprecations():
    yield


@contextlib.contextmanager
def _use_graph_mode():
  """Turns v2 behaviour off before any agent builds a tensor.

  Dopamine does so inside `DQNAgent.__init__`, which is after C51 has made its
  support as an eager tensor: 'Attempting to capture an EagerTensor'.
  """
  import tensorflow as tf
  from tensorflow.python.util import deprecation

  # TensorFlow warns of its own v1 optimisers; there is no public switch.
  deprecation._PRINT_DEPRECATION_WARNINGS = False
  tf.compat.v1.disable_v2_behavior()
  yield


@contextlib.contextmanager
def _use_our_atari():
  """Makes Dopamine build Atari with our ROM sets and the paper's frame cap."""
  yield
  from batch_rl.atari import environment

  atari_lib = sys.modules['dopamine.discrete_domains.atari_lib']
  atari_lib.gym = environment.GymWithRomSets(atari_lib.gym)


def _defer_jax_agents():
  """Lets Dopamine's runners import its JAX agents when one is asked for.

  They import all of them, with Flax, Optax and TensorFlow Probability.
  """
  return _defer(_JAX_AGENTS)


def _defer_jax():
  """TensorFlow Lite takes a function of JAX, to convert functions of JAX."""
  return _defer(
    ['jax'], jit=lambda *args: importlib.import_module('jax').jit(*args)
  )


def _defer_pandas():
  """Keras wants to know a data frame when it trains on one."""
  return _defer(['pandas'])


@contextlib.contextmanager
def _defer(names, **attributes):
  """Whoever imports these modules here, gets them when something of them is used.

  Whoever else imports one, gets it at once.
  """
  deferred = [name for name in names if name not in sys.modules]
  for name in deferred:
    sys.modules[name] = _Deferred(name)
    vars(sys.modules[name]).update(attributes)
  try:
    yield
  finally:
    for name in deferred:
      sys.modules.pop(name, None)


class _Deferred(types.ModuleType):
  """What a module of this name has, imported at the first use."""

  def __getattr__(self, attribute):
    if attribute.startswith('__'):
      raise AttributeError(attribute)
    return getattr(importlib.import_module(self.__name__), attribute)


_JAX_AGENTS = [
  f'dopamine.jax.agents.{kind}.{kind}_agent'
  for kind in (
    'dqn',
    'full_rainbow',
    'implicit_quantile',
    'ppo',
    'quantile',
    'rainbow',
  )
]
_AROUND_IMPORT = {
  'tensorflow': _silence_tensorflow_import,
  'tensorflow.lite.python.util': _defer_jax,
  'tf_keras.src.engine.data_adapter': _defer_pandas,
  'tensorflow_probability': _silence_deprecations,
  'tensorflow_probability.substrates.jax': _silence_deprecations,
  'gym': _silence_gym,
  'gin.tf': _provide_estimator,
  'dopamine.tf.agents': _use_graph_mode,
  'dopamine.discrete_domains.atari_lib': _use_our_atari,
  'dopamine.discrete_domains.run_experiment': _defer_jax_agents,
}


class _ImportHooks(importlib.abc.MetaPathFinder):
  """Runs each mend around the import it belongs to; finds nothing itself."""

  def __init__(self):
    self._looking_for = set()

  def find_spec(self, name, path=None, target=None):
    if name not in _AROUND_IMPORT or name in self._looking_for:
      return None
    self._looking_for.add(name)
    try:
      spec = importlib.util.find_spec(name)
    finally:
      self._looking_for.remove(name)
    if spec is not None and spec.loader is not None:
      execute = spec.loader.exec_module

      def execute_mended(module):
        with _AROUND_IMPORT[name]():
          execute(module)

      spec.loader.exec_module = execute_mended
    return spec


class _BaselinesStandIn(importlib.abc.MetaPathFinder, importlib.abc.Loader):
  """Stands in for OpenAI Baselines, which only Dopamine's PPO uses."""

  _MODULES = (
    'baselines',
    'baselines.common',
    'baselines.common.atari_wrappers',
  )

  def find_spec(self, name, path=None, target=None):
    if name not in self._MODULES:
      return None
    return importlib.util.spec_from_loader(name, self, is_package=True)

  def create_module(self, spec):
    return None

  def exec_module(self, module):
    if module.__name__ != self._MODULES[-1]:
      return

    def missing(attribute):
      if attribute.startswith('__'):
        raise AttributeError(attribute)
      raise ImportError(
        f'{module.__name__}.{attribute} needs OpenAI Baselines, which is not '
        "installed; in Dopamine only PPO's Atari preprocessing uses it."
      )

    module.__getattr__ = missing
