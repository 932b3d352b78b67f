"""Parameters of `AnyAgent` become those of the run's agent."""

import gin
import pytest
from dopamine.tf.agents.dqn import dqn_agent

from batch_rl.fixed_replay import run_experiment
from batch_rl.fixed_replay.agents import fixed_replay_agent
from batch_rl.runs import gin_files
from batch_rl.runs.bindings import any_agent
from batch_rl.tests import gin_lines
from batch_rl.utils.user_code import gin_signatures

REGISTRY = run_experiment.REGISTRY  # its module makes all agents known to gin
Quantile = REGISTRY.find('quantile')


@gin.configurable
class OfAUser(Quantile):
  """A user's agent."""


def bind(*lines, agent=Quantile):
  any_agent.bind(gin_lines.load([], ['\n'.join(lines)]), REGISTRY, agent)


@pytest.mark.parametrize(
  ('lines', 'gamma'),
  [
    (['AnyAgent.gamma = 0.5'], 0.5),
    (['FixedReplayQuantileAgent.gamma = 0.4', 'AnyAgent.gamma = 0.5'], 0.5),
    (['AnyAgent.gamma = 0.5', 'FixedReplayQuantileAgent.gamma = 0.4'], 0.4),
    (['AnyAgent.gamma = 0.5', 'FixedReplayDQNAgent.gamma = 0.4'], 0.5),
  ],
)
@pytest.mark.parametrize('agent', [Quantile, OfAUser])
def test_the_last_binding_counts(lines, gamma, agent):
  bind(*lines, agent=agent)
  assert gin_signatures.configured_value(agent, 'gamma') == gamma
  text = gin_files.config_text()
  assert 'AnyAgent' not in text
  # A binding of a base class is replaced where it is.
  if 'FixedReplayQuantileAgent' in lines[0]:
    assert f'FixedReplayQuantileAgent.gamma = {gamma}' in text
    assert 'OfAUser' not in text


OURS = 'batch_rl/fixed_replay/configs/quantile.gin'
MINATAR = 'batch_rl/minatar/configs/offline.gin'
AGENT = 'FixedReplayQuantileAgent'
RATE = 'AdamOptimizer.learning_rate'


@pytest.mark.parametrize(
  ('files', 'bindings', 'replaced'),
  [
    # The agent's file after the environment's.
    ([MINATAR, OURS], [], {'AnyAgent.gamma', 'AnyAgent.update_period'}),
    # The environment's file after a user's.
    (['own.gin', MINATAR], [], {'AnyAgent.stack_size', f'{AGENT}.gamma', RATE}),
    ([OURS, MINATAR], ['AnyAgent.gamma = 0.5'], set()),
  ],
)
def test_files_in_a_wrong_order(own_folder, caplog, files, bindings, replaced):
  (own_folder / 'own.gin').write_text(
    f"include '{OURS}'\n{AGENT}.gamma = 0.5\n"
    f'AnyAgent.stack_size = 3\n{AGENT}.kappa = 2.0\n{RATE} = 1e-4'
  )
  any_agent.bind(gin_lines.load(files, bindings), REGISTRY, Quantile)
  lines = [r.getMessage() for r in caplog.records if 'later' in r.getMessage()]
  named = {line.split(' of ')[0] for line in lines}
  assert named >= replaced and bool(named) == bool(replaced)


@gin.configurable
class Closed(Quantile):
  """A user's agent that does not pass on all parameters."""

  def __init__(self, sess, num_actions, kappa=1.0):
    super().__init__(sess, num_actions, None, kappa=kappa)


@gin.configurable
class Ported(fixed_replay_agent.FixedReplayAgentMixin, dqn_agent.DQNAgent):
  def __init__(self, sess, num_actions):
    super().__init__(sess, num_actions, None)


def test_the_first_class_with_the_parameter_gets_it():
  bind('AnyAgent.gamma = 0.5', 'AnyAgent.kappa = 2.0', agent=Closed)
  text = gin_files.config_text()
  assert 'FixedReplayQuantileAgent.gamma = 0.5' in text
  assert 'Closed.kappa = 2.0' in text
  gin.clear_config()
  # gin has no name for the class with this parameter.
  bind('AnyAgent.updates_per_run = 7', agent=Ported)
  assert 'updates_per_run' not in gin_files.config_text()


def test_parameters_of_other_agents_are_left_out_and_of_none_refused(caplog):
  bind('AnyAgent.num_heads = 3')
  assert 'num_heads' not in gin_files.config_text()
  assert 'AnyAgent.num_heads has no effect' in caplog.text
  gin.clear_config()
  with pytest.raises(ValueError, match='AnyAgent.gama.*mean gamma'):
    bind('AnyAgent.gama = 0.5')
  gin.clear_config()
  with pytest.raises(ValueError, match='AnyAgent.gamma=2'):
    bind('AnyAgent.gamma = 2')
