"""The equations alone, and each agent against its own."""

import functools

import numpy as np
import pytest

from batch_rl.fixed_replay.replay_memory import fixed_replay_buffer
from batch_rl.tests import correctness, equations

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

# --- the equations ------------------------------------------------------------


def numeric_gradient(function, x, epsilon=1e-6):
  """Returns the central differences of a scalar function of x, float64."""
  gradient = np.zeros_like(x)
  for i in np.ndindex(x.shape):
    change = np.zeros_like(x)
    change[i] = epsilon
    difference = function(x + change) - function(x - change)
    gradient[i] = difference / (2 * epsilon)
  return gradient


def make_transitions(horizon=2, batch_size=7, num_actions=3):
  batch = correctness.make_batch(num_actions, batch_size)
  return equations.Transitions(
    batch.actions, np.float64(batch.rewards), batch.terminals, 0.9**horizon
  )


def make_mixtures(num_heads, num_mixtures):
  random = np.random.default_rng(1)
  return equations.simplex_points(
    random.uniform(size=(num_heads, num_mixtures))
  )


@pytest.mark.parametrize(
  ('equation', 'estimates', 'terms'),
  [
    (equations.dqn, None, {}),
    (equations.dqn, None, {'kappa': 0.5}),
    (equations.ensemble_dqn, 4, {}),
    (equations.averaged_ensemble_dqn, 4, {}),
    (equations.rem, 4, {'mixtures': make_mixtures(4, 1)}),
    (equations.rem, 4, {'mixtures': make_mixtures(4, 3)}),
    (equations.qr_dqn, 5, {}),
    (equations.qr_dqn, 5, {'kappa': 0.5}),
    (equations.qr_dqn, 5, {'kappa': 0}),
    (equations.c51, 6, {'support': np.linspace(-2, 2, 6)}),
  ],
)
def test_gradients_are_those_of_the_losses(equation, estimates, terms):
  shape = (7, 3, estimates) if estimates else (7, 3)
  random = np.random.default_rng(2)
  q, target_q = random.normal(0, 2, (2, *shape))
  transitions = make_transitions()

  def value(q):
    return equation(q, target_q, transitions, **terms).value

  gradient = equation(q, target_q, transitions, **terms).gradient
  expected = numeric_gradient(value, q)
  assert np.abs(expected).max() > 0.01
  np.testing.assert_allclose(gradient, expected, atol=1e-8)


def test_gradients_of_the_network_are_those_of_its_outputs():
  random = np.random.default_rng(3)
  widths = [4, 5, 6, 3]
  shapes = list(zip(widths, widths[1:], strict=False))
  layers = [
    (random.normal(size=shape), random.normal(size=shape[1]))
    for shape in shapes
  ]
  states, weights = random.uniform(-1, 1, (7, 4)), random.normal(size=(7, 3))
  activations = equations.forward(layers, states)
  gradients = equations.backward(layers, activations, weights)
  for i in range(len(layers)):
    for j in range(2):

      def value(array, i=i, j=j):
        changed = [list(layer) for layer in layers]
        changed[i][j] = array
        return np.sum(weights * equations.forward(changed, states).outputs)

      expected = numeric_gradient(value, layers[i][j])
      assert np.abs(expected).max() > 0.01
      np.testing.assert_allclose(gradients[i][j], expected, atol=1e-7)


def test_states_are_scaled_by_their_bounds():
  layers = [(np.eye(4), np.zeros(4))]
  states = np.array([[2.4, -5, np.pi / 12, -2 * np.pi]])
  outputs = equations.forward(layers, states).outputs
  np.testing.assert_allclose(outputs, [[1, -1, 1, -1]])


def test_losses_by_hand():
  # Errors 2 - 0.5 = 1.5 and, without bootstrap, 0.5 - 0.7 = -0.2.
  transitions = equations.Transitions(
    np.array([1, 0]), np.array([1.0, 0.5]), np.array([0, 1]), 0.5
  )
  q = np.array([[9.0, 0.5], [0.7, 9.0]])
  target_q = np.array([[2.0, 1.0], [7.0, 7.0]])
  loss = equations.dqn(q, target_q, transitions)
  assert loss.value == pytest.approx((1.0 + 0.02) / 2)
  np.testing.assert_allclose(loss.gradient, [[0, -0.5], [0.1, 0]], atol=1e-12)
  # tau = 1/4 and 3/4, u = 2 and -1, so the weights are 1/4 and |3/4 - 1|.
  loss = equations.quantile_regression(np.array([0.0, 3.0]), [2.0])
  assert loss.value == pytest.approx(0.25 * 1.5 + 0.25 * 0.5)
  # Clipped at the ends, shared in the middle, on an atom.
  projected = equations.project(
    [-9, 0.25, 1, 9], [0.1, 0.2, 0.3, 0.4], np.array([-1.0, 0.0, 1.0])
  )
  np.testing.assert_allclose(projected, [0.1, 0.15, 0.05 + 0.3 + 0.4])


