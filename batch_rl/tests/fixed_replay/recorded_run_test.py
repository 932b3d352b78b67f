"""An agent that only acts, restored from a checkpoint."""

import shutil

import numpy as np
import pytest

from batch_rl.fixed_replay import recorded_run
from batch_rl.fixed_replay.agents import fixed_replay_agent
from batch_rl.runs import checkpoints
from batch_rl.tests import cartpole, user_code
from batch_rl.utils import programs


class Phased(cartpole.OFFLINE_CLASSES['dqn']):
  """Keeps state of its own, as Dopamine's agents do."""

  phase = 0

  def bundle_and_checkpoint(self, checkpoint_dir, iteration_number):
    bundle = super().bundle_and_checkpoint(checkpoint_dir, iteration_number)
    return {**bundle, 'phase': self.phase}

  def unbundle(self, checkpoint_dir, iteration_number, bundle):
    self.phase += bundle['phase']
    return self.phase == 3 and super().unbundle(
      checkpoint_dir, iteration_number, bundle
    )


def test_own_state_is_restored_without_data(make_agent, tmp_path):
  agent = make_agent(class_=Phased)
  agent.phase = 3
  saved = checkpoints.Checkpoints(str(tmp_path))
  saved.save(checkpoints.Position(1), agent.bundle_and_checkpoint, {}, {})
  with fixed_replay_agent.without_data():
    fresh = make_agent(class_=Phased)
  [checkpoint] = checkpoints.find(str(tmp_path))
  recorded_run.restore(fresh, checkpoint)
  assert fresh.phase == 3
  found, expected = (cartpole.weights(a, 'Online') for a in (fresh, agent))
  np.testing.assert_array_equal(found, expected)
  with pytest.raises(ValueError, match='Phased.unbundle refuses .*ckpt-0'):
    recorded_run.restore(fresh, checkpoint)
  shutil.rmtree(checkpoint.directory)
  with pytest.raises(programs.MistakeError, match='ckpt-0 was removed'):
    recorded_run.restore(fresh, checkpoint)


@pytest.mark.parametrize(
  ('agent', 'message'),
  [
    ('script.Mine', 'script.py has no line `if __name__'),
    ('__main__.Mine', 'Mine was defined in a notebook, or'),
  ],
)
def test_evaluating_runs_no_program(own_folder, agent, message, monkeypatch):
  """The agent's class is one of the program that trained it."""
  user_code.write(own_folder / 'script.py', 'raise AssertionError')
  monkeypatch.syspath_prepend(own_folder)
  with pytest.raises(ValueError, match=message):
    recorded_run._check_main({'agent': agent, 'code': {'__main__': ''}})
