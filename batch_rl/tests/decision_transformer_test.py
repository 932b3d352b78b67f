"""The example of the Decision Transformer: what it learns, sees and is given."""

import pathlib
import runpy
from unittest import mock

import numpy as np
import pytest

from batch_rl import dataset
from batch_rl.minatar import MinAtarEnvironment
from batch_rl.tests import user_code

torch = pytest.importorskip('torch', reason='PyTorch is not installed')

ROOT = pathlib.Path(__file__).parents[2]
SCRIPT = ROOT / 'examples/decision_transformer/decision_transformer.py'
EXAMPLE = runpy.run_path(str(SCRIPT))
GAME = 'MinAtar-Breakout'


@pytest.fixture(autouse=True)
def _one_thread():
  """Threads would only wait for each other."""
  before = torch.get_num_threads()
  torch.set_num_threads(1)
  yield
  torch.set_num_threads(before)


def open_log(directory):
  metadata = {'environment': {'game': GAME, 'num_actions': 6}}
  arguments = directory / 'replay_logs', (10, 10, 4), np.uint8
  return dataset.ReplayLog(*arguments, stack_size=1, metadata=metadata)


def test_a_run_is_learnt_from_and_played(tmp_path, capsys):
  # Nothing but the return to go tells the action.
  actions = np.random.default_rng(0).integers(6, size=200)
  with open_log(tmp_path) as log:
    for action in actions.tolist():
      log.add(np.zeros((10, 10, 4), np.uint8), action, action / 5, True)
  options = '--width=16 --heads=2 --layers=2 --updates=20 --batch_size=32'
  options += ' --learning_rate=0.02 --warm_up=1 --context=3 --episodes=2'
  options += ' --targets 0 1'
  user_code.run_script(str(SCRIPT), str(tmp_path), *options.split())
  loss, log, *targets = capsys.readouterr().out.splitlines()
  assert float(loss.split()[4]) < np.log(6) - 0.2  # the mean of all updates
  assert log == f'log: mean return {actions.mean() / 5:.2f}, best 1'
  assert [line.split(':')[0] for line in targets] == ['target 0', 'target 1']


@torch.no_grad()
def test_an_action_depends_on_the_past_alone():
  torch.manual_seed(0)
  model = EXAMPLE['DecisionTransformer'](4, 6, 50, 1.0, 16, 2, 2).eval()
  n, length, step = 3, 5, 2
  made = [
    torch.rand(n, length),
    torch.randint(2, (n, length, 10, 10, 4), dtype=torch.uint8),
    torch.randint(6, (n, length)),
    torch.arange(length).repeat(n, 1),
    torch.ones(n, length, dtype=torch.bool),
  ]
  logits = model(*made)
  # Return to go, state, action and timestep; the last step of each that is seen.
  for number, (most, seen) in enumerate(((1, 2), (1, 2), (5, 1), (49, 2))):
    for other in range(length):
      columns = [column.clone() for column in made]
      columns[number][:, other] = most - columns[number][:, other]
      change = (model(*columns) - logits)[:, step].abs().amax()
      assert (change > 1e-4) == (other <= seen)
  # Padding at the start of one sequence, whatever it holds.
  padded = [torch.cat((column[:, 2:], column), 1) for column in made]
  padded[-1][1, :3] = False
  torch.testing.assert_close(model(*padded)[1, 3:], logits[1])


def test_play_is_given_what_training_is_given(tmp_path):
  given, target, context = [], 5.0, 4

  def model(*columns):
    given.append([column.clone() for column in columns])
    return torch.zeros(1, context, 6)

  with open_log(tmp_path) as log:

    class Logged(MinAtarEnvironment):
      def step(self, action):
        before = self._observe()
        result = super().step(action)
        log.add(before, action, *result[1:3])
        return result

    model = mock.Mock(side_effect=model)
    [returned] = EXAMPLE['play'](model, [Logged(GAME)], target, context, seed=1)
  sampler = dataset.open(tmp_path).sequences(context, stack_size=1)
  batch = sampler.gather(sampler.steps())
  columns = map(torch.cat, zip(*given, strict=True))
  to_go, state, action, timestep, mask = (c.numpy() for c in columns)
  assert returned == batch.return_to_go.max() > 0
  np.testing.assert_array_equal(mask, batch.mask)
  np.testing.assert_array_equal(state, batch.state[:, :, 0])
  np.testing.assert_array_equal(timestep, batch.timestep)
  np.testing.assert_array_equal(action[:, :-1], batch.action[:, :-1])
  offset = (target - returned) * mask
  np.testing.assert_array_equal(to_go, batch.return_to_go + offset)