def test_one_head_is_dqn():
  q, target_q = np.random.default_rng(4).normal(0, 2, (2, 7, 3))
  transitions = make_transitions()
  expected = equations.dqn(q, target_q, transitions)
  for equation in (
    equations.ensemble_dqn,
    equations.averaged_ensemble_dqn,
    functools.partial(equations.rem, mixtures=make_mixtures(1, 2)),
  ):
    loss = equation(q[..., None], target_q[..., None], transitions)
    assert loss.value == pytest.approx(expected.value)
    np.testing.assert_allclose(loss.gradient[..., 0], expected.gradient)


def test_optimizers_by_hand():
  """Checks the first step, with simple gradients."""
  weights = [np.array([1.0])]
  adam = equations.Adam(0.1, epsilon=0.0)
  # m = 0.1 g, v = 0.001 g^2: the bias corrections leave the sign.
  np.testing.assert_allclose(adam.step(weights, [np.array([-3.0])]), [[1.1]])
  rmsprop = equations.CenteredRMSProp(0.1, decay=0.5, epsilon=0.25)
  # n = 0.5 + 0.5 * 4, m = 0.5 * 2, n - m^2 + epsilon = 1.75.
  np.testing.assert_allclose(
    rmsprop.step(weights, [np.array([2.0])]), [[1 - 0.2 / np.sqrt(1.75)]]
  )


# --- the agents ---------------------------------------------------------------

# Built once, for several tests.
run_agent = functools.cache(correctness.run_agent)


def show(errors):
  print(*(f'{name} {error:.1e}' for name, error in errors.items()), sep=', ')


@pytest.mark.parametrize('name', TESTED)
def test_agents_do_what_the_equations_say(name):
  case = CASES[name]
  ours, expected = run_agent(case), correctness.transcribe(case)
  # With smaller inputs, float32 might see the other slope of a ReLU.
  assert min(expected.margins) > 1e-7
  errors = correctness.compare(case, ours, expected)
  show(errors)
  assert max(errors.values()) <= TOLERANCE


@pytest.mark.parametrize('batch', correctness.BATCHES)
def test_batches_have_errors_for_both_pieces_of_the_loss(batch):
  case = CASES['DQN (Nature), n = 3']
  online, target = correctness.first_weights(case)
  _, q = correctness.outputs(case, online, batch.states)
  _, target_q = correctness.outputs(case, target, batch.next_states)
  transitions = equations.Transitions(
    batch.actions, batch.rewards, batch.terminals, correctness.GAMMA
  )
  errors = [
    transitions.target(j, max(target_q[j])) - q[j, batch.actions[j]]
    for j in range(len(transitions))
  ]
  counts, _ = np.histogram(errors, [-np.inf, -1, 0, 1, np.inf])
  assert counts.all()
  assert 0 < batch.terminals.sum() < len(batch.terminals)


def errors_of_mistake(case, **mistake):
  expected = correctness.transcribe(case, **mistake)
  errors = correctness.compare(case, run_agent(case), expected)
  show(errors)
  return errors


def without_terminals(case):
  nothing = np.zeros(correctness.BATCH_SIZE)
  batches = [b._replace(terminals=nothing) for b in correctness.BATCHES]
  return {'batches': batches}


def one_step_discount(case):
  return {'discount': correctness.GAMMA}


def mixtures_of_the_other_step(case):
  mixtures = correctness.draw_mixtures(case)
  others = reversed(mixtures.values())
  return {'mixtures': dict(zip(mixtures, others, strict=True))}


def averaged(case):
  return {'equation': equations.averaged_ensemble_dqn}


def not_averaged(case):
  return {'equation': equations.ensemble_dqn}


def other_kink(case):
  return {'terms': {'kappa': 0.9}}


def other_support(case):
  return {'terms': {'support': np.linspace(-9.9, 9.9, 51)}}


