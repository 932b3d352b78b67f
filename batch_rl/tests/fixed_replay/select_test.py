"""Trained policies are ranked from logged data, by the command line."""

import json
import re
import shutil
import threading
import types

import gin
import numpy as np
import pandas as pd
import pytest
import tensorflow as tf

import batch_rl
from batch_rl.dataset.shards import replay_log
from batch_rl.fixed_replay import fitted_q, recorded_run, select, train
from batch_rl.fixed_replay.agents import dqn_agent
from batch_rl.runs import run_record
from batch_rl.tests import chain, programs, shards

# Settings of the runs, by name.
RUNS = {
  'best': [],
  # Too small a learning rate to change the random weights.
  'middle': ['tf.train.AdamOptimizer.learning_rate = 1e-30'],
  'worst': ['FixedReplayDQNAgent.gamma = 0.3'],
}
GAMMAS = {'best': chain.GAMMA, 'middle': chain.GAMMA, 'worst': 0.3}
# Fits the values of any policy of the chain to a hundredth.
FAST = [
  *programs.of_runner(num_iterations=2, training_steps=300),
  'AnyAgent.target_update_period = 20',
  'tf.train.AdamOptimizer.learning_rate = 0.03',
]


@pytest.fixture(scope='module')
def folder(tmp_path_factory):
  folder = tmp_path_factory.mktemp('chain')
  chain.write_log(folder / 'data/Chain/1/replay_logs')
  given = dict(replay_dir=str(folder / 'data/Chain/1'), seed=5)
  given |= dict(gin_files=['batch_rl/tests/sweep/configs/cartpole.gin'])
  for name, own in RUNS.items():
    given |= dict(gin_bindings=[*chain.SETTINGS, *own])
    programs.run_here(train, base_dir=str(folder / name), **given)
  return folder


def select_here(folder, runs, **given):
  """Runs `select` in this process; `train` has flags of the same names."""
  options = dict(method=['fqe'], out=str(folder / 'out'), checkpoints='last')
  options |= dict(replay_dir=None, seed=0, module_dirs=[], gin_files=[])
  options |= {'gin_bindings': FAST, **given}
  tf.compat.v1.reset_default_graph()
  gin.clear_config()
  run_record._locks.clear()
  given = types.SimpleNamespace(**options)
  select.main([str(folder / run) for run in runs], given)


def q_table(base_dir):
  """Returns the Q-values of a run, (4 states, 2 actions)."""
  [checkpoint] = recorded_run.list_checkpoints(str(base_dir)).values()
  reader = tf.train.load_checkpoint(checkpoint.weights)
  names = [*reader.get_variable_to_shape_map()]
  [name] = [n for n in names if re.fullmatch('Online/.*/kernel', n)]
  return reader.get_tensor(name)


def td_error(q_values, gamma, columns):
  states = columns['observation'][:, :, 0].argmax(1)
  following = q_values[(states + 1) % chain.STATES].max(1)
  targets = columns['reward'] + gamma * (1 - columns['terminal']) * following
  return np.mean((targets - q_values[states, columns['action']]) ** 2)


def test_policies_are_ranked_by_the_command(folder, tmp_path, capsys, refusal):
  names = ['worst', 'best', 'middle']
  bound = [*FAST, f'AnyAgent.gamma = {chain.GAMMA}']
  given = dict(method='fqe,td_error,q_value', gin_bindings=bound)
  line = programs.command('fixed_replay.select', out=tmp_path / 'out', **given)
  done = programs.run([*line, *names], cwd=folder)
  assert done.returncode == 0, done.stderr
  rows = pd.read_csv(tmp_path / 'out/scores.csv').set_index('run')
  assert list(rows.index) == list(RUNS) and list(rows['rank']) == [1, 2, 3]
  columns = shards.read_columns(folder / 'data/Chain/1/replay_logs')
  for name, row in rows.iterrows():
    table = q_table(folder / name)
    assert row.fqe == pytest.approx(chain.value(table.argmax(1)), abs=0.02)
    assert row.q_value == pytest.approx(table[0].max(), rel=1e-4)
    expected = td_error(table, GAMMAS[name], columns)
    assert row.td_error == pytest.approx(expected, rel=1e-3)
  assert list(rows.true_return) == [1.0, 0.5, 0.25]
  assert 'fqe: rank correlation (Spearman) 1.00, regret@1 0.00' in done.stdout
  assert '|      1 | best ' in done.stdout

  # A policy has the same score alone. A finished run is not repeated.
  runs = set((tmp_path / 'out/fqe').iterdir())
  before = {*threading.enumerate()}
  for out in (tmp_path / 'other', tmp_path / 'out'):
    capsys.readouterr()
    select_here(folder, ['best'], out=str(out))
    assert pd.read_csv(out / 'scores.csv').fqe.tolist() == [rows.fqe['best']]
    assert 'correlation' not in capsys.readouterr().out
  assert set((tmp_path / 'out/fqe').iterdir()) == runs
  left = [t for t in {*threading.enumerate()} - before if 'batches' in t.name]
  assert not any(thread.join(9) or thread.is_alive() for thread in left)
  for run in runs:  # none of these was evaluated
    assert '"evaluation": null' in (run / 'progress.json').read_text()
  with pytest.raises(ValueError, match='evaluate the run of its policy'):
    batch_rl.TrainedRun(str(runs.pop())).evaluate(9)
  once = {'gin_bindings': [*FAST, 'FixedReplayRunner.num_iterations = 1']}
  given = {'out': str(tmp_path / 'out'), **once}
  line = refusal(select_here, folder, ['best'], **given)
  assert 'has 2 iterations, more than num_iterations = 1' in line


