"""Games of Atari and MinAtar: names, the one that gin configures, that of a log."""

from collections.abc import Iterable, Mapping
from typing import Any

import gin

from batch_rl.atari import roms
from batch_rl.dataset import game_names, run_directories
from batch_rl.dataset.shards import manifests
from batch_rl.minatar import games as minatar
from batch_rl.runs.bindings import bound, gin_internals, settings

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
  return (minatar if minatar.is_minatar(game) else roms).canonical_name(game)


def setting(game: str) -> str:
  """Returns the setting that names a game."""
  return MINATAR_SETTING if minatar.is_minatar(game) else ATARI_SETTING


def configured_game() -> str | None:
  """Returns the game of Atari or MinAtar that gin configures, as it is written.

  Returns:
    None if there is none, or the run has another environment.

  Raises:
    ValueError: If MinAtar's game is not bound, or unknown.
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
      f'{ATARI_SETTING} is {game!r}, which is not an Atari game: add '
      '--gin_files=batch_rl/minatar/configs/offline.gin or online.gin, and bind '
      f'{MINATAR_SETTING} instead.'
    )
  elif game:
    roms.find_rom(game, bound.query('make_atari.rom_set') or 'auto')
  elif has_atari():
    raise ValueError(f'No game: bind {ATARI_SETTING}, e.g. to "Pong".')


def check_runner(kind: str) -> None:
  """Checks that an environment is bound for the runner of a kind, if for any.

  Args:
    kind: 'offline' or 'online'.

  Raises:
    ValueError: If only the other runner has one: the run would play Atari.
  """
  parameters = {
    k: f'{runner}.create_environment_fn'
    for k, runner in settings.RUNNERS.items()
  }
  own, [other] = parameters.pop(kind), parameters.values()
  if bound.query(other) and not bound.query(own):
    raise ValueError(
      f'{other} has no effect on an {kind} run: bind {own}, as '
      f'batch_rl/minatar/configs/{kind}.gin does.'
    )


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


def logged_game(replay_data_dir: str) -> str | None:
  """Returns the game of a log, from its manifest or its path `<Game>/<run>/...`.

  Args:
    replay_data_dir: Directory of the shards, or a store.

  Returns:
    The game's name, e.g. `Pong` or `MinAtar-Breakout`, or None if it is unknown.
  """
  manifest = manifests.read(replay_data_dir)
  if 'environment' in manifest:
    named = manifests.look_up(manifest, 'environment', 'game', kind=str)
    return named and game_names.canonical(named)
  run = run_directories.as_run(replay_data_dir)
  return game_names.known(run.game) if run else None


def check_game(
  replay_data_dir: str, game_name: str | None, is_online: bool = False
) -> None:
  """Checks that data is of the game that an agent plays.

  Args:
    replay_data_dir: Directory of the shards, or a store.
    game_name: Configured game of Atari or MinAtar; None for another environment.
    is_online: Whether the agent trains online.

  Raises:
    ValueError: If the two games differ.
  """
  logged = logged_game(replay_data_dir)
  game = game_name and canonical_name(game_name)
  if not (game and logged) or game == logged:
    return
  if game_names.known(logged) is None:
    runner = settings.RUNNERS['online' if is_online else 'offline']
    advice = f'bind {runner}.create_environment_fn to that of {logged}'
  elif minatar.is_minatar(game) != minatar.is_minatar(logged):
    verb = 'remove' if minatar.is_minatar(game) else 'add'
    config = minatar.ONLINE_CONFIG if is_online else minatar.OFFLINE_CONFIG
    advice = f'{verb} --gin_files={config}'
  else:
    advice = f'bind {setting(game)} to "{logged}"'
  raise ValueError(
    f'{replay_data_dir} holds {logged}, but the game is {game_name!r}: {advice}.'
  )


def check_game_of_run(
  directory: str, record: Mapping[str, Any], game: str | None
) -> None:
  """Checks that a run has the expected game.

  Args:
    directory: Directory of the run.
    record: Its record.
    game: Expected game; None if it is unknown.

  Raises:
    ValueError: If the two games differ.
  """
  played = (record.get('environment') or {}).get('game')
  if game and played and game != played:
    raise ValueError(
      f'{directory} is a run of {played}, but the game is {game!r}: choose a run of '
      'the same game.'
    )


def check_actions(
  actions: Iterable[int], num_actions: int, replay_data_dir: str | None
) -> None:
  """Checks that an environment has the logged actions.

  Args:
    actions: Logged actions, or the lowest and the highest.
    num_actions: Number of actions of the environment.
    replay_data_dir: Directory of the data, for the message.

  Raises:
    ValueError: If it lacks one.
  """
  for action in actions:
    if not 0 <= action < num_actions:
      raise ValueError(
        f'{replay_data_dir} holds action {action}, but the environment has '
        f'{num_actions} actions: is it the same game?'
      )
