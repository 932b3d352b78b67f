"""`batch_rl.train` beside the program."""

import json
import pathlib
import random
import re
import signal
import sys

import gin
import numpy as np
import pytest

import batch_rl
from batch_rl.fixed_replay import train
from batch_rl.fixed_replay.agents import dqn_agent
from batch_rl.runs import run_record
from batch_rl.tests import cartpole, programs

FILE = 'batch_rl/tests/sweep/configs/cartpole.gin'
WEIGHTS = 'checkpoints/ckpt-1/tf_ckpt-1.data-00000-of-00001'


def call(base_dir, iterations, agent='dqn', **given):
  options = dict(gin_files=FILE, gin_bindings=None, seed=1)
  given = dict(data='CartPole/1') | options | given
  given |= dict(base_dir=base_dir, iterations=iterations)
  return batch_rl.train(agent, **given)


def command(base_dir, iterations):
  given = dict(replay_dir='CartPole/1', config='dqn', gin_files=[FILE], seed=1)
  bound = [f'FixedReplayRunner.num_iterations = {iterations}']
  with run_record.released_locks():
    programs.run_here(train, base_dir=base_dir, gin_bindings=bound, **given)


@pytest.mark.usefixtures('own_folder')
def test_calls_and_commands_continue_each_other_to_the_bit(monkeypatch):
  cartpole.write_log('CartPole/1/replay_logs')
  gin.parse_config('run_seed.seed = 7')
  before = random.getstate()
  value = np.float64(3.0), pathlib.Path('a b'), '@CQL()'
  unused = {'tf.train.RMSPropOptimizer.name': value}
  whole = call(None, 2, updates=50, gin_bindings=unused)
  record = run_record.read(whole.base_dir)
  assert (name := 'RMSPropOptimizer.name') in record['unused_bindings']
  assert f"\n{name} = (3.0, 'a b', @CQL())\n" in record['gin_config']
  first = pathlib.Path(whole.base_dir, 'checkpoints/ckpt-0/checkpoint.json')
  assert name in json.loads(first.read_text())['run']['unused_bindings']
  assert random.getstate() == before and not gin.config_is_locked()
  assert gin.query_parameter('run_seed.seed') == 7
  assert whole.base_dir == 'runs/dqn/CartPole/1'
  assert whole.evaluate(9, checkpoints=1)[0].length
  with pytest.raises(ValueError, match="steps='9' is not an integer"):
    whole.evaluate('9')
  with pytest.raises(ValueError, match='^runs has no run.json; is it the'):
    list(batch_rl.TrainedRun('runs').evaluations)
  weights = pathlib.Path(whole.base_dir, WEIGHTS).read_bytes()
  for first, second in ((command, call), (call, command)):
    first(first.__name__, 1)
    second(first.__name__, 2)
    run = whole._replace(base_dir=first.__name__)
    assert run.evaluations == whole.evaluations
    assert pathlib.Path(run.base_dir, WEIGHTS).read_bytes() == weights
  for given, line in (
    ({'agent': 'dqm'}, r"Unknown agent 'dqm' \(did you mean dqn\?\)"),
    ({'data': 'none'}, 'none'),
    ({'iterations': 0}, 'iterations=0 is not an integer >= 1'),
    ({'iterations': '1'}, "iterations='1' is not an integer"),
    ({'updates': -1}, 'updates=-1 is not an integer'),
    ({'updates': 1e3}, 'updates=1000.0 is not an integer'),
    ({'seed': 1.5}, 'seed=1.5 is not an integer'),
    ({'agent': 'own/dqn.gin'}, "'own/dqn.gin' is neither .* as gin_files"),
    ({'agent': None}, 'agent=None is neither a name nor a class'),
    ({'gin_bindings': {'DQNAgent.gama': ['@x()']}}, 'does not know x'),
    ({'gin_bindings': 'A.b'}, 'gin cannot read `A.b`'),
    (
      {'gin_bindings': [('A.b', 1)]},
      r"gin_bindings: \('A.b', 1\) is not a line",
    ),
    ({'seed': 2}, 'choose another base_dir, .* accept_changes: - seed = 1'),
  ):
    with pytest.raises(ValueError, match=line) as refused:
      call(**{'base_dir': 'call', 'iterations': 1, **given})
    assert not re.search('\n|--', str(refused.value))
  for _ in range(2):  # as a notebook's cell that runs again

    class Mine(dqn_agent.FixedReplayDQNAgent):
      def begin_iteration(self, *args):
        signal.raise_signal(signal.SIGINT)
        super().begin_iteration(*args)

    Mine.__qualname__ = 'Mine'
    monkeypatch.setattr(sys.modules[__name__], 'Mine', Mine, raising=False)
    with pytest.raises(KeyboardInterrupt, match='the same call continues'):
      call('mine', 1, Mine)
