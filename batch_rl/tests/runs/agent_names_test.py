"""`configs_test` has the names of the package's agents."""

from batch_rl.runs import agent_names


def test_names():
  for class_name, given, name in (
    ('FixedReplayCQLAgent', None, 'CQL'),
    ('Agent', None, 'Agent'),
    ('MyAgent', 'CQL(H)', 'CQL(H)'),
  ):
    agent_class = type(class_name, (), {'display_name': given})
    assert agent_names.of_agent(agent_class()) == name
  record = {'agent': 'dqn', 'display_name': 'REM'}
  assert agent_names.of_record(record) == 'REM, online'
  assert agent_names.of_record({**record, 'display_name': 'Random'}) == 'Random'
  names = 'REM (networks)', 'DQN (Adam), online', 'C51', 'DQN (Nature)', 'CQL'
  ordered = sorted(names, key=agent_names.rank)
  assert ordered == [names[i] for i in (3, 1, 2, 0, 4)]
