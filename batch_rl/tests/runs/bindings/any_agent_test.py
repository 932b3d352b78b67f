"""Parameters of `AnyAgent` become those of the run's agent."""

import gin
import pytest

from batch_rl.fixed_replay import run_experiment
from batch_rl.runs import command_line, gin_files
from batch_rl.runs.bindings import any_agent
from batch_rl.utils.user_code import gin_signatures

REGISTRY = run_experiment.REGISTRY  # its module makes all agents known to gin
Quantile = REGISTRY.find('quantile')


@gin.configurable
class OfAUser(Quantile):
  """A user's agent."""


def bind(*lines, agent=Quantile):
  statements = command_line.load_gin([], ['\n'.join(lines)])
  any_agent.bind(statements, REGISTRY, agent)


def value(parameter, agent=Quantile):
  return gin_signatures.configured_value(agent, parameter)


@pytest.mark.parametrize(
  ('lines', 'gamma'),
  [
    (['AnyAgent.gamma = 0.5'], 0.5),
    (['FixedReplayQuantileAgent.gamma = 0.4', 'AnyAgent.gamma = 0.5'], 0.5),
    (['AnyAgent.gamma = 0.5', 'FixedReplayQuantileAgent.gamma = 0.4'], 0.4),
    (['AnyAgent.gamma = 0.5', 'FixedReplayDQNAgent.gamma = 0.4'], 0.5),
    (['AnyAgent.gamma = %half', 'half = 0.5'], 0.5),
  ],
)
@pytest.mark.parametrize('agent', [Quantile, OfAUser])
def test_the_last_binding_counts(lines, gamma, agent):
  bind(*lines, agent=agent)
  found = value('gamma', agent)
  assert getattr(found, 'configurable', None) or found == gamma
  assert 'AnyAgent' not in gin_files.config_text()


def test_a_binding_of_a_base_class_is_replaced():
  bind(
    'FixedReplayQuantileAgent.gamma = 0.4',
    'AnyAgent.gamma = 0.5',
    agent=OfAUser,
  )
  text = gin_files.config_text()
  assert 'FixedReplayQuantileAgent.gamma = 0.5' in text
  assert '0.4' not in text and 'OfAUser.gamma' not in text


@pytest.mark.parametrize('first', ['environment', 'agent'])
def test_a_line_tells_if_the_agents_file_comes_too_late(
  tmp_path, caplog, first
):
  texts = {
    'environment': 'AnyAgent.gamma = 0.5\nAnyAgent.vmax = 3.0',
    'agent': 'FixedReplayQuantileAgent.gamma = 0.4',
  }
  for name, text in texts.items():
    (tmp_path / f'{name}.gin').write_text(text)
  files = sorted(tmp_path.iterdir(), key=lambda path: path.stem != first)
  statements = command_line.load_gin(
    list(map(str, files)), ['FixedReplayQuantileAgent.update_horizon = 2']
  )
  any_agent.bind(statements, REGISTRY, Quantile)
  expected = f'{tmp_path}/agent.gin is read later and replaces AnyAgent.gamma.'
  assert (expected in caplog.text) == (first == 'environment')
  assert ('read later' in caplog.text) == (first == 'environment')


OURS = 'batch_rl/fixed_replay/configs/quantile.gin'
MINATAR = 'batch_rl/minatar/configs/offline.gin'


def test_a_line_tells_all_that_a_late_file_of_an_agent_replaces(caplog):
  statements = command_line.load_gin([MINATAR, OURS], [])
  any_agent.bind(statements, REGISTRY, Quantile)
  lines = [r.getMessage() for r in caplog.records if 'later' in r.getMessage()]
  text = '; '.join(lines)
  for name in (
    'AnyAgent.gamma',
    'AdamOptimizer.learning_rate',
    'AdamOptimizer.epsilon',
    'FixedReplayRunner.num_iterations',
    'FixedReplayRunner.training_steps',
  ):
    assert name in text
  # The agent's file replaces what it includes, too.
  assert 'evaluation_environments' not in text


def test_a_line_tells_that_minatars_file_replaces_a_users_binding(
  tmp_path, caplog
):
  own = tmp_path / 'own.gin'
  own.write_text(
    f"include '{OURS}'\nFixedReplayQuantileAgent.gamma = 0.5\n"
    'AnyAgent.stack_size = 3\nFixedReplayQuantileAgent.kappa = 2.0'
  )
  statements = command_line.load_gin([str(own), MINATAR], [])
  any_agent.bind(statements, REGISTRY, Quantile)
  lines = [r.getMessage() for r in caplog.records if 'later' in r.getMessage()]
  assert len(lines) == 2
  for line, name in zip(
    sorted(lines),
    ['AnyAgent.stack_size', 'FixedReplayQuantileAgent.gamma'],
    strict=True,
  ):
    assert f'base.gin is read later and replaces {name} of {own}.' in line
  assert value('gamma') == 0.99

  gin.clear_config()
  caplog.clear()
  bindings = ['AnyAgent.gamma = 0.5', 'AnyAgent.stack_size = 3']
  statements = command_line.load_gin([OURS, MINATAR], bindings)
  any_agent.bind(statements, REGISTRY, Quantile)
  assert 'later' not in caplog.text and value('gamma') == 0.5


def test_parameters_of_other_agents_are_left_out():
  bind('AnyAgent.num_heads = 3')
  assert 'num_heads' not in gin_files.config_text()


@pytest.mark.parametrize(
  ('line', 'message'),
  [
    ('AnyAgent.gama = 0.5', r'AnyAgent.gama: no offline agent .*mean gamma'),
    ('AnyAgent.gamma = 2', 'AnyAgent.gamma=2 is not allowed'),
  ],
)
def test_mistakes_are_one_line(line, message):
  with pytest.raises(ValueError, match=message) as error:
    bind(line)
  assert '\n' not in str(error.value)
