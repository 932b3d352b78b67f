"""The table of settings agrees with README's tables and with the signatures."""

import ast
import inspect
import pathlib
import re

import pytest

from batch_rl.baselines import run_experiment as _online  # noqa: F401
from batch_rl.fixed_replay import run_experiment as _offline  # noqa: F401
from batch_rl.runs.bindings import gin_internals, settings

README = pathlib.Path(__file__).parents[4] / 'README.md'
# | `Class.parameter = value` | `default` | ...
ROW = re.compile(r'^\| `(\w+)\.(\w+) = (.+?)` \| `(.+?)` \|', re.MULTILINE)


@pytest.mark.skipif(
  not README.exists(), reason='needs the repository, not a wheel'
)
def test_the_readme_gives_allowed_values_and_the_defaults():
  rows = ROW.findall(README.read_text(encoding='utf-8'))
  assert len(rows) > 10
  for owner, name, value, default in rows:
    known = gin_internals.find(owner).wrapped
    setting = settings.find(known, name)
    assert setting, (owner, name)
    assert setting.allows(ast.literal_eval(value)), (owner, name)
    parameter = inspect.signature(known).parameters[name]
    assert parameter.default == ast.literal_eval(default), (owner, name)


@pytest.mark.parametrize(
  ('name', 'affects'),
  [
    ('FixedReplayRunner.num_iterations', 'RUNNING'),
    ('mine/batch_rl.x.FixedReplayBuffer.prefetch', 'RUNNING'),
    ('Preload.preload', 'RESULTS'),  # of no memory
    ('FixedReplayBuffer.subset', 'PROTOCOL'),
    ('run_seed.seed', 'RECORDED'),
    ('run_seed.deterministic_ops', 'REPETITION'),
    ('FixedReplayDQNAgent.jit_compile', 'RESULTS'),
    ('MyAgent.weight', 'RESULTS'),
  ],
)
def test_what_a_binding_affects(name, affects):
  assert settings.affects(name).name == affects


def test_defaults_of_runners():
  name = 'FixedReplayRunner.max_steps_per_episode'
  assert settings.runner_default(name) == '27000'
  assert settings.runner_default('FixedReplayRunner.nonsense') is None
  assert settings.runner_default('NoRunner.num_iterations') is None
  assert settings.runner_default('FixedReplayDQNAgent.gamma') is None