def test_fqe_learns_the_mean_of_random_returns(folder, tmp_path):
  # One state; each step pays 1, and ends the episode with probability 0.1.
  logs = tmp_path / 'data/Chain/1/replay_logs'
  shape = chain.STATES, 1
  with replay_log.ReplayLog(logs, shape, np.float64, 10_000, 1) as log:
    for length in np.random.default_rng(0).geometric(0.1, size=300):
      for left in reversed(range(length)):
        log.add(chain.one_hot(0), 1, 1.0, left == 0)
  data = {'replay_dir': str(logs.parent), 'out': str(tmp_path / 'out')}
  select_here(folder, ['best'], **data)
  [value] = pd.read_csv(tmp_path / 'out/scores.csv').fqe
  assert value == pytest.approx(1 / (1 - chain.GAMMA * 0.9), abs=1)


def test_methods_are_judged_by_the_policies_that_they_score():
  rows = pd.DataFrame({'q_value': [np.nan, 3, 2, 1]})
  rows = rows.assign(fqe=rows.q_value, true_return=[10, 8, 6, 4])
  *_, own, fitted = select.verdicts(rows, ['q_value', 'fqe'])
  assert '(Spearman) 1.00, regret@1 0.00 (of 3 with a score)' in own
  assert '(Spearman) -0.20' in fitted and 'of 3' not in fitted


class OwnDefaults(dqn_agent.FixedReplayDQNAgent):
  def __init__(self, *args, gamma=0.5, network=chain.TableNetwork, **kwargs):
    super().__init__(*args, gamma=gamma, network=network, **kwargs)


def test_an_evaluation_has_the_defaults_of_a_users_agent():
  record = {'agent': f'{__name__}.OwnDefaults', 'gin_config': ''}
  network = f'AnyAgent.network = @{chain.__name__}.TableNetwork'
  assert fitted_q._recorded_lines(record) == [network, 'AnyAgent.gamma = 0.5']


def test_mistakes_are_one_line(folder, tmp_path, monkeypatch, refusal):
  def refused(runs, **options):
    options = {'out': str(tmp_path / 'out'), **options}
    return refusal(select_here, folder, runs, **options)

  subset = "FixedReplayBuffer.subset = 'last_transitions(1)'"
  other = shutil.copytree(folder / 'best', folder / 'other')
  record = json.loads((other / 'run.json').read_text())
  record['data']['subset_hash'] = 'f' * 16
  (other / 'run.json').write_text(json.dumps(record))
  moved = shutil.copytree(folder / 'best', folder / 'moved') / 'run.json'
  moved.write_text(json.dumps({**record, 'replay_dir': '/gone'}))
  pong = shutil.copytree(folder / 'data/Chain', folder / 'data/Pong') / '1'
  wide = 'AnyAgent.network = @atari_helpers.MultiHeadQNetwork'
  older = shutil.copytree(folder / 'best', folder / 'older') / 'run.json'
  older.write_text(json.dumps({**record, 'environment': None}))
  for runs, options, message in (
    ([], {}, 'no run'),
    (['older'], {}, 'has no number of actions'),
    (['best'], {'out': None}, 'missing --out'),
    (['best'], {'out': 'gs://b'}, 'gs://b is remote'),
    (['best'], {'method': ['fqr']}, 'did you mean fqe?'),
    (['best'], {'method': []}, 'choose fqe, q_value, td_error'),
    (['data'], {}, 'has no run.json'),
    (['best'], {'checkpoints': '5'}, 'only of 0'),
    (['best', 'other'], {}, 'ffff): choose runs on the same data'),
    (['moved'], {}, 'no longer in /gone: give --replay_dir'),
    (['best'], {'replay_dir': str(tmp_path / 'no')}, 'no'),
    (['best'], {'replay_dir': str(pong)}, "but the game is 'Pong'"),
    (['best'], {'gin_bindings': [wide]}, 'several outputs per action'),
    (['best'], {'gin_bindings': ['AnyAgent.gama = 1']}, 'gama'),
    (['best'], {'gin_bindings': [subset]}, 'no initial state'),
  ):
    assert message in refused(runs, **options)
  # Named data are used whole, whatever part of its own a run trained on.
  record['gin_config'] += f'\nWrapped{subset}\n' + (
    'FixedReplayBuffer.replay_file_start_index = 1\n'
    'FixedReplayBuffer.num_buffers = 1\nFixedReplayDQNAgent.replay_suffix = 7'
  )
  (other / 'run.json').write_text(json.dumps(record))
  named = {'replay_dir': str(folder / 'data/Chain/1'), 'method': ['td_error']}
  named |= {'gin_bindings': [wide]}  # only `fqe` makes a network of it
  options = {'out': str(tmp_path / 'out'), **named}
  select_here(folder, ['other', 'best'], **options)
  scores = pd.read_csv(tmp_path / 'out/scores.csv').td_error
  assert scores[0] == scores[1]
  assert 'num_buffers' not in gin.config_str()
  shape = property(lambda policy: (len(policy.base_dir), 1), lambda *_: None)
  policy = fitted_q.frozen_policy.FrozenPolicy
  monkeypatch.setattr(policy, 'state_shape', shape, raising=False)
  line = refused(['best', 'middle'], **named)
  assert 'middle has states of shape' in line and 'rank them apart' in line
