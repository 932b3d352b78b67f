"""ROM files of games: those of the dataset and those of ale-py.

The DQN Replay Dataset was made with the ROMs of atari-py 0.2.5, here called
`legacy`. ale-py ships its own, called `current`. About half of the games differ
between the sets, in frames or rewards. `roms.csv` has the md5s of both;
`legacy_md5` is empty for games that atari-py did not have.
"""

import dataclasses
import difflib
import functools
import hashlib
import importlib.util
import os
import pathlib

from batch_rl.utils import choices, files

LEGACY_ROMS_VARIABLE = 'BATCH_RL_LEGACY_ROMS'

_PACKAGE_FOLDERS = {
  'legacy': ('atari_py', 'atari_roms'),
  'current': ('ale_py', 'roms'),
}


@dataclasses.dataclass(frozen=True)
class Rom:
  """A ROM file with a verified md5.

  Attributes:
    game: CamelCase name as in Gymnasium's ids and the dataset's folders, e.g.
      `MontezumaRevenge`.
    rom_set: Set of the file, 'legacy' or 'current'.
    md5: Hexadecimal md5 of the file.
    path: Path of the file, `<rom id>.bin`.
  """

  game: str
  rom_set: str
  md5: str
  path: pathlib.Path

  @property
  def rom_id(self) -> str:
    """The snake_case name, e.g. `montezuma_revenge`."""
    return self.path.stem

  @property
  def same_in_both_sets(self) -> bool:
    """Whether both sets have the same file."""
    md5s = _table()[self.rom_id]
    return md5s['legacy'] == md5s['current']


def games() -> list[str]:
  """Returns the CamelCase names of all single-player games, sorted by ROM id."""
  return [_camel_case(rom_id) for rom_id in _table()]


def canonical_name(game: str) -> str:
  """Returns the CamelCase name of a game, e.g. `Pong` for `pong`.

  Raises:
    ValueError: If the game is unknown; the message suggests similar names.
  """
  return _camel_case(_rom_id(game))


def md5s(game: str) -> dict[str, str]:
  """Returns the md5s of a game's ROMs, `{'legacy': ..., 'current': ...}`.

  A set without the game has ''.

  Raises:
    ValueError: If the game is unknown.
  """
  return dict(_table()[_rom_id(game)])


def find_rom(game: str, rom_set: str = 'auto') -> Rom:
  """Finds a game's ROM and checks its md5.

  Args:
    game: Name of the game, e.g. `Pong`, `pong` or `montezuma_revenge`.
    rom_set: ROM set of the file:
      'legacy': the dataset's ROM, from the directory in the environment variable
        BATCH_RL_LEGACY_ROMS, or else from the installed `atari_py` package;
      'current': the ROM of the `ale_py` package;
      'auto': 'legacy' if its ROM is found, else 'current' if both sets have the same
        file or the game has no legacy ROM.

  Raises:
    ValueError: If the game is unknown, the ROM is missing, its md5 is unexpected, or
      'auto' finds only a ROM that differs from the dataset's.
  """
  rom_id = _rom_id(game)
  game = _camel_case(rom_id)
  md5s = _table()[rom_id]
  if rom_set == 'auto':
    is_here = md5s['legacy'] and _file(rom_id, 'legacy')
    rom_set = 'legacy' if is_here else 'current'
    if not is_here and md5s['legacy'] not in ('', md5s['current']):
      raise ValueError(
        f"ale-py's ROM of {game} is not the one the DQN Replay Dataset was made with. "
        f"{_how_to_get_legacy(rom_id)} To use ale-py's ROM anyway, choose "
        "rom_set='current' (gin: make_atari.rom_set = 'current')."
      )
  choices.choose('rom_set', rom_set, {'auto', *md5s})
  if not md5s[rom_set]:
    raise ValueError(
      f"atari-py 0.2.5 had no ROM of {game}: choose rom_set='current'."
    )
  path = _file(rom_id, rom_set)
  if path is None:
    raise ValueError(
      f'There is no {rom_id}.bin in ROM set {rom_set!r}. '
      + _how_to_get_legacy(rom_id)
    )
  md5 = hashlib.md5(path.read_bytes(), usedforsecurity=False).hexdigest()
  if md5 != md5s[rom_set]:
    raise ValueError(
      f'{path} has md5 {md5}, which is not the {rom_set} ROM of {game} '
      f'({md5s[rom_set]}): replace the file or choose another rom_set.'
    )
  return Rom(game, rom_set, md5, path)


def action_names(game: str) -> list[str]:
  """Returns the names of a game's minimal action set, e.g. `NOOP`, `FIRE`, `UP`.

  Raises:
    ValueError: If the game is unknown.
  """
  import ale_py

  ale_py.ALEInterface.setLoggerMode(ale_py.LoggerMode.Error)  # No banner.
  emulator = ale_py.ALEInterface()
  emulator.loadROM(find_rom(game, 'current').path)
  return [action.name for action in emulator.getMinimalActionSet()]


def _how_to_get_legacy(rom_id: str) -> str:
  return (
    "For the dataset's ROM, pip install 'batch_rl[legacy-roms]' or set "
    f'{LEGACY_ROMS_VARIABLE} to a directory that holds {rom_id}.bin.'
  )


def _file(rom_id: str, rom_set: str) -> pathlib.Path | None:
  """Returns the ROM file of a set; None if there is none."""
  named = os.environ.get(LEGACY_ROMS_VARIABLE)
  if rom_set == 'legacy' and named:
    directory = pathlib.Path(named).expanduser()
    if not directory.is_dir():
      raise ValueError(f'{LEGACY_ROMS_VARIABLE}={named!r} is not a directory.')
  else:
    package, folder = _PACKAGE_FOLDERS[rom_set]
    # Importing atari_py would load a second emulator.
    spec = importlib.util.find_spec(package)
    if spec is None or not spec.submodule_search_locations:
      return None
    directory = pathlib.Path(spec.submodule_search_locations[0], folder)
  path = directory / f'{rom_id}.bin'
  return path if path.is_file() else None


@functools.cache
def _table() -> dict[str, dict[str, str]]:
  """Returns the md5s by ROM id: `{'pong': {'legacy': ..., 'current': ...}}`."""
  return {
    row['rom']: {'legacy': row['legacy_md5'], 'current': row['current_md5']}
    for row in files.read_csv(pathlib.Path(__file__).with_name('roms.csv'))
  }


def _camel_case(rom_id: str) -> str:
  # ale-py forms Gymnasium ids like this: `tic_tac_toe_3d` is `TicTacToe3D`.
  return rom_id.title().replace('_', '')


def _rom_id(game: str) -> str:
  rom_ids = {rom_id.replace('_', ''): rom_id for rom_id in _table()}
  typed = game.replace('_', '').lower()
  if typed in rom_ids:
    return rom_ids[typed]
  near = difflib.get_close_matches(typed, rom_ids, cutoff=0)
  names = ', '.join(_camel_case(rom_ids[name]) for name in near)
  raise ValueError(f'Unknown game {game!r}; did you mean {names}?')
