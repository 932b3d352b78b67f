"""The equations alone, and each agent against its own."""

import functools

import numpy as np
import pytest

from batch_rl.tests import (
  correctness,
  equations,
  offline_correctness,
  offline_equations,
)

CASES = correctness.CASES
# Cases with one and with three steps are tested with three, the general case.
TESTED = [
  name
  for name in CASES
  if not (name.endswith('n = 1') and name.replace('n = 1', 'n = 3') in CASES)
  # AVERAGE is code of the base, and no config has it with separate networks.
  and not name.startswith('Averaged Ensemble-DQN, networks')
]
TOLERANCE = 1e-5


def test_losses_by_hand():
  # Errors 2 - 0.5 = 1.5 and, without bootstrap, 0.5 - 0.7 = -0.2.
  transitions = equations.Transitions(
    np.array([1, 0]), np.array([1.0, 0.5]), np.array([0, 1]), 0.5
  )
  q = np.array([[9.0, 0.5], [0.7, 9.0]])
  target_q = np.array([[2.0, 1.0], [7.0, 7.0]])
  loss = equations.dqn(q, target_q, transitions)
  assert loss.value == pytest.approx((1.0 + 0.02) / 2)
  # tau = 1/4 and 3/4, u = 2 and -1, so the weights are 1/4 and |3/4 - 1|.
  loss = equations.quantile_regression(np.array([0.0, 3.0]), [2.0])
  assert loss.value == pytest.approx(0.25 * 1.5 + 0.25 * 0.5)
  # Clipped at the ends, shared in the middle, on an atom.
  projected = equations.project(
    [-9, 0.25, 1, 9], [0.1, 0.2, 0.3, 0.4], np.array([-1.0, 0.0, 1.0])
  )
  np.testing.assert_allclose(projected, [0.1, 0.15, 0.05 + 0.3 + 0.4])


# Built once, for several tests.
run_agent = functools.cache(correctness.run_agent)


@pytest.mark.parametrize('name', TESTED)
def test_agents_do_what_the_equations_say(name):
  case = CASES[name]
  expected = correctness.transcribe(case)
  # With smaller inputs, float32 might see the other slope of a ReLU.
  assert min(expected.margins) > 1e-7
  errors = correctness.compare(case, run_agent(case), expected)
  assert max(errors.values()) <= TOLERANCE, errors


NO_TERMINALS = [
  batch._replace(terminals=np.zeros(correctness.BATCH_SIZE))
  for batch in correctness.BATCHES
]


@pytest.mark.parametrize(
  ('name', 'mistake'),
  [
    ('DQN (Nature), n = 3', {'batches': NO_TERMINALS}),
    ('QR-DQN, n = 3', {'discount': correctness.GAMMA}),
    ('REM, n = 3', {'mixtures': None}),
    ('Ensemble-DQN, n = 3', {'equation': equations.averaged_ensemble_dqn}),
    ('QR-DQN, n = 3', {'terms': {'kappa': 0.9}}),
    ('C51, n = 3', {'terms': {'support': np.linspace(-9.9, 9.9, 51)}}),
    ('DQN (Nature), n = 3', {'learning_rate': 2.51e-4}),
    ('DQN (Nature), n = 3', {'decay': 0.94}),
    ('DQN (Nature), later, n = 1', {'epsilon': 1.1e-5}),
    ('DQN (Adam), n = 1', {'epsilon': 3.14e-4}),
    ('DQN (Adam), n = 1', {'beta2': 0.998}),
  ],
)
def test_a_mistake_is_detected(name, mistake):
  case = CASES[name]
  (key,) = mistake
  if key == 'mixtures':
    own = correctness.draw_mixtures(case)  # Each step gets those of the other.
    mistake = {key: dict(zip(own, reversed(own.values()), strict=True))}
  elif hasattr(case.optimizer(), key):
    mistake = {'optimizer': functools.partial(case.optimizer, **mistake)}
  errors = correctness.compare(
    case, run_agent(case), correctness.transcribe(case, **mistake)
  )
  assert errors['step 2'] > 100 * TOLERANCE
  if 'optimizer' not in mistake:
    # The loss is one number, where mistakes may cancel.
    assert errors['loss'] > 10 * TOLERANCE
    assert errors['gradient'] > 100 * TOLERANCE


# Sampling is the same for all agents.
@pytest.mark.parametrize('name', ['C51, n = 3', 'REM, n = 3'])
def test_agents_learn_from_a_log_what_the_equations_say(tmp_path, name):
  correctness.write_log(tmp_path)
  errors = correctness.compare_on_log(CASES[name], tmp_path)
  assert max(errors.values()) <= TOLERANCE, errors


@pytest.mark.parametrize('name', offline_equations.LOSSES)
@pytest.mark.usefixtures('own_folder')
def test_later_agents_do_what_the_equations_say(name):
  errors = offline_correctness.compare(name)
  assert len(errors) == 6 and max(errors.values()) < 1e-5, errors


@pytest.mark.parametrize(
  ('name', 'other'),
  [
    ('dr3', 'dqn_adam'),
    ('cql_dr3', 'cql'),
    ('munchausen_iqn', 'iqn'),
    ('two_hot', 'hl_gauss'),
    ('iql', 'weighted_bc'),
    ('bcq', 'double'),
    ('sarsa', 'monte_carlo'),
  ],
)
def test_another_equation_is_noticed(monkeypatch, name, other):
  losses = {**offline_equations.LOSSES, 'dqn_adam': offline_equations.dqn}
  monkeypatch.setitem(offline_equations.LOSSES, name, losses[other])
  errors = offline_correctness.compare(name)
  assert errors['loss'] > 1e-4 and errors['gradient'] > 1e-3
