"""Names of MinAtar's games.

A game has one name in logs, folders, records and reports, `MinAtar-Breakout`. It has no
slash, since it is a folder of the layout `<Game>/<run>`, and part of file names.
Users may also type `MinAtar/Breakout`.
"""

# Bindings of a run, after those of its agent.
OFFLINE_CONFIG = 'batch_rl/minatar/configs/offline.gin'
ONLINE_CONFIG = 'batch_rl/minatar/configs/online.gin'
PREFIX = 'MinAtar-'
# Names of the actions in every game: nothing, left, up, right, down, fire.
ACTIONS = tuple('nlurdf')
# Numbers of planes in an observation, by MinAtar's names.
_PLANES = {
  'asterix': 4,
  'breakout': 4,
  'freeway': 7,
  'seaquest': 10,
  'space_invaders': 6,
}
_NAMES = {name.title().replace('_', ''): name for name in _PLANES}
GAMES = tuple(PREFIX + name for name in _NAMES)


def is_minatar(game: str) -> bool:
  """Returns whether a name is that of a game of MinAtar, known or not."""
  return game.lower().startswith(('minatar-', 'minatar/'))


def canonical_name(game: str) -> str:
  """Returns the name of a game, e.g. `MinAtar-SpaceInvaders`.

  Args:
    game: Name in any case, with or without `MinAtar/` or `MinAtar-`, e.g. `breakout`,
      `MinAtar/SpaceInvaders` or `space_invaders`.

  Raises:
    ValueError: If the game is unknown; the message suggests similar names.
  """
  typed = game[len(PREFIX) :] if is_minatar(game) else game
  known = {name.lower(): name for name in _NAMES}
  typed = typed.replace('_', '').lower()
  if typed in known:
    return PREFIX + known[typed]
  raise ValueError(
    f'Unknown game of MinAtar {game!r}; did you mean one of {", ".join(GAMES)}?'
  )


def module_name(game: str) -> str:
  """Returns MinAtar's own name of a game, e.g. `space_invaders`."""
  return _NAMES[canonical_name(game).removeprefix(PREFIX)]


def observation_shape(game: str) -> tuple[int, int, int]:
  """Returns the shape of an observation: height, width and planes."""
  return 10, 10, _PLANES[module_name(game)]
