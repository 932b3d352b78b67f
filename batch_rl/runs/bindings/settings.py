"""Gin parameters of the package: allowed values, and what they affect.

The table has every parameter that the package takes as a number, and the common ones of
Dopamine and TensorFlow's optimisers, by name. A name means the same in all of them. A
parameter whose default is True or False needs no entry if it affects results; None is
allowed where it is the default.
Checks of bindings, the comparison of a resumed run with its record, and reports read it.
A parameter of the user's own code is checked only if it is inherited from a class of the
package.
"""

import dataclasses
import enum
import functools
import inspect
import numbers
import re
from collections.abc import Callable
from typing import Any

from gin import config

from batch_rl.runs.bindings import gin_internals

# Packages whose parameters are in the table.
_PACKAGES = ('batch_rl', 'dopamine', 'tensorflow', 'tf_keras', 'keras')
_LITERALS = (str, bytes, bool, numbers.Number, list, tuple, dict, set)


class Affects(enum.Enum):
  """Effect of a setting.

  Attributes:
    RESULTS: The learnt policy. Reports compare different values as different methods.
    PROTOCOL: Data, evaluation, or whether a repeated run is bit-exact. Reports
      compare what `run_results` reads into `protocol`, and count other differences as
      one method. A resumed run may not change them.
    RUNNING: Length, speed or files; a resumed run may change them. Also settings that
      have an entry of their own in the run's record, such as `seed`, where they are
      compared.
  """

  RESULTS = enum.auto()
  PROTOCOL = enum.auto()
  RUNNING = enum.auto()


@dataclasses.dataclass(frozen=True)
class Setting:
  """A parameter.

  Attributes:
    text: Allowed values in words, after 'give'.
    accepts: Function that returns whether a value, not None, is allowed.
    none: Whether None is allowed, also where it is not the default.
    affects: Effect of the parameter.
    owner: Pattern of the classes whose parameter `affects` describes. Parameters of
      other classes affect results.
    is_online: Whether only online training uses it.
    is_object: Whether a reference has to be to an object, with (). For other settings
      any reference is allowed, e.g. to a schedule.
  """

  text: str
  accepts: Callable[[Any], bool]
  none: bool = False
  affects: Affects = Affects.RESULTS
  owner: str = r'\w+'
  is_online: bool = False
  is_object: bool = False

  def allows(self, value: Any) -> bool:
    """Returns whether a value, with macros resolved, is allowed."""
    if isinstance(value, config.ConfigurableReference):
      return value.evaluate or not self.is_object
    return self.none if value is None else self.accepts(value)

  def __str__(self) -> str:
    return f'{self.text}, or None' if self.none else self.text


def is_integer(value: Any) -> bool:
  """Returns whether a value is an integer, and not a boolean."""
  return isinstance(value, numbers.Integral) and not isinstance(value, bool)


def _integer(low: int, high: int) -> Setting:
  return Setting(
    f'an integer from {low} to {high:,}',
    lambda value: is_integer(value) and low <= value <= high,
  )


def _number(low: float, high: float, above: bool = False) -> Setting:
  """A range of numbers; with `above`, without its lower end."""

  def accepts(value):
    if not isinstance(value, numbers.Real) or isinstance(value, bool):
      return False
    number: Any = value  # `Real` has no order
    return (low < number if above else low <= number) and number <= high

  start = f'above {low:g}, at most' if above else f'from {low:g} to'
  return Setting(f'a number {start} {high:g}', accepts)


