import itertools
import json
import types
from unittest import mock

import pytest

from batch_rl.sweep import __main__ as sweep_main
from batch_rl.sweep import cells, plan, settings_check

SWEEP = """
base_dir: out
data_dir: data
games: [Pong, Asterix, MinAtar/Breakout]
"""
# Pong's settings are also those of Asterix.
GAMES = 'Pong', 'MinAtar-Breakout'
OFFLINE = 'agents: dqn_adam\ngrid: {AnyAgent.gamma: [0.9, 2.0]}'
ONLINE = 'agents: dqn_adam\njob: online\n'
ONLINE += 'gin_bindings: LoggedRunner.training_step = 9'
HEADS = 'FixedReplayMultiHeadDQNAgent.num_heads'
OF_OTHERS, OF_ANY = (
  f'agents: [rem, dqn]\ngrid: {{{name}: [5, 9]}}'
  for name in (HEADS, 'AnyAgent.num_heads')
)


@pytest.fixture
def path(tmp_path, monkeypatch):
  monkeypatch.chdir(tmp_path)
  return tmp_path / 'sweep.yaml'


@pytest.mark.parametrize(
  ('text', 'cell', 'message'),
  [
    (OFFLINE, 'dqn_adam gamma=2.0 Pong 1 seed 1', 'AnyAgent.gamma=2.0 is not'),
    (ONLINE, 'dqn_adam Pong 1', 'did you mean training_steps'),
    (OF_OTHERS, 'dqn num_heads=5 Pong 1 seed 1', f'{HEADS} has no effect on'),
    (OF_ANY, 'dqn num_heads=5 Pong 1 seed 1', 'AnyAgent.num_heads has no'),
  ],
)
def test_a_wrong_setting_is_named_in_one_line(path, capfd, text, cell, message):
  path.write_text(SWEEP + text)
  assert sweep_main.main([str(path), '--dry_run']) == 2
  output, error = capfd.readouterr()
  assert 'waiting of ' in output
  *warnings, line = error.splitlines()
  assert len(warnings) == (text == OF_ANY)  # The program's own.
  assert line.startswith(f'sweep: {cell}: error: ') and message in line


def test_agents_of_the_same_name_do_not_meet(path, capfd):
  agents = {}
  for name in 'ab':
    agents[name] = {'gin_files': [f'{name}/agent.gin']}
    (path.parent / name).mkdir()
    (path.parent / name / 'agent.gin').write_text(
      "include 'batch_rl/fixed_replay/configs/dqn_adam.gin'\nimport mine\n"
      f"create_offline_agent.agent_name = 'mine.Mine'\nMine.{name} = 3\n"
    )
    (path.parent / name / 'mine.py').write_text(
      'import gin\nfrom batch_rl.fixed_replay import FixedReplayDQNAgent\n'
      '@gin.configurable\nclass Mine(FixedReplayDQNAgent):\n'
      f'  def __init__(self, *args, {name}=1, **kwargs):\n'
      '    super().__init__(*args, **kwargs)\n'
    )
  path.write_text(f'{SWEEP}agents: {json.dumps(agents)}')
  assert sweep_main.main([str(path), '--dry_run']) == 0
  assert not capfd.readouterr().err


def test_a_killed_check_is_reported(path, capfd):
  kill = 'import os, signal\nos.kill(os.getpid(), signal.SIGKILL)'
  (path.parent / 'mine.py').write_text(kill)
  path.write_text(f'{SWEEP}agents: mine.Mine')
  assert sweep_main.main([str(path), '--dry_run']) == 2
  assert 'settings was killed by signal 9' in capfd.readouterr().err


def test_one_cell_of_each_method_is_checked(path, monkeypatch):
  run = mock.Mock(return_value=types.SimpleNamespace(returncode=2))
  monkeypatch.setattr(settings_check.subprocess, 'run', run)
  path.write_text(SWEEP + OFFLINE)
  (path.parent / 'mine.py').write_text('')

  def check(attempts=0, **given):
    read = plan.read(str(path), given).cells
    status = cells.Status(cells.WAITING, attempts)
    return settings_check.run(dict.fromkeys(read, status))

  assert check(runs='1-2', seeds='1-2', agents=['dqn', 'mine.A', 'mine.B']) == 2
  found = [name for name, *_ in json.loads(run.call_args.kwargs['input'])]
  methods = itertools.product(('dqn', 'A', 'B'), (0.9, 2.0), GAMES)
  names = [f'{agent} gamma={g} {game} 1 seed 1' for agent, g, game in methods]
  assert sorted(found) == sorted(names)
  assert check(job='evaluate') == check(attempts=1) == 0
  run.assert_called_once()
  run.return_value.returncode = -9
  with pytest.raises(ValueError, match='killed by signal 9'):
    check()
