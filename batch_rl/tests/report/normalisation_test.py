"""Normalised scores: the values, the formulas, and the measurement of random play."""

import csv
import dataclasses
import hashlib
import subprocess
import sys

import numpy as np
import pytest

from batch_rl.atari import environment, roms
from batch_rl.minatar import games as minatar
from batch_rl.report import normalisation
from benchmarks import minatar_scores, random_scores

# Scores name the version, so a changed value needs a new one.
HASHES = {
  '1': '9071f843caf680bba9a8d110c28c288a2e42305f8bb93b080ea59d6f55e2285b',
}
MINATAR_HASHES = {
  '1': '0322a2f70043f047a0bad0dc86d73d52df8b1633dfade191b7cf058555056ab3',
  '2': '99c4530497f5a97f962062ff5e793ffd6535d1a17d7c28d234000114a1e2e690',
}
SCORES = ('random', *normalisation.NORMALISERS)


def rows(path):
  with path.open(encoding='utf-8', newline='') as file:
    return list(csv.DictReader(file))


@pytest.fixture
def scores(monkeypatch):
  """Replaces the scores by an empty dictionary that a test fills."""
  made_up = {}
  monkeypatch.setattr(normalisation, '_scores', lambda: made_up)
  return made_up


def test_the_values_match_the_version():
  content = normalisation.NORMALISERS_CSV.read_bytes()
  digest = hashlib.sha256(content).hexdigest()
  assert HASHES[normalisation.VERSION] == digest
  assert digest[:12] in normalisation.describe('human')


def scores_of_the_dataset():
  return {
    game: scores
    for game, scores in normalisation.load().items()
    if game not in minatar.GAMES
  }


def test_all_games_of_the_dataset_have_scores():
  scores = scores_of_the_dataset()
  assert len(scores) == 60
  for game, found in scores.items():
    assert game == roms.canonical_name(game)
    assert {'random', 'dqn_final', 'dqn_best'} <= set(found) <= set(SCORES)
    assert found['dqn_final'] <= found['dqn_best']
  assert [game for game, found in scores.items() if 'human' not in found] == [
    'AirRaid', 'Carnival', 'ElevatorAction', 'JourneyEscape', 'Pooyan'
  ]  # fmt: skip


def test_all_games_of_minatar_have_scores():
  content = normalisation.MINATAR_SCORES_CSV.read_bytes()
  digest = hashlib.sha256(content).hexdigest()
  assert MINATAR_HASHES[normalisation.MINATAR_VERSION] == digest
  assert digest[:12] in normalisation.describe('dqn_final')
  description = normalisation.describe('dqn_final')
  assert '3 runs of 500,000 agent steps, evaluated 5 times' in description
  for row in rows(normalisation.MINATAR_SCORES_CSV):
    # An iteration has 100,000 agent steps.
    assert '3 runs of 5 iter' in row['source'] or row['score'] == 'random'
  for game in minatar.GAMES:
    assert set(normalisation.load()[game]) == {
      'random',
      'dqn_final',
      'dqn_best',
    }
    assert normalisation.random_score(game.replace('-', '/')) < 3
  assert normalisation.versions(['Pong', 'Breakout']) == normalisation.VERSION
  assert normalisation.versions(['MinAtar-Breakout', 'Pong']) == (
    f'{normalisation.VERSION}, MinAtar {normalisation.MINATAR_VERSION}'
  )


def test_a_minatar_score_can_be_measured_again(tmp_path, monkeypatch):
  [expected] = [
    row
    for row in rows(normalisation.MINATAR_SCORES_CSV)
    if (row['game'], row['score']) == ('MinAtar-Breakout', 'random')
  ]
  score = minatar_scores.measure_random('Breakout', 1000)
  assert {k: str(v) for k, v in dataclasses.asdict(score).items()} == expected
  copy = tmp_path / 'scores.csv'
  copy.write_bytes(normalisation.MINATAR_SCORES_CSV.read_bytes())
  before = copy.read_bytes()
  monkeypatch.setattr(normalisation, 'MINATAR_SCORES_CSV', copy)
  minatar_scores.update([score])
  assert copy.read_bytes() == before


@pytest.mark.parametrize(
  'path', [normalisation.NORMALISERS_CSV, normalisation.MINATAR_SCORES_CSV]
)
def test_rows_are_sorted_unique_and_finite_and_have_sources(path):
  found = rows(path)
  keys = [(row['game'], SCORES.index(row['score'])) for row in found]
  assert keys == sorted(set(keys))
  assert np.isfinite([float(row['value']) for row in found]).all()
  assert all(row['source'] for row in found)


def test_known_values():
  scores = normalisation.load()
  assert scores['Pong']['dqn_final'] == 16.61
  assert scores['Pong']['dqn_best'] == 17.437
  assert scores['Pong']['human'] == 14.6
  assert -21 <= scores['Pong']['random'] < -20
  scores['Pong']['human'] = 0  # `load` returns a copy.
  assert normalisation.load()['Pong']['human'] == 14.6


