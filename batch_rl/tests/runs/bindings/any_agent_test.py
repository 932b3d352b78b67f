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
