"""The game or environment that gin configures, before it is made."""

import gin

from batch_rl.atari import roms
from batch_rl.minatar import games as minatar_games
from batch_rl.runs import games
from batch_rl.runs.bindings import bound, gin_internals

_MINATAR = 'MinAtarEnvironment'


def configured_game() -> str | None:
  """Returns the game of Atari or MinAtar that gin configures, as it is written.

  Returns:
    None if there is none, or the run has another environment.
  """
  function = _environment_function()
  if function == _MINATAR:
    from batch_rl.minatar import environment

    return environment.configured_game()
  return bound.query(games.ATARI_SETTING) if _is_atari(function) else None


def check() -> None:
  """Checks that the configured game and its emulator are there.

  Raises:
    ValueError: If the game is unknown or missing, or MinAtar is not installed.
  """
  game, function = configured_game(), _environment_function()
  if function == _MINATAR:
    from batch_rl.minatar import environment

    environment.check_installed()
  elif game and minatar_games.is_minatar(game):
    raise ValueError(
      f'{games.ATARI_SETTING} is {game!r}, no game of Atari: add --gin_files=batch_rl/minatar/'
      f'configs/offline.gin or online.gin, and bind {games.MINATAR_SETTING} instead.'
    )
  elif game:
    roms.find_rom(game, bound.query('make_atari.rom_set') or 'auto')
  elif function is None:
    raise ValueError(f'No game: bind {games.ATARI_SETTING}, e.g. to "Pong".')


def _is_atari(function):
  """Returns whether a `create_environment_fn` is Atari's; None is the default."""
  return function in (None, 'create_atari_environment')


def _environment_function() -> str | None:
  """Returns the name of the configured `create_environment_fn`, or None."""
  for parameters in gin_internals.bound_values().values():
    function = bound.resolve(parameters.get('create_environment_fn'))
    if isinstance(function, gin.config.ConfigurableReference):
      return function.configurable.name
  return None


def has_atari() -> bool:
  """Returns whether the run's environment is Atari's."""
  return _is_atari(_environment_function())
