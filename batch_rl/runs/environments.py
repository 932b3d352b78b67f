"""Environments that agents play in.

Runs accept every environment with the attributes and methods of `Environment`, and
Dopamine's own. Dopamine's reset without a seed: `seed` and `reset` here seed the
Gymnasium environment that they hold as `environment`.
"""

import inspect
import json
import math
from typing import Any, Protocol

import numpy as np

from batch_rl.atari import environment as atari
from batch_rl.dataset.shards import manifests
from batch_rl.utils import json_schema, programs


class Environment(Protocol):
  """Contract of an environment.

  An attribute `name`, if there is one, names the environment in the record of a run.
  A method `render() -> uint8 (height, width, 3)` is needed only for videos, and
  `describe()` returns more for the record, a JSON-serialisable dictionary. Online runs
  can stop within an iteration if the environment has `state()`, which returns plain
  data, and `restore(state)`.

  Attributes:
    action_space: Object whose `n` is the number of actions, which are 0 to n - 1.
    game_over: Whether the episode has ended, or was truncated.
  """

  action_space: Any
  game_over: bool

  def reset(self, seed: int | None = None) -> np.ndarray:
    """Starts an episode.

    Args:
      seed: Seed of all that is random from now on; None continues the random
        numbers of the last seed.

    Returns:
      The first observation.
    """

  def step(self, action: int) -> tuple[np.ndarray, float, bool, Any]:
    """Takes an agent step.

    Returns:
      Observation, reward, whether the step is terminal, and a value that is not used.
      A terminal step without `game_over`, e.g. a lost life, ends the episode for the
      agent only.
    """


def check(environment: Any) -> Any:
  """Returns an object, after checking that it is an environment.

  Raises:
    ValueError: If an attribute or a method is missing.
  """
  if problem := _problem(environment):
    hint = (
      'wrap it in dopamine.discrete_domains.gym_lib.GymPreprocessing'
      if hasattr(environment, 'unwrapped')
      else 'see batch_rl.runs.environments.Environment'
    )
    raise ValueError(
      f'The environment {type(environment).__name__} {problem}: {hint}.'
    )
  return environment


def _problem(environment):
  for name in ('action_space', 'game_over', 'reset', 'step'):
    if not hasattr(environment, name):
      return f'has no {name}'
  if callable(environment.game_over):
    return 'has a method game_over, not an attribute or property'
  space = environment.action_space
  n = getattr(space, 'n', None)
  if not isinstance(n, int | np.integer) or n < 1:
    return f'has action_space {space}, whose n is not a number of actions'
  inner = getattr(environment, 'environment', None)
  if not _takes_seed(environment) and not hasattr(inner, 'reset'):
    return 'has a reset without a seed'
  return None


def _takes_seed(environment):
  parameters = inspect.signature(environment.reset).parameters.values()
  return any(p.name == 'seed' or p.kind is p.VAR_KEYWORD for p in parameters)


def step(environment: Any, action: int) -> tuple[np.ndarray, float, bool, Any]:
  """Takes an agent step; see `Environment.step`.

  Raises:
    batch_rl.utils.programs.MistakeError: If there are not four results, or the reward is
      no finite number.
  """
  result = environment.step(action)
  if result is None or len(result) != 4:
    found = 'None' if result is None else f'{len(result)} values'
    raise programs.MistakeError(
      f'{name(environment)}.step returns {found}; expected observation, reward, terminal '
      'and information.'
    )
  reward = result[1]
  is_array = getattr(reward, 'shape', ())
  if is_array or reward is None or not math.isfinite(reward):
    raise programs.MistakeError(
      f'{name(environment)}.step returns the reward {reward!r}; expected a finite number.'
    )
  return result


def seed(environment: Any, seed: int) -> None:
  """Seeds an environment; `environment.reset()` then starts an episode."""
  seeded = environment if _takes_seed(environment) else environment.environment
  seeded.reset(seed=seed)


def reset(environment: Any, seed: int | None = None) -> np.ndarray:
  """Starts an episode and returns its first observation.

  Args:
    environment: Environment.
    seed: Seed, in [0, 2**31); None continues the random numbers of the last one.
      An Atari emulator gets it as it is, as in `AtariVectorEnv`, whereas Gymnasium
      derives another from it.
  """
  if _takes_seed(environment):
    return environment.reset(seed=seed)
  if seed is not None:
    if emulator := atari.emulator(environment):
      emulator.ale.setInt('random_seed', seed)
      emulator.load_game()
    else:
      environment.environment.reset(seed=seed)
  return environment.reset()