_LIST = Setting(
  'a list, e.g. [@CQL()]', lambda value: isinstance(value, (list, tuple))
)
_BOOLEAN = Setting('True or False', lambda value: isinstance(value, bool))
_TEXT = Setting(
  'a text in quotes',
  lambda value: isinstance(value, str) and bool(value.strip()),
)
_GAME = dataclasses.replace(_TEXT, text="a game in quotes, e.g. 'Pong'")
_NAMES = Setting(
  "a list of names in quotes, e.g. ['wandb']",
  lambda value: _LIST.accepts(value) and {*map(type, value)} <= {str},
)
_FUNCTION = Setting(
  'a class or function as @Name', lambda value: not isinstance(value, _LITERALS)
)
_OPTIMIZER = dataclasses.replace(
  _FUNCTION,
  text='an optimiser with (), e.g. @tf.train.AdamOptimizer()',
  is_object=True,
)
_DTYPE = dataclasses.replace(_FUNCTION, text='a dtype, e.g. %tf.uint8')
_DEVICE_PARTS = re.compile(
  r'(/?(job:\w+|replica:\d+|task:\d+|(device:)?[cgt]pu:(\d+|\*)))*',
  re.IGNORECASE,
)
_DEVICE = Setting(
  "a device in quotes, e.g. '/gpu:0'",
  lambda value: isinstance(value, str) and bool(_DEVICE_PARTS.fullmatch(value)),
  none=True,
)
_SHAPE = Setting(
  'a tuple of integers of at least 1, e.g. (84, 84)',
  lambda value: (
    isinstance(value, tuple)
    and all(is_integer(length) and 1 <= length <= 10**6 for length in value)
  ),
)

_COUNT = _integer(1, 10**9)
_SIZE = _integer(1, 100_000)
_STEPS = _integer(1, 10**12)
_STEPS_OR_NONE = dataclasses.replace(_STEPS, none=True)
_SEED = _integer(0, 2**63 - 1)
_PROBABILITY = _number(0, 1)
_MINUTES = dataclasses.replace(_number(0, 10**9, above=True), none=True)
_RATE = _number(0, 1000, above=True)

# Classes by name; reports read settings of classes that they cannot import.
RUNNER = r'\w*Runner'
# This package's runners by kind.
RUNNERS = {'offline': 'FixedReplayRunner', 'online': 'LoggedRunner'}
# Defaults of Dopamine's runner, and of its agents for `update_period`.
DEFAULTS = {
  'num_iterations': 200,
  'training_steps': 250_000,
  'evaluation_steps': 125_000,
  'max_steps_per_episode': 27_000,
  'update_period': 4,
}
_MEMORY = r'\w*(Buffer|Replay|Memory)'


def _mark(affects: Affects, setting: Setting, owner: str = r'\w+') -> Setting:
  """Marks a setting, maybe of some classes only, in the table."""
  return dataclasses.replace(setting, affects=affects, owner=owner)


_protocol = functools.partial(_mark, Affects.PROTOCOL)
_running = functools.partial(_mark, Affects.RUNNING)
_online = functools.partial(dataclasses.replace, is_online=True)

