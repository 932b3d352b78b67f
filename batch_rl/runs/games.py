"""Names of games: those of Atari, and those of MinAtar."""

from batch_rl.atari import roms
from batch_rl.minatar import games as minatar

# Settings that name the game.
ATARI_SETTING = 'atari_lib.create_atari_environment.game_name'
MINATAR_SETTING = 'MinAtarEnvironment.game_name'


def canonical_name(game: str) -> str:
  """Returns the name of a game in logs, folders, records and reports.

  Args:
    game: Name as users type it, e.g. `pong`, `montezuma_revenge` or
      `MinAtar/Breakout`.

  Returns:
    The name, e.g. `Pong`, `MontezumaRevenge` or `MinAtar-Breakout`.

  Raises:
    ValueError: If the game is unknown; the message suggests similar names.
  """
  if minatar.is_minatar(game):
    return minatar.canonical_name(game)
  return roms.canonical_name(game)


def setting(game: str) -> str:
  """Returns the setting that names a game."""
  return MINATAR_SETTING if minatar.is_minatar(game) else ATARI_SETTING


def names() -> list[str]:
  """Returns the names of all games."""
  return [*roms.games(), *minatar.GAMES]
