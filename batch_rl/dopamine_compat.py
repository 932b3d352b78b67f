"""Fixes that make the pinned Dopamine work with current TensorFlow.

`dopamine-rl==4.1.2` cannot be imported with current TensorFlow. `activate()`
installs one fix for each problem, and never replaces an installed package:

| problem                                             | fix                  |
| --------------------------------------------------- | -------------------- |
| Keras 3 refuses Dopamine's networks                 | `_use_legacy_keras`  |
| `baselines` is imported, but cannot be installed    | `_use_our_atari`     |
| gin's TensorFlow support needs `tf.estimator`       | `_provide_estimator` |
| C51 builds an eager tensor into its graph           | `_use_graph_mode`    |
| Atari: a 100,000-frame cap, no choice of ROM        | `_use_our_atari`     |
| JAX and pandas are imported, unused: 3 s, 220 MB    | `_defer`             |
| memory zeroed for each tensor: DQN a sixth slower   | `_reuse_memory`      |
| Python calls in graphs: 15 us for each array        | `_hand_arrays_over`  |
| messages that are no use to users                   | `_silence_*`         |
| users' code imports modules by their old names      | `_MovedModules`      |

Nothing heavy is imported here: each fix waits for the import that needs it. Names of
TensorFlow's private modules are used here only; each has a test.
"""

import contextlib
import functools
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
from typing import Any

from absl import logging as absl_logging

from batch_rl.utils import programs

# Dopamine calls deprecated functions of TensorFlow and of its own; a notebook would also
# show a line for each checkpoint that is restored.
_NOISE = re.compile(
  'Instructions for updating|Logger is being deprecated|^Restoring parameters'
)


def activate() -> None:
  """Installs the fixes; idempotent.

  Raises:
    ImportError: If Dopamine is not installed, or TensorFlow has already bound `tf.keras`
      to Keras 3.
  """
  if any(isinstance(finder, _ImportHooks) for finder in sys.meta_path):
    return
  programs.open_closed_streams()
  if importlib.util.find_spec('dopamine') is None:
    # With this name, `python -m` shows the message without a traceback.
    raise ImportError(
      'this part of batch_rl needs TensorFlow and Dopamine, which data_only leaves '
      'out: run `pip install .` in the clone.',
      name='batch_rl',
    )
  _use_legacy_keras()
  _reuse_memory()
  _silence_start_up()
  sys.meta_path[:0] = [_MovedModules(), _ImportHooks()]
  for name, fix in _AROUND_IMPORT.items():
    if name in sys.modules:
      with fix():
        pass


def _use_legacy_keras() -> None:
  """Selects Keras 2 (`tf_keras`); Dopamine's networks don't build on Keras 3."""
  os.environ.setdefault('TF_USE_LEGACY_KERAS', '1')
  tf = sys.modules.get('tensorflow')
  # `tf.keras` is bound at its first use; reading `__dict__` does not bind it.
  keras = getattr(tf, '__dict__', {}).get('keras')
  if keras is not None and getattr(keras, '__version__', '').startswith('3'):
    raise ImportError(
      'tf.keras is already Keras 3, which the agents do not support: '
      'import batch_rl.agents before tf.keras is used, or set '
      'TF_USE_LEGACY_KERAS=1 in the environment.'
    )


def _reuse_memory() -> None:
  """Makes TensorFlow reuse CPU memory, as it reuses GPU memory.

  The system zeroes memory that is returned and requested again: up to 7,000 page
  faults an update.
  """
  os.environ.setdefault('TF_CPU_ALLOCATOR_USE_BFC', 'true')


def _silence_start_up() -> None:
  """Silences start-up notices of TensorFlow, CUDA and JAX without a GPU."""
  gpu = any(map(os.path.exists, ('/dev/nvidiactl', '/dev/dxg')))
  # Level 3 hides 'failed call to cuInit', which is logged as an error. Errors that
  # matter are raised as exceptions, too.
  os.environ.setdefault('TF_CPP_MIN_LOG_LEVEL', '2' if gpu else '3')
  logging.getLogger('jax').setLevel(logging.ERROR)
  for logger in logging.getLogger('tensorflow'), absl_logging.get_absl_logger():
    logger.addFilter(lambda record: not _NOISE.search(str(record.msg)))


@contextlib.contextmanager
def _silence_tensorflow_import():
  """Drops the lines that TensorFlow's C++ code logs before it reads its log level.

  They can be caught at the file descriptor only.
  """
  stderr = os.dup(2)
  with tempfile.TemporaryFile() as caught:
    os.dup2(caught.fileno(), 2)
    try:
      yield
    finally:
      os.dup2(stderr, 2)
      os.close(stderr)
      caught.seek(0)
      for line in caught:
        if not line.startswith(
          (b'I0000 ', b'WARNING: All log messages before')
        ):
          os.write(2, line)


@contextlib.contextmanager
def _hand_arrays_over():
  """Skips TensorFlow's conversion of arrays that Python functions return to a graph.

  It parses NumPy's version for each array, which takes half the time of a batch, under
  the interpreter's lock.
  """
  yield
  import numpy as np

  module: Any = sys.modules['tensorflow.python.util.numpy_compat']
  convert = module.np_asarray

  @functools.wraps(convert)
  def np_asarray(values, dtype=None, order=None, copy=None):
    if isinstance(values, np.ndarray) and dtype is copy is None:
      return np.asarray(values, order=order)
    return convert(values, dtype, order, copy)

  module.np_asarray = np_asarray


