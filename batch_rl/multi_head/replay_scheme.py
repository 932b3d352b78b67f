"""The parameter `replay_scheme` of Rainbow and of QR-DQN as it was in 2020."""


def check(replay_scheme: str) -> None:
  """Accepts `uniform`, the only scheme of the package's memories.

  Raises:
    ValueError: If it is another scheme.
  """
  if replay_scheme != 'uniform':
    raise ValueError(
      f"replay_scheme={replay_scheme!r} is not supported: give 'uniform', since "
      'fixed replays and logged memories have no priorities.'
    )
