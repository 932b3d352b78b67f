"""The equations alone, and each agent against its own."""

import functools
import types

import numpy as np
import pytest

from batch_rl.tests import correctness, equations, offline_equations

CASES = correctness.CASES
# Cases with one and with three steps are tested with three, the general case.
TESTED = [
  name
  for name in CASES
  if not (name.endswith('n = 1') and name.replace('n = 1', 'n = 3') in CASES)
  # AVERAGE is code of the base, and no config has it with separate networks.
  and not name.startswith('Averaged Ensemble-DQN, networks')
]
REM = CASES['REM, n = 3']
MEASURES = {'loss', 'gradient', 'weights 1', 'step 1', 'weights 2', 'step 2'}
TOLERANCE = 1e-5


def test_losses_by_hand():
  # Errors 2 - 0.5 = 1.5 and, without bootstrap, 0.5 - 0.7 = -0.2.
  outputs = {
    'online': np.array([[9.0, 0.5], [0.7, 9.0]]),
    'target': np.array([[2.0, 1.0], [7.0, 7.0]]),
  }
  networks = types.SimpleNamespace(q=lambda name, *_: outputs[name])
  batch = equations.Minibatch(None, None, [1, 0], [1.0, 0.5], [0, 1], 0.5)
  assert equations.dqn(networks, batch, 2) == pytest.approx((1.0 + 0.02) / 2)
  # tau = 1/4 and 3/4, u = 2 and -1, so the weights are 1/4 and |3/4 - 1|.
  loss = equations.quantile_regression(np.array([0.0, 3.0]), [2.0])
  assert loss == pytest.approx(0.25 * 1.5 + 0.25 * 0.5)
  # Clipped at the ends, shared in the middle, on an atom.
  values, shares = [-9, 0.25, 1, 9], [0.1, 0.2, 0.3, 0.4]
  projected = equations.project(values, shares, np.array([-1.0, 0.0, 1.0]))
  np.testing.assert_allclose(projected, [0.1, 0.15, 0.05 + 0.3 + 0.4])


@pytest.mark.parametrize('name', TESTED)
@pytest.mark.usefixtures('own_folder')
def test_agents_do_what_the_equations_say(name):
  errors = correctness.find_errors(CASES[name])
  assert errors.keys() == MEASURES
  assert all(error <= TOLERANCE for error in errors.values()), errors


NO_TERMINALS = [
  {**batch, 'terminals': np.zeros(correctness.BATCH_SIZE)}
  for batch in correctness.BATCHES
]


@pytest.mark.parametrize(
  ('name', 'mistake'),
  [
    ('DQN (Nature), n = 3', {'batches': NO_TERMINALS}),
    ('QR-DQN, n = 3', {'horizon': 1}),
    # Each step, 0 or 4, gets the mixtures of the other.
    ('REM, n = 3', {'draw': lambda step: REM.draw(4 - step)}),
    ('Ensemble-DQN, n = 3', {'loss': equations.averaged_ensemble_dqn}),
    ('QR-DQN, n = 3', {'loss': correctness.qr_dqn(0.9)}),
    ('C51, n = 3', {'loss': correctness.c51(9.9)}),
    ('DQN (Nature), n = 3', {'learning_rate': 2.51e-4}),
    ('DQN (Nature), n = 3', {'decay': 0.94}),
    ('DQN (Nature), later, n = 1', {'epsilon': 1.1e-5}),
    ('DQN (Adam), n = 1', {'epsilon': 3.14e-4}),
    ('DQN (Adam), n = 1', {'beta2': 0.998}),
    ('dr3', {'loss': equations.dqn}),
    ('cql_dr3', {'loss': offline_equations.cql}),
    ('munchausen_iqn', {'loss': offline_equations.iqn}),
    ('two_hot', {'loss': offline_equations.hl_gauss}),
    ('iql', {'loss': offline_equations.weighted_bc}),
    ('bcq', {'loss': offline_equations.double_dqn}),
    ('sarsa', {'loss': offline_equations.monte_carlo}),
  ],
)
@pytest.mark.usefixtures('own_folder')
def test_a_mistake_is_detected(name, mistake):
  case = CASES[name]
  (key,) = mistake
  of_optimizer = hasattr(case.optimizer(), key)
  if of_optimizer:
    mistake = {'optimizer': functools.partial(case.optimizer, **mistake)}
  errors = correctness.find_errors(case, **mistake)
  assert errors['step 2'] > 100 * TOLERANCE
  if not of_optimizer:
    # The loss is one number, where mistakes may cancel.
    assert errors['loss'] > 10 * TOLERANCE
    assert errors['gradient'] > 100 * TOLERANCE


# Sampling is the same for all agents.
@pytest.mark.parametrize('name', ['C51, n = 3', 'REM, n = 3'])
def test_agents_learn_from_a_log_what_the_equations_say(tmp_path, name):
  correctness.write_log(tmp_path)
  errors = correctness.compare_on_log(CASES[name], tmp_path)
  assert errors.keys() == {'loss', 'weights 2', 'step 2'}
  assert all(error <= TOLERANCE for error in errors.values()), errors
