"""Environments that step one after another, as `AtariVectorEnv` steps emulators."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from batch_rl.dataset.shards import transition_checks
from batch_rl.runs import environments
from batch_rl.utils import programs


class SequentialEnvironments:
  """Environments with the interface of `AtariVectorEnv`.

  States are stacks of observations, (num_envs, stack_size, *observation_shape), oldest
  first. The stack is padded with zeros at the start of an episode, and after a lost life
  that ends the agent's episode. The step after an end ignores its action and starts the
  next episode.

  Args:
    envs: Environments of `runs.environments.Environment`, or Dopamine's.
    agent: Dopamine agent whose `stack_size`, `observation_shape` and
      `observation_dtype` the states have.
    max_steps_per_episode: Number of agent steps after which an episode is truncated;
      None for no limit.

  Attributes:
    num_envs: Number of environments.

  Raises:
    ValueError: If an environment is there twice, or its observations do not fit the
      agent.
  """

  def __init__(
    self, envs: Sequence[Any], agent: Any, max_steps_per_episode: int | None
  ):
    self.num_envs = len(envs)
    if len(set(map(id, envs))) < len(envs):
      raise ValueError(
        'create_environment_fn returned the same environment again: let it return a '
        'new one each time, or bind FixedReplayRunner.evaluation_environments = 1.'
      )
    self._environments = list(envs)
    self._max_steps = max_steps_per_episode
    self._agent = agent
    self._states = np.zeros(
      (self.num_envs, agent.stack_size, *agent.observation_shape),
      environments.numpy_dtype(agent),
    )
    self._steps = np.zeros(self.num_envs, np.int64)
    self._ended = np.zeros(self.num_envs, bool)
    self.reset()  # refuses observations that do not fit, before training

  def reset(
    self, seed: np.ndarray | None = None
  ) -> tuple[np.ndarray, dict[str, Any]]:
    """Starts an episode in each environment.

    Args:
      seed: One seed an environment; None continues the random numbers of the last.

    Returns:
      The states, and {}.
    """
    for i in range(self.num_envs):
      self._start(i, None if seed is None else int(seed[i]))
    return self._states.copy(), {}

  def step(
    self, actions: np.ndarray
  ) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
    """Takes an agent step in each environment, or starts its next episode.

    Args:
      actions: Actions, int (num_envs,).

    Returns:
      The states; unclipped rewards; whether episodes have ended, and whether they
      were truncated after `max_steps_per_episode`, each (num_envs,); and {}.
    """
    rewards = np.zeros(self.num_envs)
    terminated, truncated = np.zeros((2, self.num_envs), bool)
    for i, environment in enumerate(self._environments):
      if self._ended[i]:
        self._start(i)
        continue
      result = environments.step(environment, int(actions[i]))
      observation, rewards[i], terminal, _ = result
      self._steps[i] += 1
      terminated[i] = environment.game_over
      truncated[i] = not terminated[i] and self._steps[i] == self._max_steps
      if terminated[i]:
        continue  # the observation is undefined
      if terminal:
        self._states[i] = 0
      self._add(i, observation)
    self._ended = terminated | truncated
    return self._states.copy(), rewards, terminated, truncated, {}

  def _start(self, i, seed=None):
    observation = environments.reset(self._environments[i], seed)
    environments.check_observation(
      self._environments[i], observation, self._agent
    )
    self._steps[i] = 0
    self._ended[i] = False
    self._states[i] = 0
    self._add(i, observation)

  def _add(self, i, observation):
    shape, dtype = self._states.shape[2:], self._states.dtype
    observation = np.reshape(observation, shape)
    if observation.dtype != dtype or dtype.kind == 'f':
      try:
        transition_checks.check_value('observation', observation, shape, dtype)
      except ValueError as error:
        game = environments.name(self._environments[i])
        raise programs.MistakeError(f'{game}: {error}') from error
    self._states[i, :-1] = self._states[i, 1:]
    self._states[i, -1] = observation
