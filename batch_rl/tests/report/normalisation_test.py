"""Normalised scores: the values, the formulas, and the measurement of random play."""

import dataclasses
import hashlib

import numpy as np
import pytest

from batch_rl.atari import roms
from batch_rl.minatar import games as minatar
from batch_rl.report import normalisation
from batch_rl.utils.files import read_csv
from benchmarks import minatar_scores, random_scores

# Tests of single values would repeat these hashes.
HASH = 'bc50b9ded783fe1d17347e2b6d03f5ff12d3fdec8081cadf07a1c080eb4f47ac'
MINATAR = '5ea68bf4cdf0032d65007410356a633962cfc1a4156c85f3bf74aacc040131b2'


@pytest.fixture
def scores(monkeypatch):
  """Replaces the scores by an empty dictionary that a test fills."""
  made_up = {}
  monkeypatch.setattr(normalisation, 'load', lambda: made_up)
  return made_up


def test_the_values_are_those_of_the_hashes():
  for path, digest, normaliser in (
    (normalisation.NORMALISERS_CSV, HASH, 'human'),
    (normalisation.MINATAR_SCORES_CSV, MINATAR, 'dqn_final'),
  ):
    assert hashlib.sha256(path.read_bytes()).hexdigest() == digest
    assert digest[:12] in normalisation.describe(normaliser)


def test_all_games_have_scores():
  measured = read_csv(normalisation.RANDOM_SCORES_CSV)
  keys = {(row['game'], row['rom_md5']): row['mean_return'] for row in measured}
  assert len(keys) == len(measured)
  scores = dict(normalisation.load())
  for game in minatar.GAMES:
    assert set(scores.pop(game)) == {'random', 'dqn_final', 'dqn_best'}
  assert len(scores) == 60
  for game, found in scores.items():
    assert game == roms.canonical_name(game)
    assert found['dqn_final'] <= found['dqn_best']
    md5s = roms.md5s(game)
    assert {md5 for name, md5 in keys if name == game} == set(md5s.values())
    assert found['random'] == float(keys[game, md5s['legacy']])
    assert ('human' in found) == ('human_random' in found)
    for name in ('human', 'human_random') if 'gamer' in found else ():
      assert found[name.replace('human', 'gamer')] == round(found[name])
  for name, count in (('human', 55), ('gamer', 8)):
    assert sum(name in found for found in scores.values()) == count


def test_formulas(scores):
  scores['Pong'] = dict(random=-20, dqn_final=10, dqn_best=-26, human=-22)
  scores['Pong'] |= dict(human_random=-20, gamer=20, gamer_random=-30)
  returns = np.array([[-20, 10], [-26, 40]])

  def check(normaliser, expected):
    found = normalisation.normalise(returns, 'pong', normaliser)
    assert found.dtype == np.float64
    np.testing.assert_allclose(found, expected, atol=1e-15)
    inverse = normalisation.denormalise(found, 'pong', normaliser)
    np.testing.assert_allclose(inverse, returns)

  check('dqn_final', [[0, 1], [-0.2, 2]])
  # A DQN below random: better is still higher.
  check('dqn_best', [[1, 6], [0, 11]])
  check('human', [[0, -15], [3, -30]])
  check('gamer', [[20, 80], [8, 140]])  # As published, in percent.
  assert normalisation.normalise(10, 'Pong', 'dqn_final') == 1


def test_missing_scores(scores):
  scores['Pooyan'] = {'random': 500.0, 'dqn_final': 4000.0, 'dqn_best': 500.0}
  assert normalisation.can_normalise('pooyan', 'dqn_final')
  for game, normaliser in (
    ('Pooyan', 'dqn_best'),  # Same as random.
    ('Pooyan', 'human'),
    ('Surround', 'dqn_final'),
  ):
    assert not normalisation.can_normalise(game, normaliser)
    with pytest.raises(ValueError, match=f'{game} .*{normaliser}'):
      normalisation.normalise(np.ones(2), game.lower(), normaliser)
  assert not normalisation.can_normalise('CartPole', 'human')
  with pytest.raises(ValueError, match="'Pnog'.*Pong"):
    normalisation.normalise(np.ones(2), 'Pnog', 'human')
  with pytest.raises(ValueError, match="'random'"):
    normalisation.can_normalise('Pong', 'random')
  with pytest.raises(ValueError, match="'random'"):
    normalisation.normalise(np.ones(2), 'Pong', 'random')


def as_text(score):
  return {k: str(v) for k, v in dataclasses.asdict(score).items()}


def test_scores_can_be_measured_again(tmp_path, monkeypatch):
  originals = {}
  for name in ('NORMALISERS_CSV', 'RANDOM_SCORES_CSV', 'MINATAR_SCORES_CSV'):
    originals[name] = getattr(normalisation, name).read_bytes()
    monkeypatch.setattr(normalisation, name, tmp_path / name)
    (tmp_path / name).write_bytes(originals[name])
  rom = roms.find_rom('Breakout', 'current')
  rows = random_scores.read_scores(normalisation.RANDOM_SCORES_CSV)
  score = random_scores.measure(rom, episodes=30, seed=0)
  assert as_text(score) == rows['Breakout', rom.md5]
  score = minatar_scores.measure_random('Breakout', 1000)
  assert as_text(score) in read_csv(normalisation.MINATAR_SCORES_CSV)
  minatar_scores.update([score], normalisation.MINATAR_SCORES_CSV)
  random_scores.update_normalisers()
  for name, original in originals.items():
    assert (tmp_path / name).read_bytes() == original