@pytest.mark.parametrize(
  ('mistake', 'name'),
  [
    (without_terminals, 'DQN (Nature), n = 3'),
    (without_terminals, 'C51, n = 3'),
    (without_terminals, 'QR-DQN, n = 3'),
    (without_terminals, 'Averaged Ensemble-DQN, n = 3'),
    (without_terminals, 'REM, n = 3'),
    (one_step_discount, 'DQN (Nature), n = 3'),
    (one_step_discount, 'C51, n = 3'),
    (one_step_discount, 'REM, n = 3'),
    (mixtures_of_the_other_step, 'REM, n = 3'),
    (mixtures_of_the_other_step, 'REM, networks, 3 mixtures, n = 3'),
    (averaged, 'Ensemble-DQN, n = 3'),
    (not_averaged, 'Averaged Ensemble-DQN, n = 3'),
    (other_kink, 'DQN (Nature), n = 3'),
    (other_kink, 'QR-DQN, n = 3'),
    (other_support, 'C51, n = 3'),
  ],
)
def test_a_wrong_loss_is_detected(mistake, name):
  errors = errors_of_mistake(CASES[name], **mistake(CASES[name]))
  # The loss is one number, where mistakes may cancel.
  assert errors['loss'] > 10 * TOLERANCE
  for measure in ('gradient', 'step 1', 'step 2'):
    assert errors[measure] > 100 * TOLERANCE, measure


@pytest.mark.parametrize(
  ('name', 'mistake'),
  [
    ('DQN (Nature), n = 3', {'learning_rate': 2.51e-4}),
    ('DQN (Nature), n = 3', {'decay': 0.94}),
    ('DQN (Nature), later, n = 1', {'epsilon': 1.1e-5}),
    ('DQN (Adam), n = 1', {'learning_rate': 5.02e-5}),
    ('DQN (Adam), n = 1', {'epsilon': 3.14e-4}),
    ('DQN (Adam), n = 1', {'beta1': 0.89}),
    ('DQN (Adam), n = 1', {'beta2': 0.998}),
  ],
)
def test_a_wrong_optimizer_is_detected(name, mistake):
  optimizer = functools.partial(CASES[name].optimizer, **mistake)
  errors = errors_of_mistake(CASES[name], optimizer=optimizer)
  assert errors['step 2'] > 100 * TOLERANCE


class NotCentered(equations.CenteredRMSProp):
  def step(self, weights, gradients):
    super().step(weights, gradients)
    rate, epsilon = self.learning_rate, self.epsilon
    return [
      w - rate * g / np.sqrt(n + epsilon)
      for w, g, n in zip(weights, gradients, self.n, strict=True)
    ]


class EpsilonOutside(equations.CenteredRMSProp):
  def step(self, weights, gradients):
    super().step(weights, gradients)
    rate, epsilon = self.learning_rate, self.epsilon
    return [
      w - rate * g / (np.sqrt(n - m**2) + epsilon)
      for w, g, n, m in zip(weights, gradients, self.n, self.m, strict=True)
    ]


@pytest.mark.parametrize('optimizer', [NotCentered, EpsilonOutside])
def test_a_wrong_rmsprop_is_detected(optimizer):
  case = CASES['DQN (Nature), later, n = 1']
  other = functools.partial(optimizer, **case.optimizer.keywords)
  assert errors_of_mistake(case, optimizer=other)['step 1'] > 100 * TOLERANCE


# --- data ---------------------------------------------------------------------


@pytest.fixture(scope='module')
def log(tmp_path_factory):
  """A log on disk: its directory and its content."""
  directory = tmp_path_factory.mktemp('log')
  return directory, correctness.write_log(directory)


@pytest.mark.parametrize('horizon', [1, 3, 5])
def test_batches_hold_the_n_step_returns(log, horizon):
  directory, expected = log
  memory = fixed_replay_buffer.FixedReplayBuffer(
    str(directory),
    None,
    (4, 1),
    1,
    50,
    8,
    horizon,
    correctness.GAMMA,
    observation_dtype=np.float64,
  )
  rows = memory.valid_indices()
  state, action, reward, next_state, _, _, terminal, _ = (
    memory.sample_transition_batch(len(rows), rows)
  )
  steps = expected.find(state)
  assert sorted(steps) == list(range(len(expected.rewards)))
  batch = expected.batch(steps, horizon)
  np.testing.assert_array_equal(action, batch.actions)
  np.testing.assert_array_equal(terminal, batch.terminals)
  np.testing.assert_allclose(reward, batch.rewards, rtol=1e-5, atol=1e-6)
  going_on = ~batch.terminals
  np.testing.assert_array_equal(
    next_state[going_on], batch.next_states[going_on]
  )


# Sampling is the same for all agents.
@pytest.mark.parametrize('name', ['C51, n = 3', 'REM, n = 3'])
def test_agents_learn_from_a_log_what_the_equations_say(log, name):
  directory, expected = log
  case = CASES[name]
  errors, steps = correctness.compare_on_log(case, directory, expected)
  show(errors)
  assert max(errors.values()) <= TOLERANCE
  # Episodes end at the first, second or third step, or continue.
  to_end = {expected.terminals[t:].argmax() for t in np.concatenate(steps)}
  assert {0, 1, 2} < to_end
