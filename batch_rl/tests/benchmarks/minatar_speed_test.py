"""The same settings for both sides of `benchmarks.minatar_speed`."""

import gin
import pytest

from batch_rl.minatar import networks
from benchmarks import minatar_speed

PAIRS = [
  *((agent, True) for agent in minatar_speed.ONLINE),
  *((a, False) for a in minatar_speed.OFFLINE if a in minatar_speed.DOPAMINE),
]


@pytest.mark.parametrize(('agent', 'online'), PAIRS)
def test_dopamines_agents_get_all_settings_of_ours(agent, online):
  settings = minatar_speed.dopamine_settings(agent, online)
  ours = gin.get_bindings(minatar_speed.configure(agent, online))
  assert settings.keys() - {'replay_scheme'} == ours.keys()
  assert settings['network'] is networks.MinAtarNetwork
  assert settings['target_update_period'] == 1000
  assert settings.get('replay_scheme', 'uniform') == 'uniform'
