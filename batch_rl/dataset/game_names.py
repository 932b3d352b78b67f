"""Names of the games of Atari and MinAtar in logs, folders and reports."""

from batch_rl.atari import roms
from batch_rl.minatar import games as minatar


def names() -> list[str]:
  """Returns the names of all games."""
  return [*roms.games(), *minatar.GAMES]


def known(name: str) -> str | None:
  """Returns the game that a name stands for, `Pong` for `pong`; None if there is none."""
  games = {game.lower(): game for game in names()}
  return games.get(name.replace('_', '').replace('/', '-').lower())


def canonical(name: str) -> str:
  """Returns the game that a name stands for, any other name unchanged."""
  return known(name) or name
