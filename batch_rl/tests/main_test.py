import importlib.util
import os
import runpy
import sys

import pytest

from batch_rl import __main__ as command
from batch_rl.tests import programs


def test_each_command_runs_its_module(monkeypatch, capsys, tmp_path):
  ran = []
  monkeypatch.setattr(sys, 'path', [str(tmp_path), *sys.path])
  script = str(tmp_path / 'batch-rl')
  monkeypatch.setattr(runpy, 'run_module', lambda name, **_: ran.append(name))
  for name in command.COMMANDS:
    monkeypatch.setattr(sys, 'argv', [script, name, '--help'])
    assert command.main() == 0
    assert str(tmp_path) not in sys.path and sys.path[-1] == os.getcwd()
    assert sys.argv[1:] == ['--help'] and importlib.util.find_spec(ran[-1])
    monkeypatch.setattr(sys, 'argv', ['batch-rl'])
    assert command.main() == 0
    assert f'\n  {name:<10}' in capsys.readouterr().out
  assert len(ran) == len(set(ran)) == 7
  monkeypatch.setattr(sys, 'argv', ['batch-rl', 'tran'])
  assert command.main() == 2
  assert '(did you mean train?)' in capsys.readouterr().err


def test_a_command_ends_as_its_module():
  arguments = '-m', 'batch_rl', 'dataset', 'verify', 'none'
  done = programs.run([sys.executable, *arguments])
  assert (done.returncode, done.stdout) == (2, '')
  assert 'none cannot be listed' in done.stderr


def test_help_imports_no_tensorflow():
  code = 'import sys; from batch_rl import __main__ as command; '
  code += "sys.exit(command.main() or 'tensorflow' in sys.modules)"
  assert programs.run([sys.executable, '-c', code, '--help']).returncode == 0


@pytest.mark.parametrize(
  ('name', 'names'),
  [
    ('train', 'base_dir replay_dir gin_files seed'),
    ('evaluate', 'base_dir checkpoints video gin_bindings'),
    ('select', 'out replay_dir method module_dirs'),
  ],
)
def test_help_has_all_flags(name, names):
  done = programs.run([sys.executable, '-m', 'batch_rl', name, '--help'])
  assert done.returncode == 0
  assert all(f'--{flag}:' in done.stdout for flag in names.split())
