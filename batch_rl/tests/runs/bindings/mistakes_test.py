"""The table of settings: one clear line for a mistake; docs and signatures agree."""

import ast
import inspect
import math
import numbers
import pathlib
import re

import gin
import pytest

from batch_rl.baselines import run_experiment as _online  # noqa: F401
from batch_rl.fixed_replay import run_experiment as _offline  # noqa: F401
from batch_rl.runs import command_line, gin_files
from batch_rl.runs.bindings import gin_internals, settings
from batch_rl.tests import gin_lines, user_code

PAGES = (pathlib.Path(__file__).parents[4] / 'docs').rglob('*.md')
CONFIG = 'batch_rl/fixed_replay/configs/rem.gin'
AGENT = 'FixedReplayMultiHeadDQNAgent'
RUNNER = 'FixedReplayRunner'
GAME = 'atari_lib.create_atari_environment'
ADAM = 'tf.train.AdamOptimizer'


@gin.configurable
def rate_of_ones_own():
  return 0.01


@command_line.user_errors()
def load(binding, path=CONFIG):
  """Loads a binding as the programs do."""
  gin_lines.load([path], [binding])


@pytest.mark.parametrize(
  ('binding', 'remedy'),
  [
    # What gin cannot read.
    (f'{GAME}.game_name=Space Invaders', "a game in quotes, e.g. 'Pong'"),
    (f"{GAME}.game_name=Breakout'", 'in quotes'),
    (f'{GAME}.game_name="Breakout', 'in quotes'),
    ('FixedReplayBuffer.cache_dir=~/x', 'a text in quotes'),
    (f'{AGENT}.optimizer={ADAM}()', '@tf.train'),
    ('include a.gin', "include 'file'"),
    (f'{GAME}.sticky_actions=true', 'True or False'),
    (f'{AGENT}.use_deep_exploration=no', 'True, False'),
    (f'{RUNNER}.training_steps=10**6', 'integer'),
    (f'{RUNNER}.training_steps=1{"0" * 5000}', '...`: give an integer'),
    (f'{AGENT}.num_heads=5 {AGENT}.gamma=1', 'integer from 1'),
    (f'{AGENT}.gamma=', 'number'),
    (f'{AGENT}.gamma', 'Name.parameter=value'),
    (f'{AGENT}.gamma==0.9', 'number'),
    (f'{AGENT}:\n  gamma=1\n kappa=2', 'kappa=2`'),
    (f'{AGENT}.observation_shape=(84, 84', 'tuple'),
    # Names.
    (f'{AGENT}.num_haeds=1', 'num_haeds'),
    ('FixedReplayDQNAgnt.gamma=0.9', 'mean FixedReplayDQNAgent'),
    (f'{AGENT}.network=@NoNetwork', 'NoNetwork'),
    (f'{AGENT}.gamma=%discount', 'discount=VALUE'),
    (f'a=%a\n{AGENT}.num_heads=%a', '%a'),
    (f'a=(%a, 1)\n{AGENT}.observation_shape=%a', '%a is defined by itself'),
    # Values out of range.
    (f'{AGENT}.update_period=0', 'integer from 1'),
    (f'{AGENT}.num_heads=2.5', 'integer from 1'),
    ('DQNAgent.update_horizon=0', 'integer from 1'),  # of a base class
    (f'mine/{AGENT}.num_heads=0', 'integer from 1'),  # in a scope
    (f'{RUNNER}.training_steps=1e6', '1,000,000,000,000'),
    (f'{RUNNER}.max_steps_per_episode=0', 'or None'),
    (f'{ADAM}.learning_rate=0', 'above 0'),
    (f'{AGENT}.gamma=1.01', 'from 0 to 1'),
    (f'{AGENT}.optimizer=@{ADAM}', '()'),
    (f'{AGENT}.network="nature"', '@Name'),
    (f'{AGENT}.observation_dtype="uint8"', '%tf.uint8'),
    (f'{AGENT}.observation_shape=[84, 84]', '(84, 84)'),
    (f'{AGENT}.observation_shape=(84, 0)', 'at least 1'),
    (f'{GAME}.game_name=""', "'Pong'"),
    (f'{GAME}.sticky_actions="False"', 'True or False'),
    ('FixedReplayBuffer.subset=0.1', 'text in quotes'),
    ('WrappedFixedReplayBuffer.stack_on_device=1', 'or None'),
    (f'{RUNNER}.loggers=[@Max]', 'in quotes'),
    (f'{AGENT}.terms="CQL"', 'a list'),
    (f'{AGENT}.replay_suffix=0.7', 'or None'),
    ('PolicyOfRun.base_dir=5', 'in quotes'),
    (f'heads=0\n{AGENT}.num_heads=%heads', '%heads, which is 0,'),
    ('AtariPreprocessing.frame_skip=1', 'integer from 2'),
    ('my_weight=3', 'no value is %my_weight'),
    ('num_heads=[50, 100]', 'write Class.parameter=value'),
  ],
)
def test_a_binding_that_is_refused(refusal, binding, remedy):
  printed = refusal(load, binding)
  assert remedy in printed
  assert ' object at 0x' not in printed and '<' not in printed


