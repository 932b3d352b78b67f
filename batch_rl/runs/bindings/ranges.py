"""Allowed values of gin parameters.

The table has every parameter that the package, Dopamine or TensorFlow's
optimisers take as a number, by name: a name means the same in all of them. A
parameter of the user's own code is hers, unless a class of the package that she
extends has it, too.
"""

import dataclasses
import inspect
import numbers
import re
from collections.abc import Callable
from typing import Any

from gin import config

# Packages whose parameters are in the table.
_PACKAGES = ('batch_rl', 'dopamine', 'tensorflow', 'tf_keras', 'keras')
_DEVICE_PARTS = re.compile(
  r'(/?(job:\w+|replica:\d+|task:\d+|(device:)?[cgt]pu:(\d+|\*)))*',
  re.IGNORECASE,
)
_LITERALS = (str, bytes, bool, numbers.Number, list, tuple, dict, set)


@dataclasses.dataclass(frozen=True)
class Range:
  """Allowed values of a parameter.

  Attributes:
    text: The range in words, after 'give'.
    accepts: Function that returns whether a value, not None, is allowed.
    none: Whether None is allowed.
  """

  text: str
  accepts: Callable[[Any], bool]
  none: bool = False

  def __str__(self) -> str:
    return f'{self.text}, or None' if self.none else self.text


def is_integer(value: Any) -> bool:
  """Returns whether a value is an integer, and not a boolean."""
  return isinstance(value, numbers.Integral) and not isinstance(value, bool)


def _integer(low: int, high: int, none: bool = False) -> Range:
  return Range(
    f'an integer from {low} to {high:,}',
    lambda value: is_integer(value) and low <= value <= high,
    none,
  )


def _number(
  low: float, high: float, above: bool = False, none: bool = False
) -> Range:
  """A range of numbers; with `above`, without its lower end."""

  def accepts(value):
    if not isinstance(value, numbers.Real) or isinstance(value, bool):
      return False
    return (low < value if above else low <= value) and value <= high

  if above:
    text = f'a number above {low:g}, at most {high:g}'
  else:
    text = f'a number from {low:g} to {high:g}'
  return Range(text, accepts, none)


_BOOLEAN = Range('True or False', lambda value: isinstance(value, bool))
_BOOLEAN_OR_NONE = dataclasses.replace(_BOOLEAN, none=True)
TEXT = Range(
  'a text in quotes',
  lambda value: isinstance(value, str) and bool(value.strip()),
)
GAME = dataclasses.replace(TEXT, text="a game in quotes, e.g. 'Pong'")
TEXT_OR_NONE = dataclasses.replace(TEXT, none=True)
OPTIMIZER = Range(
  'an optimiser with (), e.g. @tf.train.AdamOptimizer()',
  lambda value: (
    value.evaluate
    if isinstance(value, config.ConfigurableReference)
    else not isinstance(value, _LITERALS)
  ),
)
_FUNCTION = Range(
  'a class or function as @Name',
  lambda value: not isinstance(value, _LITERALS),
)
DEVICE = Range(
  "a device in quotes, e.g. '/gpu:0'",
  lambda value: isinstance(value, str) and bool(_DEVICE_PARTS.fullmatch(value)),
  none=True,
)
_DTYPE = Range(
  'a dtype, e.g. %tf.uint8', lambda value: not isinstance(value, _LITERALS)
)
_SHAPE = Range(
  'a tuple of integers of at least 1, e.g. (84, 84)',
  lambda value: (
    isinstance(value, tuple)
    and all(is_integer(length) and 1 <= length <= 10**6 for length in value)
  ),
)

_STEPS = _integer(1, 10**12)
_ROWS = _integer(1, 10**9)
_PROBABILITY = _number(0, 1)
_RATE = _number(0, 1000, above=True)

