"""Losses and updates of d3rlpy and TorchRL, in an environment of their own.

`benchmarks.peers` runs it; it does not import batch_rl.

  python theirs.py losses INPUT.npz OUTPUT.npz
  python theirs.py updates EPISODES.npz UPDATES   # a round for each line of stdin
"""

import dataclasses
import json
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import d3rlpy
import numpy as np
import torch
from d3rlpy import algos
from d3rlpy.models import QRQFunctionFactory, VectorEncoderFactory
from d3rlpy.torch_utility import TorchMiniBatch
from tensordict import TensorDict
from tensordict.nn import TensorDictModule
from torch import nn
from torchrl import objectives
from torchrl.modules import ProbabilisticActor

Inputs = dict[str, Any]  # columns: tensors; networks: lists of arrays
# A loss, and the parameters that it trains.
Loss = tuple[torch.Tensor, Sequence[torch.Tensor]]


def of_d3rlpy(
  config: Any,
  inputs: Inputs,
  kind: str = '',
  penalty: float = 0,
  **settings: Any,
) -> Loss:
  """Returns the loss of an algorithm.

  Args:
    config: Class of its settings.
    inputs: Batch and weights of networks.
    kind: Suffix of the names of the Q-networks in `inputs`.
    penalty: Weight of the mean of the imitator's squared logits, added to the loss.
    **settings: Settings that are not the default.
  """
  (features, units), _, (_, num_actions), _ = map(np.shape, inputs['policy'])
  encoder = VectorEncoderFactory([units])
  algorithm = config(
    gamma=float(inputs['gamma']), encoder_factory=encoder, **settings
  ).create(device='cpu:0')
  algorithm.create_impl((features,), num_actions)
  impl = algorithm.impl
  trained = load(impl.modules.q_funcs[0], inputs[f'online{kind}'])
  load(impl.modules.targ_q_funcs[0], inputs[f'target{kind}'])
  column = {k: inputs[k][:, None] for k in ('action', 'reward', 'terminal')}
  batch = TorchMiniBatch(
    observations=inputs['state'],
    actions=column['action'],
    rewards=column['reward'],
    next_observations=inputs['next_state'],
    next_actions=column['action'],  # not used
    returns_to_go=column['reward'],  # not used
    terminals=column['terminal'].float(),
    intervals=torch.ones_like(column['reward']),
    device='cpu:0',
  )
  loss = 0.0
  if imitator := getattr(impl.modules, 'imitator', None):
    trained += load(imitator, inputs['behaviour'])
    logits = imitator._fc(imitator._encoder(inputs['state']))
    loss = penalty * (logits**2).mean()
  target = impl.compute_target(batch)
  return loss + impl.compute_loss(batch, target).loss, trained


def of_torchrl(
  module: Callable[..., objectives.LossModule],
  inputs: Inputs,
  others: Sequence[str] = (),
  weights: Mapping[str, float] = {},
  **settings: Any,
) -> Loss:
  """Returns the sum of a module's losses.

  Args:
    module: Makes the module from the Q-network and the others.
    inputs: Batch and weights of networks.
    others: Names of further networks.
    weights: Weights of losses, if not 1.
    **settings: Settings of the module.
  """
  q_network, *rest = (network(inputs[name]) for name in ('target', *others))
  settings = {'loss_function': 'smooth_l1', **settings}
  # Copies the target network.
  losses = module(q_network, *rest, action_space='categorical', **settings)
  losses.make_value_estimator(gamma=float(inputs['gamma']))
  trained = load(q_network, inputs['online'])
  trained += [parameter for other in rest for parameter in other.parameters()]
  terminal = inputs['terminal'][:, None].bool()
  following = {
    'observation': inputs['next_state'],
    'reward': inputs['reward'][:, None],
    'done': terminal,
    'terminated': terminal,
  }
  columns = {'observation': inputs['state'], 'action': inputs['action']}
  found = losses(TensorDict({**columns, 'next': following}, [len(terminal)]))
  parts = (name for name in found.keys() if name.startswith('loss'))
  return sum(weights.get(name, 1) * found[name] for name in parts), trained


def discrete_iql(
  q_network: nn.Module, value: nn.Module, policy: nn.Module, **settings: Any
) -> objectives.LossModule:
  """Returns the module of discrete IQL for plain networks."""

  def writes(module, key):
    return TensorDictModule(module, ['observation'], [key])

  actor = ProbabilisticActor(
    writes(policy, 'logits'),
    ['logits'],
    distribution_class=torch.distributions.Categorical,
  )
  return objectives.DiscreteIQLLoss(
    actor,
    writes(q_network, 'state_action_value'),
    writes(value, 'state_value'),
    **settings,
  )