SETTINGS = {
  # Runs.
  'num_iterations': _running(_COUNT, RUNNER),
  'training_steps': _STEPS,  # agent steps
  # Agent steps; 0 for no evaluation.
  'evaluation_steps': _protocol(_integer(0, 10**12), RUNNER),
  'max_steps_per_episode': _protocol(_STEPS_OR_NONE, RUNNER),  # agent steps
  'evaluation_environments': _protocol(_integer(1, 10_000), RUNNER),
  'probe_size': _running(_integer(0, 100_000), RUNNER),  # transitions
  'intra_op_threads': _running(_SIZE, RUNNER),
  'log_every_n': _running(_COUNT, RUNNER),
  'loggers': _running(_NAMES, RUNNER),
  'use_legacy_logger': _running(_BOOLEAN, RUNNER),
  'fine_grained_print_to_console': _running(_BOOLEAN, RUNNER),
  'create_environment_fn': _FUNCTION,
  'seed': _running(_SEED, 'run_seed'),  # also an entry of the record
  'deterministic_ops': _protocol(_BOOLEAN, 'run_seed'),
  'collectors': _running(_LIST, 'CollectorDispatcher'),
  # Checkpoints.
  'keep': _running(_COUNT, 'Checkpoints'),  # iterations
  'keep_every': _running(_COUNT, 'Checkpoints'),  # iterations
  'every_minutes': _running(_MINUTES, 'Checkpoints'),
  'every_steps': _running(_STEPS_OR_NONE, 'Checkpoints'),  # agent steps
  'checkpoint_duration': _running(_COUNT, _MEMORY),  # iterations
  'max_tf_checkpoints_to_keep': _running(_COUNT),
  # Agents.
  'display_name': _running(_TEXT),
  # Also an entry of the record.
  'agent_name': _running(_TEXT, r'create_(\w+_)?agent'),
  'observation_shape': _SHAPE,
  'observation_dtype': _DTYPE,
  'stack_size': _integer(1, 1000),  # frames
  'network': _FUNCTION,
  'gamma': _PROBABILITY,
  'update_horizon': _integer(1, 10_000),  # agent steps
  'min_replay_history': _online(_integer(0, 10**12)),  # agent steps
  'update_period': _COUNT,  # agent steps
  'target_update_period': _STEPS,  # agent steps
  'epsilon_fn': _online(_FUNCTION),
  'epsilon_train': _online(_PROBABILITY),
  'epsilon_eval': _protocol(_PROBABILITY),
  'epsilon_decay_period': _online(_STEPS),  # agent steps
  'optimizer': _OPTIMIZER,
  'tf_device': _protocol(_DEVICE),
  'use_staging': _running(_BOOLEAN),
  'summary_writing_frequency': _running(_STEPS),  # agent steps
  'updates_per_run': _running(_integer(1, 10**6)),
  'num_atoms': _SIZE,
  'vmin': _number(-1e9, 1e9),
  'vmax': _number(-1e9, 1e9),
  'kappa': _number(0, 1e9),
  'delta': dataclasses.replace(_number(0, 1e9, above=True), none=True),
  'num_heads': _SIZE,
  'num_networks': _integer(1, 1000),
  'num_convex_combinations': _SIZE,
  'transform_strategy': _TEXT,
  # Parts of agents.
  'terms': _LIST,
  'base_dir': _TEXT,  # of another run
  'iteration': _integer(0, 10**9),  # of another run
  'weight': _number(0, 1e9),
  'alpha': _number(0, 1e9),
  'tau': _RATE,
  'clip': _number(-1e9, 0),
  'temperature': _RATE,
  'threshold': _PROBABILITY,
  'expectile': Setting(
    'a number from 0.5 to below 1',
    lambda value: _number(0.5, 1).accepts(value) and value < 1,
  ),
  'inverse_temperature': _number(0, 1000),
  'sigma': _RATE,
  'strategy': _TEXT,
  'num_mixtures': _SIZE,
  'num_tau_samples': _SIZE,
  'num_tau_prime_samples': _SIZE,
  'num_quantile_samples': _SIZE,
  'quantile_embedding_dim': _SIZE,
  # Replay memories and data.
  'batch_size': _integer(1, 10**6),  # transitions
  'replay_capacity': _COUNT,
  'shard_capacity': _protocol(_COUNT),  # rows
  'max_sample_attempts': _COUNT,
  'replay_file_start_index': _integer(0, 10**9),
  'replay_file_end_index': _COUNT,
  'replay_suffix': _integer(0, 10**9),  # of a shard
  'num_buffers': _COUNT,  # shards
  'subset': _protocol(_TEXT, _MEMORY),
  'offline_dir': _running(_TEXT),  # the record has hashes of the data
  'offline_fraction': _PROBABILITY,
  'offline_subset': _protocol(_TEXT),
  'offline_cache_dir': _running(_TEXT),
  'cache_dir': _running(_TEXT, _MEMORY),
  'preload': _running(_BOOLEAN, _MEMORY),
  'prefetch': _running(_integer(0, 100_000), _MEMORY),  # batches
  'prefetch_threads': _running(_integer(1, 1000), _MEMORY),
  'stack_on_device': _running(_BOOLEAN, _MEMORY),
  'frames_on_device': _running(_BOOLEAN, _MEMORY),
  # Optimisers and their schedules.
  'learning_rate': _number(0, 1e38, above=True),  # float32
  'epsilon': _RATE,
  'decay': _PROBABILITY,
  'momentum': _PROBABILITY,
  'beta1': _PROBABILITY,
  'beta2': _PROBABILITY,
  'decay_steps': _STEPS,
  'decay_rate': _RATE,
  'end_learning_rate': _number(0, 1000),
  # Environments.
  'game_name': _protocol(_GAME),
  'sticky_actions': _protocol(_BOOLEAN),
  'rom_set': _protocol(_TEXT),
  'repeat_action_probability': _PROBABILITY,
  'max_num_frames_per_episode': _integer(1, 2**31 - 1),  # frames
  # Frames. With 1, Dopamine's observations would all be the first screen.
  'frame_skip': _integer(2, 1000),
  'screen_size': _integer(1, 10_000),  # pixels
  'environment_name': _protocol(_TEXT),
  'version': _protocol(_TEXT),
}


