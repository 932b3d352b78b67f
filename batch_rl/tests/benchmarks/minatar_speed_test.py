"""The same settings and data for both sides of `benchmarks.minatar_speed`."""

import gin
import numpy as np
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


def test_transitions_are_the_same_in_each_call():
  first, second = (list(minatar_speed.transitions(200)) for _ in range(2))
  for one, other in zip(first, second, strict=True):
    np.testing.assert_array_equal(one[0], other[0])
    assert one[1:] == other[1:]
  rewards, terminals = zip(*(row[2:] for row in first), strict=True)
  assert set(rewards) <= {0.0, 1.0} and any(terminals)


def test_ratios_are_those_of_the_same_round():
  dqn = minatar_speed.Name('dqn', minatar_speed.UPDATES)
  rem = minatar_speed.Name('rem', minatar_speed.UPDATES)
  ours = np.array([[0.001, 0.002], [0.004, 0.002], [0.002, 0.002]])
  dopamine = ours * [2, 3]
  assert minatar_speed.rows({dqn: ours, rem: ours}, {dqn: dopamine}) == [
    ['dqn, offline', '250', '500', '2.00 x', '6.00', '2.00', '3.00 x'],
    ['rem, offline', '', '500', '', '', '2.00', ''],
  ]
