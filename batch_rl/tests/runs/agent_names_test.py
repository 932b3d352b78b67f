import pytest

from batch_rl.runs import agent_names


@pytest.mark.parametrize(
  ('class_name', 'given', 'name'),
  [
    ('FixedReplayCQLAgent', None, 'CQL'),
    ('Agent', None, 'Agent'),
    ('MyAgent', 'CQL(H)', 'CQL(H)'),
  ],
)
def test_the_name_of_an_agent_of_a_user(class_name, given, name):
  """`configs_test` has those of the package's agents."""
  agent_class = type(class_name, (), {'display_name': given})
  assert agent_names.of_agent(agent_class()) == name


@pytest.mark.parametrize(
  ('record', 'name'),
  [
    ({'agent': 'dqn', 'display_name': 'REM', 'replay_dir': '/d'}, 'REM'),
    ({'agent': 'dqn', 'display_name': 'REM'}, 'REM, online'),
    ({'agent': 'random', 'display_name': 'Random'}, 'Random'),
    ({'agent': 'mine.MyAgent', 'replay_dir': '/d'}, 'mine.MyAgent'),
    ({}, ''),
  ],
)
def test_the_name_in_a_record(record, name):
  assert agent_names.of_record(record) == name


def test_the_order_is_that_of_the_paper():
  names = 'REM (networks)', 'DQN (Adam), online', 'C51', 'DQN (Nature)', 'CQL'
  ordered = sorted(names, key=agent_names.rank)
  assert ordered == [names[i] for i in (3, 1, 2, 0, 4)]
