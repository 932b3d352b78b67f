"""The programs of the package, run by tests."""

import subprocess
import sys

import gin
import tensorflow as tf
from absl import flags
from absl.testing import flagsaver
from dopamine.discrete_domains import atari_lib

from batch_rl.runs import run_record

# A gin binding that makes `TinyNetwork` known, in other processes too.
IMPORT_TINY_NETWORK = f'import {__name__}'
TINY_DQN = IMPORT_TINY_NETWORK, 'FixedReplayDQNAgent.network = @TinyNetwork'


@gin.configurable
class TinyNetwork(tf.keras.Model):
  """A network that sees few pixels, for tests in which size does not matter."""

  def __init__(self, num_actions, name=None):
    super().__init__(name=name)
    self.flatten = tf.keras.layers.Flatten()
    self.dense = tf.keras.layers.Dense(num_actions)

  def call(self, state):
    pixels = tf.cast(state[:, ::8, ::8], tf.float32) / 255
    return atari_lib.DQNNetworkType(self.dense(self.flatten(pixels)))


def of_runner(runner='FixedReplayRunner', **settings):
  """Returns gin bindings of a runner."""
  return [f'{runner}.{name} = {value}' for name, value in settings.items()]


def command(program, **options):
  """Returns the command line of `batch_rl.<program>`, e.g. of 'baselines.train'.

  An option is a flag; a list gives a flag several times.
  """
  line = [sys.executable, '-um', f'batch_rl.{program}']
  for name, values in options.items():
    for value in values if isinstance(values, list) else [values]:
      line.append(f'--{name}={value}')
  return line


def run(line, cwd=None, env=None):
  kept = dict(capture_output=True, text=True, check=False, timeout=300)
  return subprocess.run(line, cwd=cwd, env=env, **kept)


def run_here(program, **flag_values):
  """Runs the `main` of a program's module in this process as in a new one."""
  gin.clear_config()
  tf.compat.v1.reset_default_graph()
  run_record._locks.clear()
  if not flags.FLAGS.is_parsed():
    flags.FLAGS.mark_as_parsed()
  with flagsaver.flagsaver(**flag_values):
    program.main()
