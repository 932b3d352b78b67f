"""The shipped configs and agents: the table that a new agent joins.

The contract tests of `agents_test.py`, and others, test every agent in it.
"""

from typing import Any, NamedTuple

from dopamine.discrete_domains import gym_lib


class Shipped(NamedTuple):
  """What is expected of a config."""

  class_name: str  # of the agent
  # Its own hyper-parameters, and its name in reports.
  parameters: dict[str, Any]
  # Arguments that make the agent a small one for CartPole; None if another config of
  # the agent has them.
  small: dict[str, Any] | None = None
  # Losses of the first three updates with seed 1, with SSE 4.1, of a config of
  # 2020. Other instruction sets differ by 1e-7; a larger difference would change the
  # results of users.
  losses: list[float] | None = None


# A plain network for CartPole: the agents give it their heads.
NETWORK = {'network': gym_lib.CartpoleDQNNetwork}

# Optimisers, Agarwal et al. (2020) and, for RMSProp, Mnih et al. (2015).
RMSPROP = dict(name='DQN (Nature)', optimizer='RMSPropOptimizer', centered=True)
RMSPROP |= dict(learning_rate=2.5e-4, decay=0.95, momentum=0.0, epsilon=1e-5)
ADAM = dict(optimizer='AdamOptimizer', learning_rate=5e-5, epsilon=0.01 / 32)
ADAM |= dict(beta1=0.9, beta2=0.999)
DQN_ADAM = {**ADAM, 'name': 'DQN (Adam)'}
ADAM_C51 = {**ADAM, 'learning_rate': 2.5e-4}
ADAM_ENSEMBLE = {**ADAM, 'epsilon': 3.125e-5}

C51 = {'name': 'C51', 'atoms': 51, 'support': (-10.0, 10.0)}
QUANTILES = {'num_atoms': 200, 'kappa': 1.0}
# Dabney et al., 2018 (IQN); Vieillard et al., 2020; Farebrother et al., 2024; the code
# of Kumar et al., 2020.
IQN = {'num_tau_samples': 64, 'num_quantile_samples': 32, 'kappa': 1.0}
MUNCHAUSEN = {'alpha': 0.9, 'tau': 0.03, 'clip': -1.0}
BINS = {'num_atoms': 51, 'vmin': -10.0, 'vmax': 10.0}
CQL = {'CQL.weight': 1.0}
IQL = {'expectile': 0.7, 'inverse_temperature': 3.0}
DQN, QR_DQN = 'FixedReplayDQNAgent', 'FixedReplayQuantileAgent'
IQN_AGENT = 'FixedReplayImplicitQuantileAgent'


def ensemble(num_heads: int, strategy: str, name: str) -> dict[str, Any]:
  """Returns the hyper-parameters of an ensemble."""
  mixtures = {'transform_strategy': strategy, 'num_convex_combinations': 1}
  return {'num_heads': num_heads, 'name': name, **mixtures}


REM = ensemble(200, 'STOCHASTIC', 'REM')
# {config: what is expected of it}.
OFFLINE = {
  'dqn': Shipped(DQN, RMSPROP, NETWORK, [0.3045184, 0.2584695, 0.2563804]),
  'dqn_adam': Shipped(DQN, DQN_ADAM, losses=[0.3045184, 0.2546671, 0.228803]),
  'c51': Shipped(
    'FixedReplayRainbowAgent',
    {**ADAM_C51, **C51},
    {'network': gym_lib.CartpoleRainbowNetwork, 'num_atoms': 11},
    [3.932755, 3.932514, 3.932179],
  ),
  'quantile': Shipped(
    QR_DQN,
    {**ADAM, **QUANTILES, 'name': 'QR-DQN'},
    {**NETWORK, 'num_atoms': 5},
    [33.0657, 26.6572, 32.64212],
  ),
  'multi_head_dqn': Shipped(
    'FixedReplayMultiHeadDQNAgent',
    {**ADAM, **ensemble(200, 'IDENTITY', 'Ensemble-DQN')},
    {**NETWORK, 'transform_strategy': 'STOCHASTIC', 'num_heads': 5},
    [0.3431322, 0.2753055, 0.31532],
  ),
  'averaged_ensemble_dqn': Shipped(
    'FixedReplayMultiHeadDQNAgent',
    {**ADAM, **ensemble(200, 'AVERAGE', 'Averaged Ensemble-DQN')},
    losses=[0.330386, 0.2672471, 0.3284096],
  ),
  'rem': Shipped(
    'FixedReplayMultiHeadDQNAgent',
    {**ADAM, **REM},
    losses=[0.3295079, 0.2666991, 0.3271843],
  ),
  'multi_network_rem': Shipped(
    'FixedReplayMultiNetworkDQNAgent',
    {**ADAM, **ensemble(4, 'STOCHASTIC', 'REM (networks)')},
    {**NETWORK, 'num_networks': 2},
    [0.3445185, 0.273424, 0.3125557],
  ),
  # Their losses are those of the equations (`equations_test`).
  'bc': Shipped('FixedReplayBCAgent', ADAM, NETWORK),
  'percent_bc': Shipped('FixedReplayBCAgent', ADAM),
  'iqn': Shipped(IQN_AGENT, {**ADAM, **IQN}, NETWORK),
  'munchausen_iqn': Shipped(IQN_AGENT, {**ADAM, **IQN, **MUNCHAUSEN}),
  'iql': Shipped('FixedReplayIQLAgent', {**ADAM, **IQL}, NETWORK),
  'weighted_bc': Shipped('FixedReplayIQLAgent', {**ADAM, 'expectile': 0.5}),
  'cql': Shipped(QR_DQN, {**ADAM, **QUANTILES, **CQL}),
  'cql_dr3': Shipped(QR_DQN, {**ADAM, **QUANTILES, **CQL, 'DR3.weight': 0.03}),
  'bcq': Shipped(DQN, {**ADAM, 'Imitation.weight': 1.0, 'threshold': 0.3}),
  'dr3': Shipped(DQN, {**ADAM, 'DR3.weight': 0.03}),
  'munchausen_dqn': Shipped(DQN, {**ADAM, **MUNCHAUSEN}),
  'hl_gauss': Shipped(DQN, {**ADAM, **BINS}),
  'hl_gauss_cql': Shipped(
    DQN, {**ADAM, 'learning_rate': 6.25e-5, **BINS, 'CQL.weight': 0.1}
  ),
  'two_hot': Shipped(DQN, {**ADAM, **BINS}),
  'sarsa': Shipped(DQN, ADAM),
  'monte_carlo': Shipped(DQN, ADAM),
}
ONLINE = {
  'random': Shipped('RandomAgent', {}),
  'dqn': Shipped('LoggedDQNAgent', RMSPROP),
  'dqn_adam': Shipped('LoggedDQNAgent', DQN_ADAM),
  'c51': Shipped('LoggedRainbowAgent', {**ADAM_C51, **C51}),
  'quantile': Shipped('LoggedQuantileAgent', {**ADAM, **QUANTILES}),
  'ensemble_dqn': Shipped(
    'LoggedMultiNetworkDQNAgent',
    {**ADAM_ENSEMBLE, **ensemble(4, 'IDENTITY', 'Ensemble-DQN (networks)')},
  ),
  'rem': Shipped(
    'LoggedMultiNetworkDQNAgent',
    {**ADAM_ENSEMBLE, **ensemble(4, 'STOCHASTIC', 'REM (networks)')},
  ),
  'multi_head_rem': Shipped('LoggedMultiHeadDQNAgent', {**ADAM, **REM}),
}
