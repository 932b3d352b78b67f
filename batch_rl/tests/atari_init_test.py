"""A smoke test of the Atari set-up: python -um batch_rl.tests.atari_init_test.

Makes a few games as the training programs do, and plays them for some steps.
"""

import gin
import numpy as np
from absl.testing import absltest, parameterized
from dopamine.discrete_domains import atari_lib

from batch_rl.atari import environment, roms


class AtariInitTest(parameterized.TestCase):
  @parameterized.parameters('Asterix', 'Pong', 'Amidar', 'SpaceInvaders')
  def test_game_plays(self, game):
    try:
      roms.find_rom(game)
    except ValueError as error:
      if game in ('Asterix', 'Pong'):  # ale-py has another ROM of the others.
        raise
      self.skipTest(str(error))
    self.addCleanup(gin.clear_config)
    gin.parse_config(f'atari_lib.create_atari_environment.game_name = "{game}"')
    env = atari_lib.create_atari_environment()
    observations = [env.reset()]
    for action in range(env.action_space.n):
      observation, reward, is_terminal, _ = env.step(action)
      observations.append(observation)
      self.assertIsInstance(reward, float)
      self.assertFalse(is_terminal)
    observations = np.array(observations)
    self.assertEqual(observations.shape[1:], (84, 84, 1))
    self.assertEqual(observations.dtype, np.uint8)
    self.assertGreater(observations.std(), 0)
    described = environment.describe(env)
    self.assertEqual(described['game'], game)
    print('{game}: {rom_set} ROM, md5 {rom_md5}'.format(**described))


if __name__ == '__main__':
  absltest.main()
