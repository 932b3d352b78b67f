"""Games of a sweep: their names, and the settings that each needs."""

import os
from typing import Any, NamedTuple

from batch_rl.minatar import games as minatar
from batch_rl.report import normalisation
from batch_rl.runs import games

PARAMETERS = (games.ATARI_SETTING, games.MINATAR_SETTING)
_MINATAR_CONFIGS = {
  'offline': minatar.OFFLINE_CONFIG,
  'online': minatar.ONLINE_CONFIG,
}


class Settings(NamedTuple):
  """Settings of a game.

  Attributes:
    gin_files: gin files to read after the agent's, before the sweep's.
    gin_bindings: gin bindings.
  """

  gin_files: tuple[str, ...] = ()
  gin_bindings: tuple[str, ...] = ()


def listed(value: Any) -> list[str]:
  """Returns the games in a sweep's `games:`; 'all' are those of the dataset."""
  if value == 'all':
    known = normalisation.load()
    return [game for game in known if not minatar.is_minatar(game)]
  return [str(game) for game in (value if isinstance(value, list) else [value])]


def find(name: str, data_dir: str | None) -> str:
  """Returns the name of a game, or of another folder in `data_dir`.

  Raises:
    ValueError: If there is neither.
  """
  try:
    return games.canonical_name(name)
  except ValueError:
    if data_dir and os.path.isdir(
      os.path.join(os.path.expanduser(data_dir), name)
    ):
      return name
    raise


def settings(job: str, game: str) -> Settings:
  """Returns the settings of a game; none for an environment of the user's own.

  Args:
    job: 'offline', 'online' or 'evaluate'.
    game: Name from `find`.
  """
  if job == 'evaluate' or game not in games.names():
    return Settings()
  gin_files = (_MINATAR_CONFIGS[job],) if minatar.is_minatar(game) else ()
  return Settings(gin_files, (f'{games.setting(game)} = "{game}"',))