TEXTS = (TEXT, TEXT_OR_NONE, GAME, DEVICE)
RANGES = {
  # Runs.
  'num_iterations': _integer(1, 10**9),
  'training_steps': _STEPS,  # agent steps
  'evaluation_steps': _integer(0, 10**12),  # agent steps; 0 for no evaluation
  'max_steps_per_episode': _integer(1, 10**12, none=True),  # agent steps
  'evaluation_environments': _integer(1, 10_000, none=True),
  'clip_rewards': _BOOLEAN,
  'log_every_n': _integer(1, 10**9),
  'use_legacy_logger': _BOOLEAN,
  'fine_grained_print_to_console': _BOOLEAN,
  'checkpoint_file_prefix': TEXT,
  'logging_file_prefix': TEXT,
  'create_environment_fn': _FUNCTION,
  'accept_changes': _BOOLEAN,
  'seed': _integer(0, 2**63 - 1, none=True),
  'acting_seed': _integer(0, 2**63 - 1, none=True),
  'deterministic_ops': _BOOLEAN,
  'tensor_float_32': _BOOLEAN,
  # Checkpoints.
  'keep': _integer(1, 10**9),  # iterations
  'keep_every': _integer(1, 10**9, none=True),  # iterations
  'every_minutes': _number(0, 10**9, above=True, none=True),
  'every_steps': _integer(1, 10**12, none=True),  # agent steps
  'checkpoint_duration': _integer(1, 10**9),  # iterations
  'max_tf_checkpoints_to_keep': _integer(1, 10**9),
  'allow_partial_reload': _BOOLEAN,
  # Agents.
  'agent_name': TEXT,
  'observation_shape': _SHAPE,
  'observation_dtype': _DTYPE,
  'stack_size': _integer(1, 1000),  # frames
  'network': _FUNCTION,
  'gamma': _PROBABILITY,
  'update_horizon': _integer(1, 10_000),  # agent steps
  'min_replay_history': _integer(0, 10**12),  # agent steps
  'update_period': _integer(1, 10**9),  # agent steps
  'target_update_period': _STEPS,  # agent steps
  'epsilon_fn': _FUNCTION,
  'epsilon_train': _PROBABILITY,
  'epsilon_eval': _PROBABILITY,
  'epsilon_decay_period': _STEPS,  # agent steps
  'optimizer': OPTIMIZER,
  'tf_device': DEVICE,
  'eval_mode': _BOOLEAN,
  'use_staging': _BOOLEAN,
  'summary_writing_frequency': _STEPS,  # agent steps
  'updates_per_run': _integer(1, 10**6),
  'jit_compile': _BOOLEAN,
  'mixed_precision': _BOOLEAN,
  'num_atoms': _integer(1, 100_000),
  'vmin': Range(
    'a number from -1e+09 to 1e+09 other than 0, which Dopamine takes for None; '
    '-1e-6 is as good',
    lambda value: _number(-1e9, 1e9).accepts(value) and value != 0,
    none=True,
  ),
  'vmax': _number(-1e9, 1e9),
  'kappa': _number(0, 1e9),
  'num_heads': _integer(1, 100_000),
  'num_networks': _integer(1, 1000),
  'num_convex_combinations': _integer(1, 100_000),
  'transform_strategy': TEXT,
  'use_deep_exploration': _BOOLEAN,
  'replay_scheme': TEXT,
  'num_tau_samples': _integer(1, 100_000),
  'num_tau_prime_samples': _integer(1, 100_000),
  'num_quantile_samples': _integer(1, 100_000),
  'quantile_embedding_dim': _integer(1, 100_000),
  'double_dqn': _BOOLEAN,
  # Replay memories and data.
  'batch_size': _integer(1, 10**6),  # transitions
  'replay_capacity': _ROWS,
  'shard_capacity': _integer(1, 10**9, none=True),  # rows
  'max_sample_attempts': _integer(1, 10**9),
  'replay_file_start_index': _integer(0, 10**9),
  'replay_file_end_index': _integer(1, 10**9, none=True),
  'num_buffers': _integer(1, 10**9, none=True),  # shards
  'subset': TEXT_OR_NONE,
  'cache_dir': TEXT_OR_NONE,
  'preload': _BOOLEAN,
  'prefetch': _integer(0, 100_000),  # batches
  'prefetch_threads': _integer(1, 1000),
  'stack_on_device': _BOOLEAN_OR_NONE,
  'frames_on_device': _BOOLEAN,
  'start_early': _BOOLEAN,
  'deterministic': _BOOLEAN_OR_NONE,
  'skip_damaged': _BOOLEAN,
  # Optimisers and their schedules.
  'learning_rate': _number(0, 1e38, above=True),  # float32
  'epsilon': _RATE,
  'decay': _PROBABILITY,
  'momentum': _PROBABILITY,
  'centered': _BOOLEAN,
  'name': TEXT_OR_NONE,
  'beta1': _PROBABILITY,
  'beta2': _PROBABILITY,
  'use_locking': _BOOLEAN,
  'use_nesterov': _BOOLEAN,
  'decay_steps': _STEPS,
  'decay_rate': _RATE,
  'end_learning_rate': _number(0, 1000),
  'staircase': _BOOLEAN,
  # Environments.
  'game_name': GAME,
  'sticky_actions': _BOOLEAN,
  'rom_set': TEXT,
  'repeat_action_probability': _PROBABILITY,
  'max_num_frames_per_episode': _integer(1, 2**31 - 1),  # frames
  'frame_skip': _integer(1, 1000),  # frames
  'screen_size': _integer(1, 10_000),  # pixels
  'terminal_on_life_loss': _BOOLEAN,
  'difficulty_ramping': _BOOLEAN,
  'environment_name': TEXT,
  'version': TEXT,
  'use_legacy_gym': _BOOLEAN,
  'use_ppo_preprocessing': _BOOLEAN,
  'continuous_action_threshold': _PROBABILITY,
}
# Narrower ranges of the package's own classes.
_OWN_RANGES = {
  'replay_scheme': Range(
    "'uniform', since fixed replays and logged memories have no priorities",
    lambda value: value == 'uniform',
  ),
}


def find(configurable: Callable, parameter: str) -> Range | None:
  """Returns the range of a parameter; None if it is not in the table.

  Args:
    configurable: Class or function known to gin.
    parameter: Name of its parameter.
  """
  if parameter not in RANGES:
    return None
  for owner in getattr(configurable, '__mro__', (configurable,)):
    package = owner.__module__.split('.')[0]
    if package in _PACKAGES:
      is_class = isinstance(owner, type)
      function = vars(owner).get('__init__') if is_class else owner
      if function and _takes(function, parameter, is_class):
        own = _OWN_RANGES if package == 'batch_rl' else {}
        return own.get(parameter, RANGES[parameter])
  return None


def _takes(function, parameter, is_class):
  """Returns whether a function has a parameter; `AnyAgent` has all of them."""
  parameters = inspect.signature(function).parameters
  return parameter in parameters or (
    not is_class and any(p.kind is p.VAR_KEYWORD for p in parameters.values())
  )
