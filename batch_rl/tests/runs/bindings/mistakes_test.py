"""Mistakes in gin bindings: one clear line with the remedy, before anything slow."""

import glob
import inspect
import numbers
import os

import gin
import numpy as np
import pytest

import batch_rl
from batch_rl.baselines import run_experiment as _online  # noqa: F401
from batch_rl.fixed_replay import run_experiment as _offline  # noqa: F401
from batch_rl.fixed_replay import train
from batch_rl.runs import command_line, gin_files
from batch_rl.runs.bindings import gin_internals, settings
from batch_rl.tests import programs, shards, user_code

CONFIG = 'batch_rl/fixed_replay/configs/rem.gin'
AGENT = 'FixedReplayMultiHeadDQNAgent'
RUNNER = 'FixedReplayRunner'
MEMORY = 'WrappedFixedReplayBuffer'
GAME = 'atari_lib.create_atari_environment'
ADAM = 'tf.train.AdamOptimizer'


@gin.configurable
def rate_of_ones_own():
  return 0.01


def refusal(capsys, binding, path=CONFIG):
  """Returns the line that ends a program with a binding."""
  with pytest.raises(SystemExit) as exit_, command_line.user_errors():
    command_line.load_gin([path] if path else [], [binding])
  assert exit_.value.code == 2
  printed = capsys.readouterr().err
  assert printed.count('\n') == 1
  assert ' object at 0x' not in printed and '<' not in printed
  return printed


@pytest.mark.parametrize(
  ('binding', 'remedy'),
  [
    # Text without quotes.
    (f'{GAME}.game_name=Breakout', "game_name='Breakout'"),
    (f'{GAME}.game_name=Space Invaders', "game_name='Space Invaders'"),
    (f'{GAME}.game_name=Pong  # mine', "game_name='Pong'"),
    (f"{GAME}.game_name=Breakout'", "game_name='Breakout'"),
    (f'{GAME}.game_name="Breakout', 'gin cannot read the value'),
    ('FixedReplayBuffer.cache_dir=/tmp/x', "cache_dir='/tmp/x'"),
    ('FixedReplayBuffer.cache_dir=~/x', "cache_dir='~/x'"),
    (f'{AGENT}.optimizer={ADAM}()', 'give an optimiser'),
    (f'{AGENT}.observation_dtype=tf.uint8', 'e.g. %tf.uint8'),
    (f'{AGENT}.network=atari_lib.Net', '@Name'),
    ('include a.gin', "write include 'a.gin'"),
    # Words of other languages, and numbers.
    (f'{GAME}.sticky_actions=true', '.sticky_actions=True"'),
    (f'{RUNNER}.max_steps_per_episode=null', '.max_steps_per_episode=None"'),
    (f'{AGENT}.gamma=nan', 'give a number from 0 to 1'),
    (f'{AGENT}.gamma=0,99', 'give a number'),
    (f'{AGENT}.update_period=0004', 'give an integer'),
    (f'{RUNNER}.training_steps=250,000', 'give an integer'),
    (f'{RUNNER}.training_steps=10**6', 'give an integer'),
    (f'{RUNNER}.training_steps=1{"0" * 5000}', '... cannot be read: give an'),
    ('MyAgent.strength=5x', 'gin cannot read the value of MyAgent.strength=5x'),
    (f'{AGENT}.num_heads=5 {AGENT}.gamma=1', 'give each its own --gin_bind'),
    # The value and the sign.
    (f'{AGENT}.gamma=', 'gamma= has no value'),
    (f'{AGENT}.gamma', 'has the form Name.parameter=value'),
    (f'{AGENT}.gamma 0.9', 'has the form'),
    (f'{AGENT}.gamma==0.9', 'give a number'),
    (f'--{AGENT}.gamma=0.9', 'has the form'),
    (f'{AGENT}:\n  gamma=1\n kappa=2', 'kappa=2`: indent all lines alike'),
    (f'{AGENT}.observation_shape=(84, 84', 'give a tuple'),
    ('MyAgent.strength=[a, b]', 'cannot read the value'),
    # Names.
    (f'{AGENT}.num_haeds=1', 'num_haeds'),
    ('FixedReplayDQNAgnt.gamma=0.9', 'FixedReplayDQNAgnt'),
    (f'{AGENT}.network=@NoNetwork', 'NoNetwork'),
    (f'{AGENT}.gamma=%discount', 'neither a constant nor a macro with a value'),
    (f'a=%a\n{AGENT}.num_heads=%a', '%a is defined by itself'),
    ('num_iterations=3', 'num_iterations=3 sets no parameter'),
    (RUNNER + '=3', f'{RUNNER}=3 sets no parameter: write Class.parameter'),
  ],
)
def test_a_line_that_gin_cannot_read(capsys, binding, remedy):
  assert remedy in refusal(capsys, binding)


