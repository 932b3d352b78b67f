"""Batches of a fixed replay for Dopamine's JAX agents."""

from typing import Any


class JaxBatches:
  """Mixin of `FixedReplayBuffer` with `sample`, which Dopamine's JAX agents call."""

  def sample(
    self, size: int | None = None, *, with_sample_metadata: bool = False
  ) -> Any:
    """Returns a batch of transitions, as Dopamine's JAX replay buffer does.

    Args:
      size: Number of transitions; None for the constructor's.
      with_sample_metadata: Whether to return the keys of the transitions, too.

    Returns:
      Dopamine's `ReplayElement` with `state`, `action`, `reward`, `next_state`,
      `is_terminal` and `episode_end`; with metadata, a pair of it and a
      `SampleMetadata`.
    """
    from dopamine.jax.replay_memory import elements, samplers

    names = [e.name for e in self.get_transition_elements()]
    batch = dict(zip(names, self.sample_transition_batch(size), strict=True))
    terminal = batch['terminal'].astype(bool)
    element = elements.ReplayElement(
      state=batch['state'],
      action=batch['action'],
      reward=batch['reward'],
      next_state=batch['next_state'],
      is_terminal=terminal,
      episode_end=terminal,
    )
    if not with_sample_metadata:
      return element
    return element, samplers.SampleMetadata(keys=batch['indices'])
