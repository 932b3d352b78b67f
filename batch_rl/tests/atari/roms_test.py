import hashlib
import importlib.util
import shutil

import ale_py.roms
import gymnasium
import pytest

from batch_rl.atari import roms

needs_atari_py = pytest.mark.skipif(
  importlib.util.find_spec('atari_py') is None,
  reason='the legacy ROMs come with atari-py, which is not installed',
)


def copy_rom(rom_id, directory):
  """Copies a ROM of ale-py to a directory; Pong's is also the legacy ROM."""
  directory.mkdir(exist_ok=True)
  return shutil.copy(ale_py.roms.get_rom_path(rom_id), directory)


@pytest.fixture
def legacy_directory(tmp_path, monkeypatch):
  """An empty directory of legacy ROMs."""
  monkeypatch.setenv('BATCH_RL_LEGACY_ROMS', str(tmp_path))
  return tmp_path


def test_games_are_those_of_gymnasium_and_current_roms_those_of_ale_py():
  gymnasium.register_envs(ale_py)
  ids = {name for name in gymnasium.registry if name.startswith('ALE/')}
  assert {f'ALE/{game}-v5' for game in roms.games()} == ids
  for game in roms.games():
    rom = roms.find_rom(game, 'current')
    assert (rom.game, rom.rom_set) == (game, 'current')
    assert rom.path == ale_py.roms.get_rom_path(rom.rom_id)
    assert rom.md5 == hashlib.md5(rom.path.read_bytes()).hexdigest()


@needs_atari_py
def test_legacy_is_what_atari_py_ships(monkeypatch):
  monkeypatch.delenv('BATCH_RL_LEGACY_ROMS', raising=False)
  found = [roms.find_rom(game) for game in roms.games()]
  legacy = [rom for rom in found if rom.rom_set == 'legacy']
  assert len(legacy) == 63
  assert all(rom.path.parent.name == 'atari_roms' for rom in legacy)
  assert sum(rom.same_in_both_sets for rom in legacy) == 63 - 31


def test_names_as_users_type_them():
  for typed, game in (('pong', 'Pong'), ('tic_tac_toe_3d', 'TicTacToe3D')):
    assert roms.find_rom(typed, 'current').game == game


@pytest.mark.parametrize(
  ('game', 'rom_set', 'named'),
  [
    ('Pnog', 'auto', ["'Pnog'", 'Pong']),
    ('Amidar', 'auto', ['Amidar', 'BATCH_RL_LEGACY_ROMS', "= 'current'"]),
    ('DonkeyKong', 'legacy', ['DonkeyKong', "'current'"]),
    ('Pong', 'legacy', ['pong.bin', "'batch_rl[legacy-roms]'"]),
    ('Pong', 'legcy', ["'legcy' (did", 'auto, current, legacy']),
  ],
)
def test_mistakes_are_one_line(legacy_directory, game, rom_set, named):
  with pytest.raises(ValueError) as error:
    roms.find_rom(game, rom_set)
  assert all(name in str(error.value) for name in named)
  assert '\n' not in str(error.value)


def test_auto_prefers_legacy(legacy_directory, tmp_path, monkeypatch):
  rom = roms.find_rom('Pong')
  assert (rom.rom_set, rom.same_in_both_sets) == ('current', True)
  copy_rom('pong', legacy_directory)
  rom = roms.find_rom('Pong')
  assert (rom.rom_set, rom.same_in_both_sets) == ('legacy', True)
  assert rom.path == legacy_directory / 'pong.bin'
  rom = roms.find_rom('DonkeyKong')  # atari-py had none.
  assert (rom.rom_set, rom.same_in_both_sets) == ('current', False)
  monkeypatch.setenv('BATCH_RL_LEGACY_ROMS', str(tmp_path / 'none'))
  with pytest.raises(ValueError, match='BATCH_RL_LEGACY_ROMS=.*none'):
    roms.find_rom('Pong')


def test_wrong_file_among_the_legacy_roms(legacy_directory):
  path = copy_rom('amidar', legacy_directory)
  md5 = roms.find_rom('Amidar', 'current').md5
  for rom_set in ('legacy', 'auto'):
    with pytest.raises(ValueError, match=f'{path}.*{md5}'):
      roms.find_rom('Amidar', rom_set)


def test_atari_py_is_found_but_not_imported(tmp_path, monkeypatch):
  (tmp_path / 'atari_py').mkdir()
  (tmp_path / 'atari_py/__init__.py').write_text('raise RuntimeError')
  path = copy_rom('pong', tmp_path / 'atari_py/atari_roms')
  monkeypatch.delenv('BATCH_RL_LEGACY_ROMS', raising=False)
  monkeypatch.syspath_prepend(tmp_path)
  rom = roms.find_rom('Pong')
  assert (rom.rom_set, str(rom.path)) == ('legacy', str(path))
