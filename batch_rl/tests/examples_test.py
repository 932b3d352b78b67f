"""The examples, copied out of the repository: they run as they are.

`fixed_replay/jax_agent_test` tests that of Dopamine's JAX agents,
`decision_transformer_test` that of the Decision Transformer.
"""

import pathlib
import re
import runpy
import shutil

import numpy as np
import pytest

from batch_rl import dataset
from batch_rl.dataset import run_directories
from batch_rl.dataset.checks import run_checks, run_statistics
from batch_rl.fixed_replay import train
from batch_rl.report import run_results
from batch_rl.tests import cartpole, learning_test, programs, shards, user_code

EXAMPLES = pathlib.Path(__file__).parents[2] / 'examples'
SHORT = programs.of_runner(
  num_iterations=1, training_steps=80, evaluation_steps=40
)


def train_example(name, replay_dir, *bindings):
  """Trains a copy of an example by the program; returns the results."""
  shutil.copytree(EXAMPLES / name, name)
  given = dict(base_dir=f'run_{name}', replay_dir=replay_dir, seed=1)
  given |= dict(gin_files=[f'{name}/{name}.gin'])
  programs.run_here(train, gin_bindings=[*SHORT, *bindings], **given)
  return run_results.read_run(f'run_{name}')


@pytest.mark.usefixtures('own_folder')
def test_cal_ql_trains_and_is_reported():
  cartpole.write_log('data/CartPole/1/replay_logs')
  everywhere = learning_test.EVERYWHERE
  run = train_example(
    'cal_ql',
    'data/CartPole/1',
    everywhere.format(runner='FixedReplayRunner', agent='CalQLAgent'),
    'CalQLAgent.network = @CartpoleDQNNetwork',
    "FixedReplayBuffer.subset = 'shards(0, 2)'",
  )
  assert run.agent == 'Cal-QL' and run.done == 1


def test_dqn_trains_in_pytorch(tmp_path, capsys):
  pytest.importorskip('torch', reason='PyTorch is not installed')
  shards.write_images(tmp_path)
  example = runpy.run_path(EXAMPLES / 'pytorch_dqn/pytorch_dqn.py')
  example['main'](str(tmp_path), 2)
  update, loss = capsys.readouterr().out.split()
  assert update == '0' and float(loss) > 0
  network = example['NatureNetwork'](6)
  assert sum(p.numel() for p in network.parameters()) == 1_687_206


def test_transitions_are_read_as_tensordicts(tmp_path):
  pytest.importorskip('tensordict', reason='tensordict is not installed')
  shards.write_images(tmp_path)
  example = runpy.run_path(EXAMPLES / 'tensordict_reader/tensordict_reader.py')
  sampler = dataset.open(tmp_path).transitions(seed=1)
  batch, expected = next(example['transitions'](sampler)), sampler.batch(0, 32)
  ended = expected.terminal.astype(bool)[:, None]
  after = batch['next']
  np.testing.assert_array_equal(batch['observation'], expected.state)
  np.testing.assert_array_equal(after['observation'], expected.next_state)
  np.testing.assert_array_equal(after['done'], ended)


@pytest.mark.usefixtures('own_folder')
def test_an_environment_is_logged_and_trained_on():
  script = EXAMPLES / 'own_environment/own_environment.py'
  user_code.run_script(str(script), 'data/GridWorld/1/replay_logs')
  run = run_directories.as_run('data/GridWorld/1')
  assert not run_checks.verify(run.data_dir).problems
  statistics = run_statistics.RunStatistics(run)
  assert statistics.game == 'GridWorld'
  assert statistics.totals()['episodes'] == 300
  # Each step costs 0.1; the opposite corner is 8 steps away.
  expected = -0.1 * statistics.lengths
  np.testing.assert_allclose(statistics.returns, expected, rtol=1e-5)
  assert statistics.lengths.min() >= 8 and len(statistics.actions) == 4
  # With any seed, 1,000 updates suffice for the shortest way.
  longer = 'FixedReplayRunner.training_steps = 4000'
  trained = train_example('own_environment', 'data/GridWorld/1', longer)
  assert trained.game == 'GridWorld'
  assert '?' not in trained.protocol.values()  # There is no ROM.
  assert trained.returns.tolist() == pytest.approx([-0.8])


@pytest.mark.waits
@pytest.mark.parametrize('name', ['quickstart', 'own_algorithm'])
def test_a_notebook_runs_and_shows_results_only(name, tmp_path, monkeypatch):
  nbclient, nbformat, _ = (
    pytest.importorskip(package, reason=f'{package} is not installed')
    for package in ('nbclient', 'nbformat', 'ipykernel')
  )
  text = (EXAMPLES / f'{name}.ipynb').read_text()
  assert len(text) < 300_000 and not re.search('/(home|root|tmp|Users)/', text)
  data = tmp_path / 'MinAtar-Breakout/1'
  (data / 'replay_logs').mkdir(parents=True)
  for path in EXAMPLES.glob('../data/MinAtar-Breakout/1/replay_logs/*.2.gz'):
    first = path.name.replace('.2.gz', '.0.gz')
    shutil.copy(path, data / 'replay_logs' / first)
  notebook = nbformat.reads(text, 4)
  (given,) = (c for c in notebook.cells if 'tags' in c.metadata)
  given.source += f"""
data, iterations, updates, steps = {str(data)!r}, 1, 120, 100
base_dir = folder = {str(tmp_path / 'run')!r}"""
  monkeypatch.setenv('PYTHONPATH', str(EXAMPLES.parent))
  # Requests silences it, unless another thread restores the filters meanwhile.
  monkeypatch.setenv('PYTHONWARNINGS', 'ignore:SOCKS support in urllib3')
  nbclient.NotebookClient(
    notebook, timeout=300, resources={'metadata': {'path': str(EXAMPLES)}}
  ).execute()
  outputs = [out for cell in notebook.cells for out in cell.get('outputs', ())]
  assert not [out for out in outputs if out.get('name') == 'stderr']
  shown = {kind for out in outputs for kind in out.get('data', ())}
  assert shown >= {'image/png', 'text/html'}
  printed = ''.join(out.get('text', '') for out in outputs)
  assert 'iteration 0 of 1, eval:' in printed and 'return=' in printed
  assert 'image/gif' in shown or 'train: 100%' in printed