def numpy_dtype(agent: Any) -> np.dtype:
  """Returns the dtype of an agent's observations, also of a `tf.DType`."""
  dtype = agent.observation_dtype
  return np.dtype(getattr(dtype, 'as_numpy_dtype', dtype))


def check_observation(environment: Any, observation: Any, agent: Any) -> None:
  """Checks that an agent can take an observation.

  Args:
    environment: Environment of the observation.
    observation: Observation.
    agent: Agent with Dopamine's `observation_shape` and `observation_dtype`.

  Raises:
    ValueError: If the shapes differ, or the agent would round the observation.
  """
  is_tuple = isinstance(observation, tuple)
  if is_tuple and any(isinstance(part, dict) for part in observation):
    raise ValueError(
      f'{name(environment)}.reset() returns a tuple: return the observation alone.'
    )
  observation, shape = np.asarray(observation), tuple(agent.observation_shape)
  dtype = numpy_dtype(agent)
  # Dopamine reshapes: Atari's frames have a last axis of 1.
  found, expected = (
    [n for n in sizes if n != 1] for sizes in (observation.shape, shape)
  )
  is_flat = 1 in (len(found), len(expected))  # one of them
  if found != expected and not (
    is_flat and math.prod(found) == math.prod(expected)
  ):
    raise ValueError(
      f'{name(environment)} gives observations of shape {observation.shape}, but the '
      f'agent has observation_shape {shape}: bind the shape of the environment.'
    )
  if observation.dtype.kind == 'f' and dtype.kind in 'biu':
    raise ValueError(
      f'{name(environment)} gives observations of {observation.dtype}, but the agent '
      f'has observation_dtype {dtype}, which rounds them: bind tf.{observation.dtype}.'
    )


def name(environment: Any) -> str:
  """Returns the name of an environment.

  That is its attribute `name`, or the id of its Gymnasium environment, or the name of
  its class.
  """
  inner = getattr(environment, 'environment', environment)
  inner = getattr(inner, 'unwrapped', inner)
  for part in (environment, inner):
    if isinstance(given := getattr(part, 'name', None), str):
      return given
  spec = getattr(inner, 'spec', None)
  return getattr(spec, 'id', None) or type(inner).__name__


def describe(environment: Any) -> dict[str, Any]:
  """Describes an environment in JSON-serialisable values, for the record of a run.

  Returns:
    The description of `batch_rl.atari.environment.describe` for Atari, otherwise a
    dictionary of game (its name) and num_actions, and what the environment's own
    `describe` returns.

  Raises:
    ValueError: If JSON cannot hold that, or an entry is of another type than Atari's.
  """
  if described := atari.describe(environment):
    return described
  more = getattr(environment, 'describe', None)
  described = {
    'game': name(environment),
    'num_actions': int(environment.action_space.n),
    **(more() if callable(more) else {}),
  }
  try:
    # As it is read from the record: JSON has neither tuples nor keys that are numbers.
    text = json.dumps(described).encode()
    named = {'game': json_schema.Required(str)}
    return json_schema.parse(text, manifests.ENVIRONMENT_SCHEMA | named)
  except (TypeError, ValueError) as error:
    raise ValueError(
      f'{name(environment)}.describe() does not fit the record of a run: {error}.'
    ) from error


def screen(environment: Any) -> np.ndarray:
  """Returns an image of an environment, uint8 (height, width, 3) in RGB.

  Raises:
    ValueError: If the environment gives no such image.
  """
  if emulator := atari.emulator(environment):
    return emulator.ale.getScreenRGB()
  for part in (environment, getattr(environment, 'environment', None)):
    if callable(render := getattr(part, 'render', None)):
      image = render()
      shape: Any = getattr(image, 'shape', ())
      if len(shape) == 3 and shape[2] == 3 and image.dtype == np.uint8:
        return image
  raise ValueError(
    f'{name(environment)} gives no images for a video: its render() has to return '
    "uint8 (height, width, 3), as Gymnasium's render_mode='rgb_array' does."
  )