@pytest.mark.parametrize(
  'binding',
  [
    f'{RUNNER}.evaluation_steps=0',
    f'{AGENT}.gamma=1',
    f'heads=%number\n{AGENT}.num_heads=%heads\nnumber=5',
    f'size=84\n{AGENT}.observation_shape=(%size, %size)',
    f'{AGENT}.num_heads=0\n{AGENT}.num_heads=1',  # The later one counts.
    f'{ADAM}.learning_rate=@rate_of_ones_own',
    'FixedReplayBuffer.subset="best_trajectories(0.1)"',
    'Constrained.network="mine"',
    'import dopamine.discrete_domains.gym_lib\n'
    'create_gym_environment.version="v1"',
  ],
)
def test_allowed_values(binding):
  load(binding)


@pytest.mark.parametrize(
  ('line', 'message'),
  [
    (f'{AGENT}.num_heads = 0', f'{AGENT}.num_heads=0 is not allowed'),
    (f'{GAME}.game_name = Pong', f'gin cannot read `{GAME}.game_name = Pong`'),
  ],
)
def test_a_mistake_in_a_file_names_the_line(tmp_path, refusal, line, message):
  path = tmp_path / 'a.gin'
  path.write_text(f"include '{CONFIG}'\n\n{line}\n")
  printed = refusal(load, f'{AGENT}.gamma=0.9', str(path))
  assert f'{path}, line 3: ' in printed and message in printed
  if 'not allowed' not in message:  # before TensorFlow is imported
    with pytest.raises(ValueError, match='line 3'):
      gin_files.read([str(path)], [])


def test_parameters_of_the_user(own_folder, refusal):
  text = user_code.AGENT.replace('weight=1.0', 'kappa=1.0, batch_size=0')
  text = text.replace('self.weight = weight', 'self.kappa = kappa')
  user_code.write(own_folder / 'mine.py', text)
  hers = 'import mine\nMyAgent.kappa=-1\nMyAgent.batch_size="small"\n'
  load(hers)
  gin.clear_config()
  printed = refusal(load, f'{hers}MyAgent.update_period=0')
  assert 'MyAgent.update_period=0 is not' in printed


def test_every_numeric_parameter_of_the_package_has_a_range():
  gin_lines.load([CONFIG], [])
  checked = 0
  for selector, function in gin_internals.all_known().items():
    package, _, module = function.__module__.partition('.')
    if package != 'batch_rl' or module.startswith('tests.'):
      continue
    for name, parameter in inspect.signature(function).parameters.items():
      allowed = settings.find(function, name)
      is_number = isinstance(parameter.default, numbers.Number)
      assert allowed or not is_number, (selector, name)
      if allowed and parameter.default is not parameter.empty:
        assert allowed.allows(parameter.default), (selector, name)
        checked += is_number
  assert checked > 50


RANGE = re.compile(
  r'(an integer|a number) (from|above) (\S+?),? (?:to|at most) (\S+?)(, or None)?'
)


def test_a_range_is_what_its_words_say():
  checked = 0
  for name, setting in settings.SETTINGS.items():
    match = RANGE.fullmatch(str(setting))
    assert setting.allows(None) == str(setting).endswith(', or None'), name
    if match is None:
      continue
    convert = int if match[1] == 'an integer' else float
    low, high = (convert(match[i].replace(',', '')) for i in (3, 4))
    assert setting.allows(low) == (match[2] == 'from'), name
    assert setting.allows(high) and setting.allows(min(low + 1, high)), name
    steps = [
      1 if convert is int else max(abs(bound) * 1e-9, 1e-9)
      for bound in (low, high)
    ]
    for wrong in low - steps[0], high + steps[1], True, '1', math.nan, [low]:
      assert not setting.allows(wrong), (name, wrong)
    assert setting.allows(low + 0.5) == (convert is float), name
    checked += 1
  assert checked > 50


def test_settings_of_other_classes_affect_results():
  results = settings.Affects.RESULTS
  for name, setting in settings.SETTINGS.items():
    expected = setting.affects if setting.owner == r'\w+' else results
    assert settings.affects(f'mine/my.Other.{name}') is expected, name
  assert settings.affects('MyAgent.weight_of_mine') is results


# | `Class.parameter = value` | `default` | ...
ROW = re.compile(r'^\| `(\w+)\.(\w+) = (.+?)` \| `(.+?)` \|', re.MULTILINE)


def test_the_docs_give_allowed_values_and_the_defaults():
  rows = ROW.findall(''.join(page.read_text('utf-8') for page in PAGES))
  assert len(rows) > 9
  for owner, name, value, default in rows:
    known = gin_internals.find(owner).wrapped
    setting = settings.find(known, name)
    assert setting, (owner, name)
    assert setting.allows(ast.literal_eval(value)), (owner, name)
    parameter = inspect.signature(known).parameters[name]
    assert parameter.default == ast.literal_eval(default), (owner, name)