INTEGER, NUMBER = 'give an integer from', 'give a number'


@pytest.mark.parametrize(
  ('name', 'values', 'remedy'),
  [
    *(
      (name, ('0', '2.5'), INTEGER)
      for name in (
        f'{AGENT}.update_period',
        f'{AGENT}.num_heads',
        f'{MEMORY}.num_buffers',
        f'{RUNNER}.max_steps_per_episode',
        'Checkpoints.keep_every',
        'AtariPreprocessing.frame_skip',
        'DQNAgent.update_horizon',  # of a base class
        f'mine/{AGENT}.num_heads',  # in a scope
      )
    ),
    (
      f'{RUNNER}.training_steps',
      ('-1', "'x'", 'True', 'None', '1e400', '[]', '(1, 2)', str(10**400)),
      INTEGER,
    ),
    *(
      (name, ('-0.1', '1e400', "'x'", 'True', 'None'), NUMBER)
      for name in (f'{AGENT}.gamma', f'{ADAM}.learning_rate')
    ),
    (f'{AGENT}.update_period', ['-4'], '=-4 is not allowed: give an integer'),
    (f'{RUNNER}.evaluation_steps', ['-1'], 'give an integer from 0 to'),
    (f'{RUNNER}.training_steps', ['1e6'], '1,000,000,000,000: 1000000.'),
    (f'{RUNNER}.training_steps', ["'800'"], ': 800.'),
    (f'{ADAM}.learning_rate', ['0'], 'give a number above 0'),
    (f'{AGENT}.gamma', ['1.01'], 'give a number from 0 to 1'),
    (
      f'{AGENT}.optimizer',
      ['"adam"', f'@{ADAM}', 'None'],
      'an optimiser with ()',
    ),
    (f'{AGENT}.network', ['"nature"'], 'give a class or function'),
    (f'{AGENT}.observation_dtype', ['"uint8"'], 'e.g. %tf.uint8'),
    ('FixedReplayRainbowAgent.replay_scheme', ['"prioritized"'], "'uniform'"),
    ('LoggedQuantileAgent.replay_scheme', ['"prioritized"'], "'uniform'"),
    (f'{AGENT}.observation_shape', ['[84, 84]'], 'e.g. (84, 84): (84, 84).'),
    (f'{AGENT}.observation_shape', ['(84)'], ': (84,).'),
    (f'{AGENT}.observation_shape', ['(84, 0)'], 'integers of at least 1'),
    (f'{GAME}.game_name', ['5', 'None', '""'], 'give a game in quotes'),
    (f'{AGENT}.tf_device', ['"/gpu:zero"'], 'give a device in quotes'),
    (f'{GAME}.sticky_actions', ['"False"', '0'], 'give True or False: False.'),
    ('FixedReplayBuffer.subset', ['0.1'], 'give a text in quotes'),
    ('FixedReplayBuffer.deterministic', ['1'], 'True or False, or None: True.'),
    ('Checkpoints.every_minutes', ['0'], 'above 0, at most 1e+09, or None'),
    ('run_seed.seed', ['-1'], 'give an integer from 0'),
    (
      'RainbowAgent.vmin',
      ['0.0'],
      'other than 0, which Dopamine takes for None',
    ),
    (
      f'heads=0\n{AGENT}.num_heads',
      ['%heads'],
      'num_heads=%heads, which is 0, is',
    ),
    (
      'LoggedRunner.tensor_float_32',
      ['"False"', '1', 'None'],
      'give True or False',
    ),
    ('LoggedRainbowAgent.min_replay_history', ['-1'], INTEGER),
    ('WrappedLoggedReplayBuffer.shard_capacity', ['0'], INTEGER),
    ('RandomAgent.shard_capacity', ['0'], INTEGER),
  ],
)
def test_a_value_that_is_not_allowed(capsys, name, values, remedy):
  for value in values:
    gin.clear_config()
    printed = refusal(capsys, f'{name}={value}')
    assert 'is not allowed' in printed and remedy in printed
    assert name.split('/')[-1].split('.')[-1] in printed
    assert value[:70] in printed


@pytest.mark.parametrize(
  'binding',
  [
    f'{RUNNER}.evaluation_steps=0',
    f'{RUNNER}.max_steps_per_episode=None',
    f'{AGENT}.gamma=1',
    f'{AGENT}.gamma=0',
    f'{AGENT}.epsilon_eval=1.0',
    f'{AGENT}.update_period=250000',
    f'heads=5\n{AGENT}.num_heads=%heads',
    f'{AGENT}.observation_dtype=%tf.float32',
    f'{ADAM}.learning_rate=@rate_of_ones_own',
    'FixedReplayBuffer.subset="best_trajectories(0.1)"',
    'make_atari.rom_set="current"',
    'Checkpoints.every_minutes=0.5',
    'unused=3',
    f'{AGENT}.tf_device="/gpu:0"',
    f'{AGENT}.tf_device="/job:localhost/device:CPU:*"',
    f'{AGENT}.tf_device=""',
    'import dopamine.discrete_domains.gym_lib\n'
    'create_gym_environment.version="v1"',
  ],
)
def test_allowed_values(binding):
  command_line.load_gin([CONFIG], [binding])