def network(arrays: Sequence[np.ndarray]) -> nn.Sequential:
  """Returns a network with a hidden layer of ReLUs."""
  first, _, last, _ = arrays
  layers = nn.Linear(*first.shape), nn.ReLU(), nn.Linear(*last.shape)
  made = nn.Sequential(*layers)
  load(made, arrays)
  return made


def load(module: nn.Module, arrays: Sequence[np.ndarray]) -> list[torch.Tensor]:
  """Sets and returns parameters; kernels are those of TensorFlow, transposed."""
  parameters = list(module.parameters())
  for parameter, array in zip(parameters, arrays, strict=True):
    parameter.data.copy_(torch.as_tensor(array.T))
  return parameters


def quantiles(count: int) -> dict[str, Any]:
  """Returns the settings of QR-DQN."""
  return {'q_func_factory': QRQFunctionFactory(n_quantiles=count)}


# By the names of `ours.CASES`.
LOSSES: dict[str, Callable[[Inputs], Loss]] = {
  'd3rlpy DQN': partial(of_d3rlpy, algos.DQNConfig),
  'd3rlpy DoubleDQN': partial(of_d3rlpy, algos.DoubleDQNConfig),
  'd3rlpy DiscreteCQL': partial(of_d3rlpy, algos.DiscreteCQLConfig),
  'd3rlpy DiscreteCQL, quantiles': partial(
    of_d3rlpy, algos.DiscreteCQLConfig, kind=' quantiles', **quantiles(20)
  ),
  'd3rlpy DiscreteBCQ': partial(
    of_d3rlpy,
    algos.DiscreteBCQConfig,
    beta=0.0,
    penalty=0.01,
    share_encoder=False,
  ),
  'TorchRL DQNLoss': partial(of_torchrl, objectives.DQNLoss),
  'TorchRL DQNLoss, double': partial(
    of_torchrl, objectives.DQNLoss, double_dqn=True
  ),
  'TorchRL DiscreteCQLLoss': partial(
    of_torchrl, objectives.DiscreteCQLLoss, weights={'loss_qvalue': 2}
  ),
  'TorchRL DiscreteIQLLoss': partial(
    of_torchrl,
    discrete_iql,
    others=('value', 'policy'),
    num_qvalue_nets=1,
    expectile=0.7,
    temperature=3.0,
  ),
}
ALGORITHMS = {
  'DQN': algos.DQNConfig(),
  'CQL on QR-DQN': algos.DiscreteCQLConfig(**quantiles(200)),
  'BCQ': algos.DiscreteBCQConfig(),
}


def compute_losses(source: str, destination: str) -> None:
  """Computes the losses of arrays, and their gradients, in TensorFlow's layout."""
  inputs: Inputs = {}
  with np.load(source) as arrays:
    for key, array in arrays.items():
      owner, slash, _ = key.partition('/')  # '<network>/<index>'
      if slash:
        inputs.setdefault(owner, []).append(array)
      else:
        inputs[key] = torch.as_tensor(array)
  found = {}
  for name, function in LOSSES.items():
    loss, trained = function(inputs)
    loss.backward()
    found[f'{name}/loss'] = loss.detach().numpy()
    for i, parameter in enumerate(trained):
      found[f'{name}/{i}'] = parameter.grad.numpy().T
  np.savez(destination, **found)


def make_updates(source: str, updates: str) -> None:
  """Makes updates of each algorithm for each line of stdin, and prints their seconds.

  The network is that of Mnih et al., 2015, d3rlpy's default for images.
  """
  with np.load(source) as arrays:
    loaded = dict(arrays)
  episodes = [
    d3rlpy.dataset.Episode(
      *(
        loaded[f'{i}/{k}'][:, None] for k in ('observation', 'action', 'reward')
      ),
      terminated=True,
    )
    for i in range(len(loaded) // 3)
  ]
  stacks = d3rlpy.dataset.FrameStackTransitionPicker(4)
  memory = d3rlpy.dataset.create_infinite_replay_buffer(episodes, stacks)
  scaler = d3rlpy.preprocessing.PixelObservationScaler()
  trained = {}
  for name, config in ALGORITHMS.items():
    config = dataclasses.replace(config, observation_scaler=scaler)
    trained[name] = config.create(device='cpu:0')
    trained[name].create_impl((4, 84, 84), 6)
  for _ in sys.stdin:
    seconds = {}
    for name, algorithm in trained.items():
      begin = time.perf_counter()
      for _ in range(int(updates)):
        algorithm.update(memory.sample_transition_batch(32))
      seconds[name] = time.perf_counter() - begin
    print(json.dumps(seconds), flush=True)


if __name__ == '__main__':
  torch.set_num_threads(1)
  command, *arguments = sys.argv[1:]
  {'losses': compute_losses, 'updates': make_updates}[command](*arguments)