def affects(name: str) -> Affects:
  """Returns what a binding changes, by its name alone.

  Args:
    name: Name of the binding, `[scope/][module.]Class.parameter`.
  """
  *_, owner, parameter = ['', *re.split('[./]', name)]
  setting = SETTINGS.get(parameter)
  if setting is None or not re.fullmatch(setting.owner, owner):
    return Affects.RESULTS
  if parameter == 'summary_writing_frequency' and owner.startswith('Logged'):
    return Affects.PROTOCOL  # Online, a summary draws a batch.
  return setting.affects


def runner_default(name: str) -> str | None:
  """Returns the default of a runner's setting as gin writes it; None for others.

  A binding to the default, as a program may record it, is no change.

  Args:
    name: Name of the binding, as in `affects`.
  """
  owner, _, parameter = name.rpartition('.')
  known = gin_internals.find(owner)
  if not known or not re.fullmatch(RUNNER, owner.rpartition('.')[2]):
    return None
  taken = inspect.signature(known.wrapped).parameters.get(parameter)
  if taken is None or taken.default is taken.empty:
    return None
  return repr(taken.default)


def to_integer(name: str, value: Any) -> int | None:
  """Returns an integer that a program gives, maybe NumPy's, for a setting.

  Raises:
    ValueError: If it is not allowed.
  """
  setting = SETTINGS[name]
  if not setting.allows(value):
    raise ValueError(f'{name}={value!r} is not allowed: give {setting}.')
  return None if value is None else int(value)


def is_online(name: str) -> bool:
  """Returns whether only online training uses a binding, named as in `affects`."""
  setting = SETTINGS.get(name.rpartition('.')[2])
  return setting is not None and setting.is_online


def find(configurable: Callable, parameter: str) -> Setting | None:
  """Returns what is allowed for a parameter; None if that is unknown.

  Args:
    configurable: Class or function known to gin.
    parameter: Name of its parameter.
  """
  for owner in getattr(configurable, '__mro__', (configurable,)):
    is_class = isinstance(owner, type)
    function = vars(owner).get('__init__') if is_class else owner
    if function and owner.__module__.split('.')[0] in _PACKAGES:
      taken = inspect.signature(function).parameters.get(parameter)
      if taken and parameter == 'network' and taken.annotation is str:
        return _TEXT  # a part of an agent takes the name of a network
      if taken:
        is_boolean = isinstance(taken.default, bool)
        setting = SETTINGS.get(parameter, _BOOLEAN if is_boolean else None)
        if setting and taken.default is None:
          return dataclasses.replace(setting, none=True)
        return setting
  return None
