import json
import types
from unittest import mock

import pytest

from batch_rl.sweep import __main__ as sweep_main
from batch_rl.sweep import plan, settings_check

SWEEP = """
base_dir: out
data_dir: data
games: [Pong, Asterix, MinAtar/Breakout]
agents: [dqn_adam]
"""
OFFLINE = 'grid: {AnyAgent.gamma: [0.9, 2.0]}'
ONLINE = 'job: online\ngin_bindings: LoggedRunner.training_step = 9'


@pytest.fixture
def path(tmp_path, monkeypatch):
  monkeypatch.chdir(tmp_path)
  return tmp_path / 'sweep.yaml'


@pytest.mark.parametrize(
  ('text', 'cell', 'message'),
  [
    (OFFLINE, 'dqn_adam gamma=2.0 Pong 1 seed 1', 'AnyAgent.gamma=2.0 is not'),
    (ONLINE, 'dqn_adam Pong 1', 'did you mean training_steps'),
  ],
)
def test_a_wrong_setting_is_named_in_one_line(path, capfd, text, cell, message):
  path.write_text(SWEEP + text)
  assert sweep_main.main([str(path), '--dry_run']) == 2
  output, line = capfd.readouterr()
  assert 'waiting of ' in output
  assert line.startswith(f'sweep: {cell}: error: ')
  assert message in line and line.count('\n') == 1


def test_one_cell_of_each_method_is_checked(path, monkeypatch):
  run = mock.Mock(return_value=types.SimpleNamespace(returncode=2))
  monkeypatch.setattr(settings_check.subprocess, 'run', run)
  path.write_text(SWEEP + OFFLINE)
  assert settings_check.run(plan.read(str(path), {'runs': '1-2'}).cells) == 2
  found = [cell['name'] for cell in json.loads(run.call_args.kwargs['input'])]
  games = 'Pong', 'MinAtar-Breakout'
  names = [f'dqn_adam gamma={g} {game} 1' for game in games for g in (0.9, 2.0)]
  assert sorted(found) == sorted(f'{name} seed 1' for name in names)
  assert (
    settings_check.run(plan.read(str(path), {'job': 'evaluate'}).cells) == 0
  )
  run.assert_called_once()