def test_formulas(scores):
  scores['Pong'] = {
    'random': -20.0, 'dqn_final': 10.0, 'dqn_best': -26.0, 'human': -22.0
  }  # fmt: skip
  returns = np.array([[-20, 10], [-26, 40]])

  def check(normaliser, expected):
    found = normalisation.normalise(returns, 'pong', normaliser)
    assert found.dtype == np.float64
    np.testing.assert_allclose(found, expected, atol=1e-15)

  check('dqn_final', [[0, 1], [-0.2, 2]])
  # A DQN below random: better is still higher.
  check('dqn_best', [[1, 6], [0, 11]])
  check('human', [[0, -15], [3, -30]])
  assert normalisation.normalise(10, 'Pong', 'dqn_final') == 1


def test_every_reference_can_be_normalised():
  for game, scores in normalisation.load().items():
    for name in normalisation.NORMALISERS:
      if normalisation.can_normalise(game, name):
        value = normalisation.normalise(scores[name], game, name)
        # A reference is 1, except for a DQN that is below random.
        below = name != 'human' and scores[name] < scores['random']
        assert value == (0 if below else 1)


def test_missing_scores(scores):
  scores['Pooyan'] = {'random': 500.0, 'dqn_final': 4000.0, 'dqn_best': 500.0}
  assert normalisation.can_normalise('pooyan', 'dqn_final')
  assert not normalisation.can_normalise(
    'Pooyan', 'dqn_best'
  )  # Same as random.
  assert not normalisation.can_normalise('Pooyan', 'human')
  assert not normalisation.can_normalise('Surround', 'dqn_final')
  assert not normalisation.can_normalise('CartPole', 'human')
  for normaliser in ('human', 'dqn_best'):
    with pytest.raises(ValueError, match=f"Pooyan .*{normaliser}.*'dqn_final'"):
      normalisation.normalise(np.ones(2), 'Pooyan', normaliser)
  with pytest.raises(ValueError, match='Surround .*leave the game out.$'):
    normalisation.normalise(np.ones(2), 'surround', 'human')
  with pytest.raises(ValueError, match="Unknown game 'Pnog'.*Pong"):
    normalisation.normalise(np.ones(2), 'Pnog', 'human')


def test_unknown_normaliser():
  for function in (
    normalisation.describe,
    lambda name: normalisation.can_normalise('Pong', name),
    lambda name: normalisation.normalise(np.ones(2), 'Pong', name),
  ):
    with pytest.raises(
      ValueError, match="'random'.* dqn_final, dqn_best, human"
    ):
      function('random')


def test_random_scores_of_the_datasets_roms():
  measured = rows(normalisation.RANDOM_SCORES_CSV)
  keys = [(row['game'], row['rom_md5']) for row in measured]
  assert len(keys) == len(set(keys))
  for game, scores in scores_of_the_dataset().items():
    md5s = roms.md5s(game)
    assert {md5 for name, md5 in keys if name == game} == set(md5s.values())
    [score] = [
      float(row['mean_return'])
      for row in measured
      if (row['game'], row['rom_md5']) == (game, md5s['legacy'])
    ]
    assert normalisation.random_score(game) == scores['random'] == score
  for row in measured:
    assert int(row['episodes']) >= 20
    assert float(row['standard_error']) >= 0
    md5s = roms.md5s(row['game'])
    if md5s['legacy'] == md5s['current']:
      assert row['rom_set'] == 'both'
    else:
      assert row['rom_md5'] == md5s[row['rom_set']]
  assert normalisation.random_score('Surround') is None


def test_a_random_score_can_be_measured_again():
  rom = roms.find_rom('Breakout', 'current')
  row = random_scores.read_scores()['Breakout', rom.md5]
  score = random_scores.measure(rom, int(row['episodes']), int(row['seed']))
  assert {k: str(v) for k, v in dataclasses.asdict(score).items()} == row


def test_random_play_equals_that_in_the_vector_environment(monkeypatch):
  make = environment.make_atari

  def short_episodes(*args):
    return make(*args, max_num_frames_per_episode=602)

  monkeypatch.setattr(environment, 'make_atari', short_episodes)
  count = 2
  monkeypatch.setattr(random_scores, 'ENVIRONMENTS', count)
  score = random_scores.measure(roms.find_rom('Breakout', 'current'), count, 0)
  env = environment.make_vector_environment(
    'Breakout', count, 'current', max_num_frames_per_episode=602, seed=0
  )
  choices = np.random.default_rng(0)
  playing, returns, steps = np.ones(count, bool), np.zeros(count), 0
  while playing.any():
    actions = choices.integers(4, size=count)
    _, rewards, terminated, truncated, _ = env.step(actions)
    returns[playing] += rewards[playing]
    steps += playing.sum()
    playing &= ~(terminated | truncated)
  env.close()
  assert score.mean_return == returns.mean()
  assert score.agent_steps == steps < count * 151
  assert score.episodes == count


def test_normalisers_from_random_scores(tmp_path, monkeypatch):
  for name in ('NORMALISERS_CSV', 'RANDOM_SCORES_CSV'):
    path = getattr(normalisation, name)
    copy = tmp_path / path.name
    copy.write_bytes(path.read_bytes())
    monkeypatch.setattr(normalisation, name, copy)
  before = normalisation.NORMALISERS_CSV.read_bytes()
  random_scores.update_normalisers()
  assert normalisation.NORMALISERS_CSV.read_bytes() == before


def test_imports_without_tensorflow():
  code = (
    'import sys; from batch_rl.report import normalisation; '
    "normalisation.load(); assert 'tensorflow' not in sys.modules"
  )
  subprocess.run([sys.executable, '-c', code], check=True, timeout=60)
