"""Games of Atari and MinAtar: their names, and the one that gin configures."""

import gin

from batch_rl.atari import roms
from batch_rl.minatar import games as minatar
from batch_rl.runs.bindings import bound, gin_internals

_MINATAR = 'MinAtarEnvironment'
# Settings that name the game.
ATARI_SETTING = 'atari_lib.create_atari_environment.game_name'
MINATAR_SETTING = f'{_MINATAR}.game_name'


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


def configured_game() -> str | None:
  """Returns the game of Atari or MinAtar that gin configures, as it is written.

  Returns:
    None if there is none, or the run has another environment.
  """
  function = _environment_function()
  if function == _MINATAR:
    from batch_rl.minatar import environment

    return environment.configured_game()
  return bound.query(ATARI_SETTING) if has_atari() else None


def check_configured() -> None:
  """Checks that the configured game and its emulator are there.

  Raises:
    ValueError: If the game is unknown or missing, or MinAtar is not installed.
  """
  game, function = configured_game(), _environment_function()
  if function == _MINATAR:
    from batch_rl.minatar import environment

    environment.check_installed()
  elif game and minatar.is_minatar(game):
    raise ValueError(
      f'{ATARI_SETTING} is {game!r}, no game of Atari: add --gin_files=batch_rl/minatar/'
      f'configs/offline.gin or online.gin, and bind {MINATAR_SETTING} instead.'
    )
  elif game:
    roms.find_rom(game, bound.query('make_atari.rom_set') or 'auto')
  elif function is None:
    raise ValueError(f'No game: bind {ATARI_SETTING}, e.g. to "Pong".')


def _environment_function() -> str | None:
  """Returns the name of the configured `create_environment_fn`, or None."""
  for parameters in gin_internals.bound_values().values():
    function = bound.resolve(parameters.get('create_environment_fn'))
    if isinstance(function, gin.config.ConfigurableReference):
      return function.configurable.name
  return None


def has_atari() -> bool:
  """Returns whether the run's environment is Atari's."""
  return _environment_function() in (None, 'create_atari_environment')