def test_a_value_that_a_later_binding_corrects(tmp_path):
  path = tmp_path / 'a.gin'
  path.write_text(f'{AGENT}.num_heads = 0\n')
  command_line.load_gin([CONFIG, str(path)], [f'{AGENT}.num_heads = 1'])


@pytest.mark.parametrize(
  ('line', 'message'),
  [
    (f'{AGENT}.num_heads = 0', f'{AGENT}.num_heads=0 is not allowed'),
    (f'{GAME}.game_name = Pong', f"write {GAME}.game_name = 'Pong'."),
    (f'{AGENT}.observation_shape = (1,', 'cannot be read: give a tuple'),
  ],
)
def test_a_mistake_in_a_file_names_the_line(tmp_path, capsys, line, message):
  path = tmp_path / 'a.gin'
  path.write_text(f"include '{CONFIG}'\n\n{line}\n")
  printed = refusal(capsys, f'{AGENT}.gamma=0.9', str(path))
  assert f'{path}, line 3: ' in printed and message in printed
  if 'not allowed' not in message:  # before TensorFlow is imported
    with pytest.raises(ValueError, match='line 3'):
      gin_files.read([str(path)], [])


def test_parameters_of_the_user(own_folder, capsys):
  """Hers are left alone, unless the package has them."""
  text = user_code.AGENT.replace('weight=1.0', 'kappa=1.0, batch_size=0')
  text = text.replace('self.weight = weight', 'self.kappa = kappa')
  user_code.write(own_folder / 'mine.py', text)
  hers = 'import mine\nMyAgent.kappa=-1\nMyAgent.batch_size="small"\n'
  command_line.load_gin([CONFIG], [hers])
  gin.clear_config()
  assert 'MyAgent.update_period=0 is not' in refusal(
    capsys, f'{hers}MyAgent.update_period=0'
  )


def shipped_bindings():
  """Yields configurable, parameter and value of all bindings in shipped configs."""
  package = os.path.dirname(batch_rl.__file__)
  examples = os.path.join(os.path.dirname(package), 'examples', '*', '*.gin')
  for path in (
    *glob.glob(os.path.join(package, '*', 'configs', '*.gin')),
    *glob.glob(examples),
  ):
    gin.clear_config()
    command_line.load_gin([path], [])
    known = gin_internals.all_known()
    for (_, selector), parameters in gin_internals.bound_values().items():
      for name, value in parameters.items():
        yield known[selector], name, value


def is_checked(value):
  return isinstance(value, numbers.Number | np.number)


def test_every_number_in_a_shipped_config_has_a_range():
  with user_code.forgotten():
    missing = {
      f'{configurable.__name__}.{name}'
      for configurable, name, value in shipped_bindings()
      if is_checked(value) and not settings.find(configurable, name)
    }
  # Those of the user's own agents.
  assert missing == {'CQLAgent.cql_weight', 'BCQAgent.threshold'}


def test_every_numeric_parameter_of_the_package_has_a_range():
  command_line.load_gin([CONFIG], [])
  missing = set()
  for selector, function in gin_internals.all_known().items():
    if not function.__module__.startswith('batch_rl.'):
      continue
    if function.__module__.startswith('batch_rl.tests.'):
      continue
    for name, parameter in inspect.signature(function).parameters.items():
      if not is_checked(parameter.default):
        continue
      allowed = settings.find(function, name)
      if allowed is None:
        missing.add(f'{selector}.{name}')
      else:
        assert allowed.accepts(parameter.default), (selector, name)
  assert not missing


def test_the_program_ends_before_it_makes_anything(
  tmp_path, monkeypatch, capsys
):
  shards.write_run(tmp_path / 'Pong/1/replay_logs', [30], capacity=50)
  options = dict(base_dir='base', replay_dir='Pong/1', gin_files=[CONFIG])
  monkeypatch.chdir(tmp_path)

  def check(code, printed, message):
    assert code == 2
    assert message in printed and printed.count('\n') == 1
    assert not (tmp_path / 'base').exists()

  unreadable = f'{GAME}.game_name=Breakout'
  line = programs.command(
    'fixed_replay.train', gin_bindings=unreadable, **options
  )
  done = programs.run(line, tmp_path)
  check(done.returncode, done.stderr, "game_name='Breakout'")
  with pytest.raises(SystemExit) as exit_:
    programs.run_here(
      train, gin_bindings=[f'{AGENT}.update_period=-4'], **options
    )
  printed = capsys.readouterr().err
  check(exit_.value.code, printed, 'update_period=-4 is not allowed')
