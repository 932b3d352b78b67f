# What the agents here read or override of Dopamine's DQN, which has no types.

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

NATURE_DQN_OBSERVATION_SHAPE: tuple[int, int]
NATURE_DQN_DTYPE: tf.DType
NATURE_DQN_STACK_SIZE: int

class DQNAgent:
  num_actions: int
  observation_shape: tuple[int, ...]
  observation_dtype: tf.DType
  stack_size: int
  network: Callable[..., tf.keras.Model]
  gamma: float
  update_horizon: int
  cumulative_gamma: float
  min_replay_history: int
  update_period: int
  target_update_period: int
  epsilon_eval: float
  eval_mode: bool
  training_steps: int
  optimizer: tf.compat.v1.train.Optimizer
  summary_writer: Any
  summary_writing_frequency: int
  action: int
  state: np.ndarray
  state_ph: tf.Tensor
  online_convnet: tf.keras.Model
  target_convnet: tf.keras.Model | None
  _sess: tf.compat.v1.Session
  _replay: Any
  _train_op: Any
  _sync_qt_ops: Any
  _merged_summaries: tf.Tensor | None
  _net_outputs: Any
  _q_argmax: tf.Tensor
  _observation: np.ndarray | None
  _last_observation: np.ndarray | None

  def __init__(self, *args: Any, **kwargs: Any) -> None: ...
  def begin_episode(self, observation: np.ndarray) -> int: ...
  def step(self, reward: float, observation: np.ndarray) -> int: ...
  def end_episode(self, reward: float) -> None: ...
  def bundle_and_checkpoint(
    self, checkpoint_dir: str, iteration_number: int
  ) -> dict[str, Any] | None: ...
  def unbundle(
    self,
    checkpoint_dir: str,
    iteration_number: int,
    bundle_dictionary: dict[str, Any] | None,
  ) -> bool: ...
  def _create_network(self, name: str) -> tf.keras.Model: ...
  def _record_observation(self, observation: np.ndarray) -> None: ...
  def _build_networks(self) -> None: ...
  def _build_replay_buffer(self, use_staging: bool) -> Any: ...
  def _build_target_q_op(self) -> tf.Tensor: ...
  def _build_train_op(self) -> Any: ...
  def _build_sync_op(self) -> Any: ...
  def _select_action(self) -> int: ...
  def _train_step(self) -> Any: ...
  def _store_transition(
    self,
    last_observation: np.ndarray,
    action: int,
    reward: float,
    is_terminal: bool,
  ) -> None: ...