@contextlib.contextmanager
def _silence_gym():
  """Silences Gym's note that it is unmaintained; Dopamine still imports it."""
  # gym changes the filters of warnings.
  with contextlib.redirect_stderr(io.StringIO()), warnings.catch_warnings():
    yield


@contextlib.contextmanager
def _provide_estimator():
  """Provides the one class of `tf.estimator` that gin subclasses.

  `gin.tf.external_configurables`, which every TensorFlow gin file imports, defines a
  hook for Estimators, which TensorFlow dropped. This package does not use the hook.
  """
  import tensorflow as tf

  if not hasattr(tf, 'estimator'):
    tf.estimator = types.SimpleNamespace(
      SessionRunHook=tf.compat.v1.train.SessionRunHook
    )
  yield


@contextlib.contextmanager
def _use_graph_mode():
  """Turns v2 behaviour off before any agent builds a tensor.

  Dopamine does so in `DQNAgent.__init__`, after C51 has built its support as an
  eager tensor, which fails with 'Attempting to capture an EagerTensor'.
  """
  import tensorflow as tf

  tf.compat.v1.disable_v2_behavior()
  yield


@contextlib.contextmanager
def _use_our_atari():
  """Makes Dopamine build Atari with our ROM sets and the paper's frame cap.

  Stands in for OpenAI Baselines, which only Dopamine's PPO uses.
  """
  wrappers = _Deferred('baselines.common.atari_wrappers')
  with _defer(['baselines.common'], atari_wrappers=wrappers):
    yield
  from batch_rl.atari import environment

  atari_lib: Any = sys.modules['dopamine.discrete_domains.atari_lib']
  atari_lib.gym = environment.GymWithRomSets(atari_lib.gym)


@contextlib.contextmanager
def _defer(names, **attributes):
  """Makes imports of these modules lazy inside the context.

  Imports elsewhere are not affected.

  Args:
    names: Names of the modules.
    **attributes: Attributes that the lazy modules have at once.
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
  """Module that is imported at the first use of an attribute."""

  def __getattr__(self, attribute):
    if attribute.startswith('__'):
      raise AttributeError(attribute)
    return getattr(importlib.import_module(self.__name__), attribute)


# Dopamine's runners import all of its JAX agents, with Flax, Optax and TensorFlow
# Probability, and tqdm's bar for notebooks, which warns if they have no widgets.
# TensorFlow Lite imports JAX only to convert its functions, Keras imports
# pandas only to recognise data frames.
_JAX_AGENTS = tuple(
  f'dopamine.jax.agents.{kind}.{kind}_agent'
  for kind in 'dqn full_rainbow implicit_quantile ppo quantile rainbow'.split()
)
_AROUND_IMPORT = {
  'tensorflow': _silence_tensorflow_import,
  'tensorflow.lite.python.util': lambda: _defer(
    ['jax'], jit=lambda *args: importlib.import_module('jax').jit(*args)
  ),
  'tensorflow.python.util.numpy_compat': _hand_arrays_over,
  'tf_keras.src.engine.data_adapter': lambda: _defer(['pandas']),
  'gym': _silence_gym,
  'gin.tf': _provide_estimator,
  'dopamine.tf.agents': _use_graph_mode,
  'dopamine.discrete_domains.atari_lib': _use_our_atari,
  'dopamine.discrete_domains.run_experiment': lambda: _defer(
    (*_JAX_AGENTS, 'tqdm.auto')
  ),
}


class _ImportHooks(importlib.abc.MetaPathFinder):
  """Finder that runs each fix around its import; other finders locate the module."""

  def find_spec(self, name, path=None, target=None):
    if name not in _AROUND_IMPORT:
      return None
    others = (finder for finder in sys.meta_path if finder is not self)
    specs = (finder.find_spec(name, path, target) for finder in others)
    spec = next(filter(None, specs), None)
    if spec is not None and spec.loader is not None:
      loader: Any = spec.loader
      execute = loader.exec_module

      def execute_fixed(module):
        with _AROUND_IMPORT[name]():
          execute(module)

      loader.exec_module = execute_fixed
    return spec


def is_deterministic() -> bool:
  """Returns whether TensorFlow runs deterministic operations only."""
  from tensorflow.python.framework import config  # no public name tells it

  return config.is_op_determinism_enabled()


# Packages that Dopamine 4.1 moved, and where they are now.
_MOVED = {
  'dopamine.agents': 'dopamine.tf.agents',
  'dopamine.replay_memory': 'dopamine.tf.replay_memory',
}
_MOVED_NAME = re.compile(
  rf'(?<![\w.])({"|".join(map(re.escape, _MOVED))})(?!\w)'
)


def current_names(text: str) -> str:
  """Returns a text with the current names of the modules that Dopamine has moved.

  Args:
    text: Lines of gin, or the name of a module.
  """
  return _MOVED_NAME.sub(lambda match: _MOVED[match[1]], text)


class _MovedModules(importlib.abc.MetaPathFinder, importlib.abc.Loader):
  """Finder of moved modules: the old name gives the very same module.

  It precedes Python's own finder, which would make a second module of the same file.
  """

  def find_spec(self, name, path=None, target=None):
    current = current_names(name)
    if current == name or importlib.util.find_spec(current) is None:
      return None
    return importlib.util.spec_from_loader(name, self)

  def create_module(self, spec):
    module = importlib.import_module(current_names(spec.name))
    spec.loader_state = module.__spec__
    return module

  def exec_module(self, module):
    # The import of the old name has replaced it.
    module.__spec__ = module.__spec__.loader_state
