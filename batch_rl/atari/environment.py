"""Atari environments (stub)."""


class GymWithRomSets:
  """Stub."""

  def __init__(self, gym):
    self._gym = gym

  def __getattr__(self, name):
    return getattr(self._gym, name)
