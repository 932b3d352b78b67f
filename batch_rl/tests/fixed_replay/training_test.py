"""`batch_rl.train` beside the program."""

import random
import re
import signal
import sys

import gin
import numpy as np
import pytest
import tensorflow as tf

import batch_rl
from batch_rl.dataset.shards import shard_reader
from batch_rl.fixed_replay import train
from batch_rl.fixed_replay.agents import dqn_agent
from batch_rl.runs import run_record
from batch_rl.tests import cartpole, programs

CONFIG = 'batch_rl/tests/sweep/configs/cartpole.gin'


@pytest.fixture
def data(tmp_path):
  cartpole.write_log(tmp_path / 'CartPole/1/replay_logs')
  return tmp_path / 'CartPole/1'


def call(data, base_dir=None, iterations=1, agent='dqn', **given):
  arguments = {'gin_files': CONFIG, 'updates': 50, 'seed': 1, **given}
  return batch_rl.train(
    agent, data, base_dir, iterations=iterations, **arguments
  )


def command(data, base_dir, iterations):
  programs.run_here(
    train,
    base_dir=base_dir,
    replay_dir=str(data),
    config='dqn',
    gin_files=[CONFIG],
    gin_bindings=[f'FixedReplayRunner.num_iterations = {iterations}'],
    seed=1,
  )
  run_record.release_locks()


@pytest.mark.usefixtures('own_folder')
def test_call_and_command_continue_each_other_to_the_bit(data):
  gin.parse_config('run_seed.seed = 7')
  before = random.getstate()
  runs = [call(data, iterations=2)]  # it finds the next seed as it was
  assert random.getstate() == before
  assert gin.config_str().endswith('run_seed.seed = 7\n')
  assert not gin.config_is_locked()
  assert not tf.compat.v1.get_default_graph().get_operations()
  assert runs[0].base_dir == 'runs/dqn/CartPole/1'
  command(data, 'command', 1)
  runs.append(call(data, 'command', 2))
  call(data, 'call', 1)
  command(data, 'call', 2)
  runs.append(runs[0]._replace(base_dir='call'))
  found = [
    (run.evaluations, (open(f'{run.base_dir}/{file}', 'rb').read()))
    for run in runs
    for file in ['checkpoints/ckpt-1/tf_ckpt-1.data-00000-of-00001']
  ]
  assert found[0] == found[1] == found[2] and len(found[0][0]) == 2
  assert call(data, iterations=2).evaluations == found[0][0]  # done
  assert sum(e.length for e in runs[0].evaluate(steps=30)) >= 30
  with runs[0].acting_agent() as agent:
    assert agent.begin_episode(np.zeros((4, 1))) in (0, 1)
  with pytest.raises(ValueError, match='^call has no checkpoint of .* 7, only'):
    runs[2].evaluate(checkpoints='7')


class Stopped(dqn_agent.FixedReplayDQNAgent):
  def begin_iteration(self, *args):
    signal.raise_signal(signal.SIGINT)
    super().begin_iteration(*args)


def test_refusals_are_one_line_in_words_of_the_call(data, own_folder):
  call(data, 'base', 1)
  for given, line in (
    ({'agent': 'dqm'}, r"Unknown agent 'dqm' \(did you mean dqn\?\)"),
    ({'data': 'none'}, 'none'),
    ({'iterations': 0}, 'num_iterations=0 is not allowed'),
    ({'updates': -1}, 'training_steps=-1 is not allowed'),
    ({'gin_bindings': {'DQNAgent.gama': '%x'}}, "'gama'"),
    ({'gin_bindings': 'A.b'}, 'gin cannot read `A.b`'),
    ({'seed': 2}, 'choose another base_dir, .* accept_changes: - seed = 1'),
  ):
    with pytest.raises(ValueError, match=line) as refused:
      call(**{'data': data, 'base_dir': 'base', **given})
    assert not re.search('\n|--', str(refused.value))
  with pytest.raises(KeyboardInterrupt, match='the same call continues'):
    call(data, 'stopped', agent=Stopped)
  assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
  next((data / 'replay_logs').glob('*reward*')).write_bytes(b'')
  with pytest.raises((shard_reader.DataError, ValueError), match='reward'):
    call(data, 'damaged')


@pytest.mark.usefixtures('own_folder')
def test_a_class_may_be_defined_anew(data, monkeypatch):
  """As by a notebook's cell."""

  def define():
    class Mine(dqn_agent.FixedReplayDQNAgent):
      def __init__(self, *args, weight=0, **kwargs):
        self.weight = weight
        super().__init__(*args, **kwargs)

      def loss(self, batch):
        return super().loss(batch) / self.weight

    Mine.__qualname__ = 'Mine'
    monkeypatch.setattr(sys.modules[__name__], 'Mine', Mine, raising=False)
    return Mine

  runs = [
    call(data, str(w), agent=define(), gin_bindings={'Mine.weight': w})
    for w in (1.0, 2.0)
  ]
  assert runs[0].evaluations != runs[1].evaluations
  old, new = Mine, define()  # noqa: F821
  with pytest.raises(ValueError, match='another class now'):
    call(data, agent=old)
  with pytest.raises(FloatingPointError):
    call(data, 'wrong', agent=new)
