import pytest

from batch_rl.agents import registry
from batch_rl.baselines.agents import REGISTRY as ONLINE
from batch_rl.fixed_replay.agents import REGISTRY as OFFLINE
from batch_rl.fixed_replay.agents import dqn_agent, rainbow_agent
from batch_rl.tests import user_code
from batch_rl.utils.user_code import user_modules


@pytest.fixture
def find(own_folder):
  """Finds an offline agent, while `mine.py` lies in the current directory."""
  online = """
from batch_rl.baselines.agents import random_agent
class LoggedMyAgent(random_agent.RandomAgent):
  pass
"""
  user_code.write(own_folder / 'mine.py', user_code.AGENT + online)
  user_modules.add_folder('')
  return OFFLINE.find


def test_agents_are_found_by_both_kinds_of_names(find):
  mine = find('mine.MyAgent')
  assert issubclass(mine, dqn_agent.FixedReplayDQNAgent)
  assert find('c51') is rainbow_agent.FixedReplayRainbowAgent
  assert find('rainbow') is rainbow_agent.FixedReplayRainbowAgent
  assert ONLINE.find('rem') is ONLINE.find('multi_network_dqn')
  assert registry.name_of(mine) == 'mine.MyAgent'
  logged = ONLINE.find('mine.LoggedMyAgent')
  assert registry.name_of(logged) == 'mine.LoggedMyAgent'
  for name, shipped in OFFLINE.load_all().items():
    assert registry.name_of(shipped) == name


@pytest.mark.parametrize(
  ('name', 'message'),
  [
    (None, 'agent None; choose bc, c51, dqn'),
    ('dqnn', r'dqn\?.*c51, dqn'),
    ('MyAgent', 'my_module.MyAgent'),
    ('mine.make.<locals>.MyAgent', 'top level'),
    ('mien.MyAgent', "'mien' for mien.MyAgent.*{own}"),
    ('mine.more.MyAgent', "'mine.more'"),
    ('mine.MyAgnt', r'MyAgent\?'),
    ('mine.helper', 'mine.helper'),
    ('mine.LoggedMyAgent', r'one of batch_rl\.fixed_replay, .* FixedReplayDQN'),
  ],
)
def test_what_is_not_an_agent_is_named(find, own_folder, name, message):
  with pytest.raises(ValueError, match=message.format(own=own_folder)):
    find(name)
